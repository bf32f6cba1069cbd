package leasetest

import (
	"sync"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// settling checks that a session is told when its callbacks are over: a front
// end holds back what they bring until then.
func settling() []test {
	return []test{
		{"AfterEveryCallback", settledAfterCallbacks},
		{"AfterResume", settledAfterResume},
	}
}

// outbox is a front end that sends when it is told that callbacks are over.
type outbox struct {
	mu              sync.Mutex // guards what follows
	brought, unsent int
}

func (o *outbox) bring() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.brought++
	o.unsent++
}

func (o *outbox) Queued(lease.Queued)     { o.bring() }
func (o *outbox) Done(lease.Lease, error) { o.bring() }
func (o *outbox) done(lease.Lease, error) { o.bring() }
func (o *outbox) notice(lease.Notice)     { o.bring() }

func (o *outbox) settled() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.unsent = 0
}

// take returns what came since it was called last, and what is unsent.
func (o *outbox) take() (brought, unsent int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	brought, o.brought = o.brought, 0
	return brought, o.unsent
}

func (o *outbox) options() lease.SessionOptions {
	return lease.SessionOptions{Name: "front end", Grace: time.Minute, Notify: o.notice, Settled: o.settled}
}

// Whatever comes back, from whichever cause, nothing is left unsent.
func settledAfterCallbacks(e *env) {
	o := &outbox{}
	s, err := e.svc.Open(e.ctx, o.options())
	if err != nil {
		e.Fatal(err)
	}
	check := func(what string, want int) {
		e.Helper()
		synctest.Wait()
		e.pass(slack)
		if brought, unsent := o.take(); unsent != 0 || brought < want {
			e.Fatalf("%s: %d callbacks came, want %d; %d since the session was told that they are over", what, brought, want, unsent)
		}
	}
	s.Acquire(lease.Request{ID: "a", Keys: []string{"k"}, TTL: time.Minute}, o)
	check("a grant", 1)
	s.Acquire(lease.Request{ID: "bad", Keys: nil}, o)
	check("a refusal", 1)
	s.Acquire(lease.Request{ID: "b", Keys: []string{"k"}, Wait: 100 * time.Millisecond}, o)
	check("a queued request", 1)
	e.pass(time.Second)
	check("its timeout", 1)
	for range 10 {
		s.Do(lease.Command{Verb: lease.Renew, ID: "a"}, o.done)
	}
	check("a burst of renewals", 10)
	e.force(lease.ForceRequest{Key: "k"})
	check("a loss", 1)
	s.Do(lease.Command{Verb: lease.Release, ID: "a"}, o.done)
	check("a release of nothing", 1)
	// A hand-over comes from the work of another session.
	other := e.join("other")
	l := other.hold("k")
	s.Acquire(lease.Request{ID: "c", Keys: []string{"k"}, TTL: time.Minute}, o)
	check("a queued request", 1)
	other.release(l)
	check("a hand-over", 1)
	s.Acquire(lease.Request{ID: "d", Keys: []string{"k"}}, o)
	check("a queued request", 1)
	e.svc.Close()
	check("the end of the service", 1)
}

// Who takes a session over is told from then on.
func settledAfterResume(e *env) {
	first, second := &outbox{}, &outbox{}
	s, err := e.svc.Open(e.ctx, first.options())
	if err != nil {
		e.Fatal(err)
	}
	synctest.Wait()
	id := s.ID()
	s.Suspend()
	o := second.options()
	o.Resume = id
	s, err = e.svc.Open(e.ctx, o)
	if err != nil {
		e.Fatal(err)
	}
	s.Acquire(lease.Request{ID: "a", Keys: []string{"k"}}, second)
	synctest.Wait()
	e.pass(slack)
	brought, unsent := second.take()
	if early, _ := first.take(); brought != 1 || unsent != 0 || early != 0 {
		e.Fatalf("the second connection got %d callbacks, %d unsent, the first %d", brought, unsent, early)
	}
	s.Close(nil)
}
