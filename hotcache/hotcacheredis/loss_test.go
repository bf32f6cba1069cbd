package hotcacheredis

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// Whatever the server loses, it must not come to look as if nothing had been invalidated: a generation begins.
func TestLossBeginsAGeneration(t *testing.T) {
	for _, c := range []struct {
		name string
		lose func(s *redistest.Server, n *Node)
	}{
		{"FLUSHALL", func(s *redistest.Server, _ *Node) { s.Do("FLUSHALL") }},
		{"restart without data", func(s *redistest.Server, _ *Node) { s.Restart() }},
		{"floors evicted", func(s *redistest.Server, n *Node) { s.Do("DEL", n.keys.floors()) }},
		{"former floors evicted", func(s *redistest.Server, n *Node) { s.Do("DEL", n.keys.former()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Options{})
			n := open(t, server.URL(), Options{Rules: hotcache.Rules{FloorTTL: 400 * time.Millisecond}})
			before, _ := invalidate(t, n, "k", 7)
			soon(t, "the floors are turned", func() bool {
				invalidate(t, n, "j", 1)
				return server.Int("EXISTS", n.keys.former()) == 1
			})
			put(t, n, "item", 1)
			a := ask(t, n, "loading", 5)
			c.lose(server, n)
			var b hotcache.Answer
			soon(t, "the server answers", func() bool {
				var err error
				b, err = n.Ask(t.Context(), hotcache.Ask{Key: "k", Token: 6})
				return err == nil
			})
			if b.State != core.Lease || b.Min != hotcache.Fresh || b.Stamp.Generation == before.Generation || b.Stamp.Number != 0 {
				t.Errorf("after the loss a load is asked for with %+v", b)
			}
			if b := ask(t, n, "item", 7); b.State != core.Lease {
				t.Errorf("an item of before is left: %+v", b)
			}
			r, err := n.Fill(t.Context(), hotcache.Fill{Key: "loading", Token: a.Token, Times: good})
			if err != nil || r.Refusal != core.LostLease {
				t.Errorf("a lease of before is left: %+v, %v", r, err)
			}
		})
	}
}

// Caches in one server have the same scripts. That one of them gave them to a server that was started again says nothing
// of what the others have in it.
func TestOldDataBeginAGenerationOfEachNamespace(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	first, n := open(t, server.URL(), Options{Namespace: "first"}), open(t, server.URL(), Options{Namespace: "second"})
	put(t, first, "k", 1)
	put(t, n, "k", 1)
	server.Do("SAVE")
	invalidate(t, n, "k", 2)
	server.Restart()
	if server.Int("EXISTS", n.keys.item("k")) != 1 {
		t.Fatal("the old item did not come back, so nothing is tested")
	}
	for _, node := range []*Node{first, n} {
		var a hotcache.Answer
		soon(t, "the server answers", func() bool {
			var err error
			a, err = node.Ask(t.Context(), hotcache.Ask{Key: "k", Token: 6})
			return err == nil
		})
		if a.State != core.Lease || a.Min != hotcache.Fresh {
			t.Errorf("%s: what was before is given out: %+v", node.o.Namespace, a)
		}
	}
}

// A server that comes back with what it had a while ago does not know what was invalidated since.
func TestOldDataBeginAGeneration(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	other := open(t, server.URL(), Options{})
	_, f := follow(t, other, "other")
	old := beat(t, f, 50*time.Millisecond)
	soon(t, "nobody is to be waited for", func() bool {
		_, members := invalidate(t, n, "j", 1)
		return len(members) == 0
	})
	put(t, n, "k", 1)
	server.Do("SAVE")
	invalidate(t, n, "k", 2)
	if a := ask(t, n, "k", 0); a.State != core.Miss {
		t.Fatalf("%+v", a)
	}
	server.Restart()
	if server.Int("EXISTS", n.keys.item("k")) != 1 {
		t.Fatal("the old item did not come back, so nothing is tested")
	}
	var a hotcache.Answer
	soon(t, "the server answers", func() bool {
		var err error
		a, err = n.Ask(t.Context(), hotcache.Ask{Key: "k", Token: 3})
		return err == nil
	})
	if a.State != core.Lease || a.Min != hotcache.Fresh || a.Stamp.Generation == old.Generation {
		t.Errorf("what was invalidated came back: %+v with %v", a, a.Item)
	}
	// Whoever may trust his memory is not on a list that is as old, so a writer waits for somebody who is unknown.
	if _, members := invalidate(t, n, "k", 3); !slices.Contains(members, "?") {
		t.Errorf("to be waited for are %q", members)
	}
	if err := n.Fail(t.Context(), "k", 3, "", 0); err != nil {
		t.Fatal(err)
	}
	// And a second restart of the same kind, found out by the feed of another process first.
	put(t, n, "k", 3)
	server.Do("SAVE")
	stamp, _ := invalidate(t, n, "k", 4)
	server.Restart()
	var p hotcache.Position
	soon(t, "the feed is back", func() bool {
		var err error
		p, err = f.Beat(t.Context(), time.Second)
		return err == nil
	})
	if p.Generation == stamp.Generation {
		t.Error("the feed goes on as if nothing had been lost")
	}
	soon(t, "the server answers", func() bool {
		var err error
		a, err = n.Ask(t.Context(), hotcache.Ask{Key: "k", Token: 9})
		return err == nil
	})
	if a.State != core.Lease {
		t.Errorf("what was invalidated came back: %+v", a)
	}
}

