package leaseremote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// A durable broker that restarts, in order or by a crash, loses nothing for its
// clients: holds stay, and waiters come again and are granted by their age,
// although the younger one is back first.
func TestDurableRestart(t *testing.T) {
	for name, end := range map[string]func(*broker){"in order": (*broker).stop, "crash": (*broker).crash} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{Dir: t.TempDir()})
			v := b.connect()
			u := open(t, v, lease.SessionOptions{})
			l := u.ask(one("k")).ok()
			old, young := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
			first := old.ask(lease.Request{ID: "first", Keys: []string{"k"}})
			first.pending()
			time.Sleep(5 * time.Second)
			second := young.ask(lease.Request{ID: "second", Keys: []string{"k"}})
			second.pending()
			end(b)
			time.Sleep(time.Second)
			b.start()
			time.Sleep(2 * time.Second)
			first.pending()
			second.pending()
			if got := b.holders("k"); len(got) != 1 || got[0] != l.Token() {
				t.Fatalf("%s: holders %v, want %v", name, got, l.Token())
			}
			if n := u.notices(); len(n) != 0 {
				t.Fatalf("%s: notices %+v, want none", name, n)
			}
			u.do(lease.Command{Verb: lease.Release, ID: l.ID}).ok()
			next := first.ok()
			second.pending()
			if next.Token() <= l.Token() {
				t.Fatalf("%s: token %d after %d", name, next.Token(), l.Token())
			}
			old.do(lease.Command{Verb: lease.Release, ID: "first"}).ok()
			second.ok()
		})
	}
}

// A broker that keeps nothing loses the holds, which is told, and the waiters
// come again to a session with another id.
func TestMemoryRestart(t *testing.T) {
	for name, end := range map[string]func(*broker){"in order": (*broker).stop, "crash": (*broker).crash} {
		bubble(t, func(t *testing.T) {
			b := newBroker(t, leaselocal.Options{})
			v := b.connect()
			u, w := open(t, v, lease.SessionOptions{}), open(t, v, lease.SessionOptions{})
			l := u.ask(one("k")).ok()
			wait := w.ask(lease.Request{ID: "w", Keys: []string{"k"}})
			wait.pending()
			id := u.s.ID()
			end(b)
			synctest.Wait()
			release := u.do(lease.Command{Verb: lease.Release, ID: l.ID})
			renew := u.do(lease.Command{Verb: lease.Renew, ID: l.ID})
			time.Sleep(time.Second / 2)
			b.start()
			if got := wait.ok(); got.Token() <= l.Token() {
				t.Fatalf("%s: token %d after %d", name, got.Token(), l.Token())
			}
			// Never sent, so the hold was lost before it was released.
			release.fails(lease.ErrSessionLost)
			renew.fails(lease.ErrSessionLost)
			time.Sleep(time.Second)
			if n := u.notices(); len(n) != 1 || n[0].Code != lease.ErrSessionLost || n[0].Token != l.Token() {
				t.Fatalf("%s: notices %+v, want the loss", name, n)
			}
			if u.s.ID() == id || u.s.ID() == "" {
				t.Fatalf("%s: session %q was %q", name, u.s.ID(), id)
			}
			u.ask(lease.Request{Keys: []string{"other"}}).ok()
		})
	}
}

// The answer to a release is lost, and then the broker and all it knew: the end
// of the session did what was asked for.
func TestLostReleaseAndRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		u := open(t, b.connect(), lease.SessionOptions{})
		l := u.ask(one("k")).ok()
		b.once(drop, true, `"id":"id-k"`)
		release := u.do(lease.Command{Verb: lease.Release, ID: l.ID})
		release.pending()
		b.crash()
		b.start()
		release.ok()
		time.Sleep(time.Second)
		if n := u.notices(); len(n) != 0 {
			t.Fatalf("notices %+v about what was released", n)
		}
	})
}

// A detached hold outlives the session; a request that wanted to be detached and
// whose grant nobody was told of is not left behind in its own way.
func TestDetachedAcrossSessions(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		u := open(t, b.connect(), lease.SessionOptions{Grace: lease.NoGrace})
		b.once(cutThere, true, `"token"`)
		l := u.ask(lease.Request{ID: "d", Keys: []string{"k"}, Detach: true, TTL: lease.Forever}).ok()
		if got := b.holders("k"); len(got) != 1 || got[0] != l.Token() {
			t.Fatalf("holders %v, want %v", got, l.Token())
		}
		// The detach is carried out, its answer is lost, and the session ends.
		u.ask(one("x")).ok()
		b.once(cutThere, true, `"id":"id-x"`)
		u.do(lease.Command{Verb: lease.Detach, ID: "id-x"}).ok()
		// The detach never arrives, and the session ends: that is a loss.
		y := u.ask(one("y")).ok()
		b.once(cutThere, false, `"detach"`)
		u.do(lease.Command{Verb: lease.Detach, ID: "id-y"}).fails(lease.ErrNotHeld)
		synctest.Wait()
		if n := u.notices(); len(n) != 1 || n[0].Token != y.Token() || n[0].Code != lease.ErrSessionLost {
			t.Fatalf("notices %+v, want the loss of %d", n, y.Token())
		}
	})
}
