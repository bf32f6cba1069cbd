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