// A list of members that is gone makes writers wait for as long as anybody may trust his memory.
func TestMembersForgotten(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	_, f := follow(t, n, "me")
	beat(t, f, 200*time.Millisecond)
	server.Do("DEL", n.keys.members())
	if _, members := invalidate(t, n, "k", 1); !slices.Equal(members, []hotcache.Member{"?"}) {
		t.Errorf("to be waited for are %q, want one who is unknown", members)
	}
	beat(t, f, time.Hour)
	soon(t, "the unknown one is off the list", func() bool {
		_, members := invalidate(t, n, "k", 1)
		return slices.Equal(members, []hotcache.Member{"me"})
	})
}

// TestEviction fills a server that evicts, and demands that floors are forgotten with their generation only.
func TestEviction(t *testing.T) {
	server := redistest.Start(t, redistest.Options{Config: []string{"maxmemory 4mb", "maxmemory-policy allkeys-random"}})
	n := open(t, server.URL(), Options{})
	const keys = 200
	floor := map[string]hotcache.Version{}
	generation, began, kept := uint64(0), 0, 0
	data := make([]byte, 60_000)
	for i := range 600 {
		key := fmt.Sprint("k", i%keys)
		v := hotcache.Version(i + 1)
		inv, _ := invalidate(t, n, key, v)
		if inv.Generation != generation {
			generation = inv.Generation
			began++
			clear(floor)
		}
		floor[key] = v
		// A fill with an old version must be refused, or the node must have said that it has forgotten.
		a := ask(t, n, key, hotcache.Token(i+1))
		if a.State != core.Lease || a.Min != hotcache.Fresh { // no generation is older than a minute here
			t.Fatalf("step %d: %+v", i, a)
		}
		for other, want := range floor {
			b := ask(t, n, other, hotcache.Token(i+1000*keys))
			if b.Stamp.Generation != generation {
				generation = b.Stamp.Generation
				began++
				clear(floor)
				break
			}
			if b.Token != 0 && b.Floor < want {
				t.Fatalf("step %d: the floor of %s is %d, and was %d in the same generation", i, other, b.Floor, want)
			}
			kept++
			if err := n.Fail(t.Context(), other, b.Token, "", 0); err != nil {
				t.Fatal(err)
			}
			break
		}
		_, err := n.Fill(t.Context(), hotcache.Fill{Key: key, Token: a.Token, Item: hotcache.Item{Version: v, Data: data}, Times: good})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d generations, %d floors were there", began, kept)
	if began < 2 || server.Text("INFO", "stats") == "" {
		t.Errorf("%d generations: nothing was evicted that matters, so nothing was tested", began)
	}
}

// A full server that evicts nothing takes invalidations, and stores no items.
func TestFullServer(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	put(t, n, "k", 1)
	a := ask(t, n, "j", 5)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	_, err := n.Fill(t.Context(), hotcache.Fill{Key: "j", Token: a.Token, Item: hotcache.Item{Version: 1}, Times: good})
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("a fill of a full server: %v", err)
	}
	if a := ask(t, n, "k", 6); a.State != core.Hit {
		t.Errorf("%+v", a)
	}
	invalidate(t, n, "k", 2)
	if a := ask(t, n, "k", 7); a.State != core.Lease || a.Floor != 2 {
		t.Errorf("%+v", a)
	}
	if _, err := n.Renew(t.Context(), "k", 7); err != nil {
		t.Error(err)
	}
}
