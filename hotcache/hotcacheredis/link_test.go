package hotcacheredis

import (
	"context"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// A subscription that is cut is told, and what it missed shows in the position.
func TestCutSubscription(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	l, f := follow(t, n, "me")
	before := beat(t, f, time.Second)
	inv, _ := invalidate(t, n, "k", 1)
	l.until(t, "it is heard", func() bool { return len(l.heard) == 1 })
	if before.Generation != inv.Generation || l.heard[0].Prev != before.Nonce {
		t.Errorf("after %+v came %+v", before, l.heard[0])
	}
	// P2: the invalidation and the end of every subscription are one moment.
	server.KillPubSubAnd([]string{"PUBLISH", n.keys.feed(), "1 w\nnobody hears this"})
	l.until(t, "it is told and comes back", func() bool { return l.downs == 1 && l.ups == 2 })
	if l.look(func() {
		if len(l.woken) > 0 {
			t.Errorf("woken for %q", l.woken)
		}
	}); beat(t, f, time.Second) != inv.Position {
		t.Error("the position has changed, and nothing was invalidated")
	}
	invalidate(t, n, "k", 1)
	l.until(t, "the next is heard", func() bool { return len(l.heard) == 2 })
}

// While a subscription is cut, what is invalidated is not heard; no beat says otherwise.
func TestMissedInvalidation(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	relay := redistest.NewRelay(t, server.Addr())
	far := open(t, "redis://"+relay.Addr(), Options{})
	l, f := follow(t, far, "far")
	beat(t, f, time.Second)
	relay.Cut()
	inv, _ := invalidate(t, n, "k", 1)
	l.until(t, "it is told", func() bool { return l.downs == 1 })
	if _, err := f.Beat(t.Context(), time.Second); err == nil {
		t.Error("a beat over a connection that is cut")
	}
	relay.Restore()
	l.until(t, "it comes back", func() bool { return l.ups == 2 })
	if p := beat(t, f, time.Second); p != inv.Position {
		t.Errorf("the position is %+v, want %+v", p, inv.Position)
	}
	l.look(func() {
		if len(l.heard) != 0 {
			t.Errorf("heard: %+v", l.heard)
		}
	})
}

// A link that takes what is sent and brings nothing back is noticed by a beat at once, and by the heartbeat.
func TestHalfDeadLink(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	relay := redistest.NewRelay(t, server.Addr())
	n := open(t, "redis://"+relay.Addr(), Options{Heartbeat: 100 * time.Millisecond, Pong: 200 * time.Millisecond})
	near := open(t, server.URL(), Options{})
	l, f := follow(t, n, "me")
	beat(t, f, time.Second)
	relay.Freeze(redistest.Replies)
	inv, _ := invalidate(t, near, "k", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if p, err := f.Beat(ctx, time.Second); err == nil {
		t.Errorf("a beat over a dead link: %+v", p)
	}
	l.until(t, "it is told", func() bool { return l.downs == 1 })
	relay.Thaw()
	relay.Sever()
	l.until(t, "it comes back", func() bool { return l.ups >= 2 })
	soon(t, "a beat is answered", func() bool {
		p, err := f.Beat(t.Context(), time.Second)
		return err == nil && p == inv.Position
	})
	// A frozen server is no different, and no call takes longer than it may.
	server.Freeze()
	began := time.Now()
	limited, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := n.Ask(limited, hotcache.Ask{Key: "k"}); err == nil {
		t.Error("a frozen server answered")
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	f.Close()
	server.Thaw()
}

// What cannot be read may have been an invalidation.
func TestUnreadableMessage(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	l, f := follow(t, n, "me")
	server.Do("PUBLISH", n.keys.feed(), "noise")
	l.until(t, "it is told", func() bool { return l.downs == 1 && l.ups == 2 })
	beat(t, f, time.Second)
	server.Do("PUBLISH", n.keys.feed(), "1 t\nto all")
	server.Do("PUBLISH", n.keys.to("me"), "noise")
	server.Do("PUBLISH", n.keys.to("me"), "1 w\nno place for it")
	server.Do("PUBLISH", n.keys.to("me"), "1 t\nto me")
	l.until(t, "the rest is told", func() bool { return len(l.told) == 2 })
	l.look(func() {
		if l.downs != 1 || len(l.woken) != 0 {
			t.Errorf("%d times down, woken for %q", l.downs, l.woken)
		}
	})
}

// The scripts of a server are gone, and nothing else: no generation begins.
func TestScriptFlush(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	_, f := follow(t, n, "me")
	before := beat(t, f, time.Second)
	put(t, n, "k", 1)
	server.Do("SCRIPT", "FLUSH")
	if p := beat(t, f, time.Second); p != before {
		t.Errorf("the position is %+v, want %+v", p, before)
	}
	server.Do("SCRIPT", "FLUSH")
	done := make(chan error, 50)
	for i := range cap(done) {
		go func() {
			a, err := n.Ask(t.Context(), hotcache.Ask{Key: "k", Token: hotcache.Token(i + 1)})
			if err == nil && a.Stamp.Generation != before.Generation {
				t.Errorf("a generation began: %+v", a)
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
