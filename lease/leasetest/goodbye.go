package leasetest

import (
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// goodbyes checks the end of a service.
func goodbyes() []test {
	return []test{
		{"AnswersWaiters", closeAnswersWaiters},
		{"RefusesNew", closeRefusesNew},
		{"Twice", closeTwice},
		{"ClosesUnderLoad", closeUnderLoad},
	}
}

func (e *env) closeService() {
	e.Helper()
	if err := e.svc.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	synctest.Wait()
}

// Everybody who waits is answered (lockd gap 9: they were not).
func closeAnswersWaiters(e *env) {
	a, b := e.join("a"), e.join("b")
	a.hold("k")
	var calls []*call
	for range 20 {
		calls = append(calls, b.want("k"))
	}
	e.closeService()
	for _, c := range calls {
		c.failed(lease.ErrClosed)
	}
}

// After the close nothing is granted or hangs (lockd gap 13).
func closeRefusesNew(e *env) {
	a := e.join("a")
	l := a.hold("k")
	e.closeService()
	a.ask(exclusive("new")).failed(lease.ErrClosed)
	for _, v := range []lease.Verb{lease.Ping, lease.Renew, lease.Release, lease.Detach, lease.Cancel} {
		a.fails(lease.Command{Verb: v, ID: l.ID}, lease.ErrClosed)
	}
	if _, err := e.tryJoin(lease.SessionOptions{}); lease.CodeOf(err) != lease.ErrClosed {
		e.Errorf("open: %v, want closed", err)
	}
	if _, err := e.svc.List(e.ctx, lease.Query{}); lease.CodeOf(err) != lease.ErrClosed {
		e.Errorf("list: %v, want closed", err)
	}
	if _, err := e.svc.Watch(e.ctx, lease.Query{}, func(lease.Event) {}); lease.CodeOf(err) != lease.ErrClosed {
		e.Errorf("watch: %v, want closed", err)
	}
	if _, err := e.svc.Force(e.ctx, lease.ForceRequest{Key: "k"}); lease.CodeOf(err) != lease.ErrClosed {
		e.Errorf("force: %v, want closed", err)
	}
	if _, err := e.svc.Stats(e.ctx); lease.CodeOf(err) != lease.ErrClosed {
		e.Errorf("stats: %v, want closed", err)
	}
	a.s.Suspend()
	answer := make(chan error, 1)
	a.s.Close(func(err error) { answer <- err })
	<-answer
}

// A second close is harmless (lockd gap 13: it panicked), and so is one at the
// same time.
func closeTwice(e *env) {
	done := make(chan error, 3)
	for range 3 {
		go func() { done <- e.svc.Close() }()
	}
	for range 3 {
		if err := <-done; err != nil {
			e.Errorf("close: %v", err)
		}
	}
	e.closeService()
}

// A close in the middle of traffic: every call is answered, once.
func closeUnderLoad(e *env) {
	const callers = 8
	finished := make(chan error, callers)
	for range callers {
		p := e.join("a")
		go func() {
			for {
				got := make(chan error, 1)
				p.s.Acquire(lasting(time.Minute, exclusive("k")), outcome(got))
				if err := <-got; err != nil {
					finished <- err
					return
				}
				// A goodbye gives the key to the next caller.
				p.s.Close(func(err error) { got <- err })
				<-got
				var err error
				if p, err = e.tryJoin(lease.SessionOptions{}); err != nil {
					finished <- err
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
	}
	time.Sleep(50 * time.Millisecond)
	if err := e.svc.Close(); err != nil {
		e.Errorf("close: %v", err)
	}
	for range callers {
		if err := <-finished; lease.CodeOf(err) != lease.ErrClosed && lease.CodeOf(err) != lease.ErrSessionLost {
			e.Errorf("a caller ended with %v, want closed", err)
		}
	}
}

// outcome is a caller that only wants to know how it ended.
type outcome chan error

func (o outcome) Queued(lease.Queued) {}

func (o outcome) Done(_ lease.Lease, err error) { o <- err }
