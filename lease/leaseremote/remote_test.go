package leaseremote

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// A grant arrives with a deadline that is never later than the broker's, and a
// waiter is told where it stands and granted on release.
func TestGrantAndHandOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		a, c := open(t, v, lease.SessionOptions{Name: "a"}), open(t, v, lease.SessionOptions{Name: "c"})
		start := time.Now()
		l := a.ask(one("k")).ok()
		if l.Token() == 0 || l.ID != "id-k" || l.TTL != lease.DefaultTTL || !l.Deadline.Equal(start.Add(lease.DefaultTTL)) {
			t.Fatalf("lease %+v, asked at %v", l, start)
		}
		next := c.ask(one("k"))
		next.pending()
		if len(next.queued) != 1 || len(next.queued[0].Ahead) != 1 || next.queued[0].Ahead[0].Session != "a" {
			t.Fatalf("queued %+v", next.queued)
		}
		time.Sleep(2 * time.Second)
		a.do(lease.Command{Verb: lease.Renew, Token: l.Token()}).ok()
		a.do(lease.Command{Verb: lease.Release, Token: l.Token()}).ok()
		if got := next.ok(); got.Token() <= l.Token() || got.Waited != 2*time.Second {
			t.Fatalf("after token %d: %+v", l.Token(), got)
		}
		a.do(lease.Command{Verb: lease.Release, Token: l.Token()}).fails(lease.ErrNotHeld)
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := c.notices(); len(n) != 1 || n[0].Code != lease.ErrExpired || n[0].ID != "id-k" {
			t.Fatalf("notices %+v, want the expiry", n)
		}
	})
}

// Settled is called after the callbacks of what came together, once.
func TestSettled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		var settled, told int
		s, err := b.connect().Open(t.Context(), lease.SessionOptions{Settled: func() { settled++ }})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			s.Do(lease.Command{Verb: lease.Ping}, func(lease.Lease, error) {
				told++
				if told == 3 && settled > 2 {
					t.Errorf("settled %d times before all were told", settled)
				}
			})
		}
		synctest.Wait()
		if told != 3 || settled < 1 || settled > 3 {
			t.Errorf("told %d, settled %d times", told, settled)
		}
		s.Do(lease.Command{Verb: lease.Release}, func(lease.Lease, error) { told++ }) // refused on the spot
		if told != 4 {
			t.Error("a refusal waits")
		}
	})
}
