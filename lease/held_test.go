package lease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// failures collects what OnRenewFailure was told.
type failures struct {
	mu  sync.Mutex // guards at and err
	at  []time.Time
	err []error
}

func (f *failures) add(h *lease.Held, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.err = append(f.at, time.Now()), append(f.err, err)
	if h.Err() != nil {
		f.err = append(f.err, errors.New("told after the loss"))
	}
}

func (f *failures) all() ([]time.Time, []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at, f.err
}

// lostAfter waits for the loss of a hold and returns when it came and why.
func lostAfter(h *lease.Held, start time.Time) (time.Duration, error) {
	<-h.Context().Done()
	return time.Since(start), context.Cause(h.Context())
}

// A hold is renewed each third of its ttl, by one command.
func TestHeldIsRenewedEachThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(30*time.Second, "k"))
		start := time.Now()
		wait(95 * time.Second)
		got := r.times(lease.Renew)
		if len(got) != 9 {
			t.Fatalf("%d renewals in 95s with a ttl of 30s, want 9", len(got))
		}
		for i, at := range got {
			if d := at.Sub(start); d != time.Duration(i+1)*10*time.Second {
				t.Errorf("renewal %d after %v, want %v", i, d, time.Duration(i+1)*10*time.Second)
			}
		}
		if h.Err() != nil {
			t.Fatal(h.Err())
		}
		if left := time.Until(h.Deadline()); left < 20*time.Second {
			t.Fatalf("deadline in %v, want it pushed ahead", left)
		}
	})
}

// A service that grants no ttl is not asked again without a pause.
func TestRenewalsAreSpaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(3*time.Second, "k"))
		r.set(func() { r.command = only(lease.Renew, fault{zero: true}) })
		wait(1110 * time.Millisecond)
		if n := len(r.times(lease.Renew)); n < 2 || n > 11 {
			t.Errorf("%d renewals in 110 ms, want one each 10 ms", n)
		}
		if h.Err() != nil {
			t.Error(h.Err())
		}
	})
}

// Failing renewals are told, tried again with growing pauses, and the hold is
// lost as service gone at its safe deadline: before the service ends it.
func TestFailingRenewalsAreToldBeforeTheLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var f failures
		c := r.connect(lease.ClientOptions{OnRenewFailure: f.add})
		h := r.hold(c, request(30*time.Second, "k"))
		start := time.Now()
		down := &lease.Error{Code: lease.ErrUnavailable, Reason: "down"}
		r.set(func() { r.command = only(lease.Renew, fault{err: down}) })
		d, cause := lostAfter(h, start)
		if want := 30*time.Second - lease.Margin(30*time.Second); d != want {
			t.Errorf("lost after %v, want %v", d, want)
		}
		if !errors.Is(cause, lease.ErrServiceGone) || !errors.Is(cause, down) {
			t.Errorf("cause %v, want service gone because it is down", cause)
		}
		if r.holders("k") != 1 {
			t.Error("the service ended the hold first")
		}
		at, errs := f.all()
		if len(at) < 4 || len(errs) != len(at) || at[0].Sub(start) != 10*time.Second {
			t.Fatalf("told %d failures, first after %v: %v; want the first at 10s and more", len(at), at[0].Sub(start), errs)
		}
		for i := 1; i < len(at); i++ {
			left := 30*time.Second - at[i-1].Sub(start)
			if p := at[i].Sub(at[i-1]); p < 5*time.Millisecond || p > min(5*time.Second, left/2) {
				t.Errorf("pause %d is %v with %v left, want at most 5s and half of that", i, p, left)
			}
		}
		if err := h.Release(t.Context()); !errors.Is(err, lease.ErrServiceGone) {
			t.Errorf("release: %v, want the loss", err)
		}
		if r.holders("k") != 0 {
			t.Error("the release after the loss did not give the key back")
		}
	})
}

// Renewals that nobody answers are told as late, once, and lead to the same loss.
func TestUnansweredRenewalIsToldAndLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var f failures
		h := r.hold(r.connect(lease.ClientOptions{OnRenewFailure: f.add}), request(30*time.Second, "k"))
		start := time.Now()
		r.set(func() { r.command = only(lease.Renew, fault{drop: true}) })
		d, cause := lostAfter(h, start)
		if d != 29400*time.Millisecond || !errors.Is(cause, lease.ErrServiceGone) {
			t.Errorf("lost after %v by %v, want 29.4s by service gone", d, cause)
		}
		at, errs := f.all()
		if len(at) != 1 || at[0].Sub(start) != 15*time.Second || !errors.Is(errs[0], lease.ErrUnavailable) {
			t.Errorf("told at %v: %v, want one late answer 15s after the start", at, errs)
		}
		if n := len(r.times(lease.Renew)); n != 1 {
			t.Errorf("%d renewals in flight, want 1", n)
		}
	})
}

// A service that comes back in time is a hold without a gap.
func TestRenewalRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var f failures
		h := r.hold(r.connect(lease.ClientOptions{OnRenewFailure: f.add}), request(6*time.Second, "k"))
		token := h.Token()
		for range 5 {
			r.set(func() { r.command = only(lease.Renew, fault{err: lease.ErrUnavailable}) })
			wait(3 * time.Second)
			r.set(func() { r.command = nil })
			wait(8 * time.Second)
		}
		if h.Err() != nil || h.Token() != token || r.show("k").Holders[0].Token != token {
			t.Fatalf("err %v, token %d, want %d held throughout", h.Err(), h.Token(), token)
		}
		if at, _ := f.all(); len(at) < 5 {
			t.Errorf("%d failures told, want some in each of 5 outages", len(at))
		}
	})
}

// The service's word ends a hold at once, with its reason.
func TestNoticesEndAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		h, other := r.hold(c, request(time.Minute, "k")), r.hold(c, request(time.Minute, "other"))
		if _, err := r.Force(t.Context(), lease.ForceRequest{Key: "k", By: "ops", Reason: "stuck"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		var e *lease.Error
		if cause := context.Cause(h.Context()); !errors.As(cause, &e) || e.Code != lease.ErrForced || e.Key != "k" {
			t.Errorf("cause %v, want forced on k", cause)
		}
		if got := h.Err().Error(); got != `hold "k": forced: an administrator took it away: ops: stuck` {
			t.Errorf("text %q", got)
		}
		if other.Err() != nil {
			t.Errorf("another hold was lost too: %v", other.Err())
		}
	})
}

// A notice about a token that is not the hold's is about an earlier one.
func TestStaleNoticeIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(time.Minute, "k"))
		r.last.notify(lease.Notice{ID: h.Lease().ID, Key: "k", Token: h.Token() - 1, Code: lease.ErrExpired})
		r.last.notify(lease.Notice{ID: h.Lease().ID, Key: "x", Token: h.Token(), Code: lease.ErrExpired})
		r.last.notify(lease.Notice{ID: "nobody", Key: "k", Token: h.Token(), Code: lease.ErrExpired})
		if h.Err() != nil {
			t.Fatal(h.Err())
		}
		r.last.notify(lease.Notice{ID: h.Lease().ID, Key: "k", Token: h.Token(), Code: lease.ErrExpired})
		if !errors.Is(h.Err(), lease.ErrExpired) {
			t.Fatal(h.Err())
		}
	})
}

// When a notice was lost, the next renewal says that the hold is over.
func TestRenewalFindsALossThatWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(9*time.Second, "k"))
		start := time.Now()
		r.set(func() { r.notify = func(lease.Notice) bool { return false } })
		if _, err := r.Force(t.Context(), lease.ForceRequest{Key: "k"}); err != nil {
			t.Fatal(err)
		}
		d, cause := lostAfter(h, start)
		if d != 3*time.Second || !errors.Is(cause, lease.ErrExpired) || !errors.Is(cause, lease.ErrNotHeld) {
			t.Fatalf("lost after %v by %v, want 3s by expired, not held", d, cause)
		}
	})
}

// The cap on the total hold ends it as expired, without a storm of renewals.
func TestMaxHoldEndsAsExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		q := request(3*time.Second, "k")
		q.MaxHold = 10 * time.Second
		h := r.hold(r.connect(lease.ClientOptions{}), q)
		d, cause := lostAfter(h, time.Now())
		if want := q.MaxHold - lease.Margin(q.TTL); d != want || !errors.Is(cause, lease.ErrExpired) {
			t.Errorf("lost after %v by %v, want %v by expired", d, cause, want)
		}
		if n := len(r.times(lease.Renew)); n < 8 || n > 10 {
			t.Errorf("%d renewals, want 9 or so", n)
		}
	})
}

// The end of the session ends its holds, but those that are detached: they are
// renewed through the next session.
func TestSessionLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		one, two := r.hold(c, request(time.Minute, "one")), r.hold(c, request(lease.Forever, "two"))
		detached := r.hold(c, request(9*time.Second, "detached"))
		if err := detached.Detach(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.last.Session.Close(nil)
		r.last.notify(lease.Notice{Code: lease.ErrSessionLost})
		synctest.Wait()
		for _, h := range []*lease.Held{one, two} {
			if !errors.Is(h.Err(), lease.ErrSessionLost) || h.Context().Err() == nil {
				t.Errorf("%s: %v, want session lost", h.Lease().Holds[0].Key, h.Err())
			}
		}
		if c.Session() != nil {
			t.Error("the client still shows the session that is over")
		}
		wait(30 * time.Second)
		if detached.Err() != nil || r.holders("detached") != 1 {
			t.Errorf("detached: %v, %d holders; want it renewed", detached.Err(), r.holders("detached"))
		}
		if r.opened != 2 || c.Session() == nil {
			t.Errorf("%d sessions were opened, want a second one", r.opened)
		}
		if err := detached.Release(t.Context()); err != nil {
			t.Error(err)
		}
		r.hold(c, request(time.Minute, "one"))
	})
}

// A session that is replaced under the same value is noticed by its id, whatever
// the new deadline says.
func TestReplacedSessionIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		h := r.hold(c, request(time.Minute, "k"))
		r.last.mu.Lock()
		r.last.id = "another"
		r.last.mu.Unlock()
		if !errors.Is(h.Err(), lease.ErrSessionLost) {
			t.Fatalf("err %v, want session lost", h.Err())
		}
		if h := r.hold(c, request(time.Minute, "k2")); h.Err() != nil {
			t.Fatalf("a hold of the new session: %v", h.Err())
		}
	})
}

// A lease for ever is still bound to its session: when pings stay unanswered it
// is lost at the session's deadline, and the service ends it later.
func TestForeverEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		const grace = 3 * time.Second
		c := r.connect(lease.ClientOptions{SessionOptions: lease.SessionOptions{Grace: grace}})
		h := r.hold(c, request(lease.Forever, "k"))
		wait(time.Minute)
		if h.Err() != nil {
			t.Fatalf("lost while pings are answered: %v", h.Err())
		}
		r.set(func() { r.command = func(lease.Command) fault { return fault{drop: true} } })
		start := time.Now()
		d, cause := lostAfter(h, start)
		if d < grace/3 || d > grace || !errors.Is(cause, lease.ErrServiceGone) {
			t.Errorf("lost after %v by %v, want within the grace by service gone", d, cause)
		}
		if r.holders("k") != 1 {
			t.Error("the service ended the hold before its holder knew")
		}
		wait(grace)
		if r.holders("k") != 0 {
			t.Error("the session without signs of life was kept")
		}
	})
}

// A process that stood still and wakes past the deadline is told the truth before
// any of its timers ran: by Err, and by the context (lockd gap 15: a deadline of
// the runtime may come late, so the holder looks at its own).
func TestFrozenHolderSeesItsLoss(t *testing.T) {
	for name, look := range map[string]func(h *lease.Held) bool{
		"err":     func(h *lease.Held) bool { return errors.Is(h.Err(), lease.ErrExpired) },
		"context": func(h *lease.Held) bool { return errors.Is(h.Context().Err(), context.Canceled) },
		"derived": func(h *lease.Held) bool {
			ctx, stop := context.WithCancel(h.Context())
			defer stop()
			return h.Context().Err() != nil && ctx.Err() != nil
		},
		"release": func(h *lease.Held) bool { return errors.Is(h.Release(context.Background()), lease.ErrExpired) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				h := r.hold(r.connect(lease.ClientOptions{}), request(3*time.Second, "k"))
				h.Freeze()
				r.set(func() { r.notify = func(lease.Notice) bool { return false } })
				wait(2 * time.Second)
				if h.Err() != nil {
					t.Fatalf("lost too early: %v", h.Err())
				}
				wait(time.Second)
				if !look(h) {
					t.Fatal("the loss is not seen")
				}
				if !errors.Is(context.Cause(h.Context()), lease.ErrExpired) {
					t.Fatalf("cause %v, want expired", context.Cause(h.Context()))
				}
			})
		})
	}
}

// The loss of one key is the loss of the whole; Release gives the others back.
func TestLossOfOneKeyIsTheLossOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		h := r.hold(r.connect(lease.ClientOptions{}), request(time.Minute, "a", "b", "c"))
		if _, err := r.Force(t.Context(), lease.ForceRequest{Key: "b"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !errors.Is(h.Err(), lease.ErrForced) || r.holders("a") != 1 {
			t.Fatalf("err %v, %d holders of a; want forced, with a still held", h.Err(), r.holders("a"))
		}
		if err := h.Release(t.Context()); !errors.Is(err, lease.ErrForced) {
			t.Errorf("release: %v, want the loss", err)
		}
		if r.holders("a")+r.holders("c") != 0 {
			t.Error("the other keys were not given back")
		}
		if err := h.Release(t.Context()); !errors.Is(err, lease.ErrForced) {
			t.Errorf("second release: %v, want the loss again", err)
		}
	})
}

// A release ends the context first, is safe to repeat, and says whether it was
// confirmed.
func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		h := r.hold(c, request(time.Minute, "k"))
		r.set(func() {
			r.command = func(cmd lease.Command) fault {
				if cmd.Verb == lease.Release && h.Context().Err() == nil {
					t.Error("the release was sent before the context ended")
				}
				return fault{}
			}
		})
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !errors.Is(context.Cause(h.Context()), context.Canceled) || !errors.Is(h.Err(), context.Canceled) {
			t.Errorf("cause %v, err %v, want canceled", context.Cause(h.Context()), h.Err())
		}
		if err := h.Release(t.Context()); err != nil {
			t.Errorf("second release: %v", err)
		}
		if n := len(r.times(lease.Release)); n != 1 {
			t.Errorf("%d releases were sent, want 1", n)
		}

		h = r.hold(c, request(time.Minute, "k"))
		r.set(func() { r.command = only(lease.Release, fault{drop: true}) })
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := h.Release(ctx); !errors.Is(err, lease.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("release without an answer: %v, want unknown", err)
		}
		r.set(func() { r.command = nil })
		if err := h.Release(t.Context()); err != nil || r.holders("k") != 0 {
			t.Errorf("release again: %v, %d holders", err, r.holders("k"))
		}
	})
}

// The client's own Release and Renew know of a hold that they touch.
func TestClientVerbsKnowTheHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		h := r.hold(c, request(time.Minute, "k"))
		if _, err := c.Renew(t.Context(), h.Lease().ID, 3*time.Second); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		if h.Err() != nil {
			t.Fatalf("lost after its ttl was shortened: %v", h.Err())
		}
		if _, err := c.Renew(t.Context(), h.Lease().ID, lease.Forever); err != nil {
			t.Fatal(err)
		}
		sent := len(r.times(lease.Renew))
		wait(time.Hour)
		if h.Err() != nil || len(r.times(lease.Renew)) != sent || !h.Deadline().IsZero() {
			t.Fatalf("err %v, %d renewals of a lease for ever", h.Err(), len(r.times(lease.Renew))-sent)
		}
		got, err := c.Release(t.Context(), h.Lease().ID)
		if err != nil || got.Token() != h.Token() {
			t.Fatalf("release: %+v, %v", got, err)
		}
		if !errors.Is(h.Err(), context.Canceled) || r.holders("k") != 0 {
			t.Fatalf("err %v, %d holders; want it released", h.Err(), r.holders("k"))
		}
		if _, err := c.Release(t.Context(), h.Lease().ID); !errors.Is(err, lease.ErrNotHeld) {
			t.Fatalf("release again: %v, want not held", err)
		}
	})
}

// A thousand held leases cost no goroutine.
func TestHoldsCostNoGoroutine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		before := runtime.NumGoroutine()
		for i := range 1000 {
			r.hold(c, request(30*time.Second, fmt.Sprint("k", i)))
		}
		wait(time.Minute)
		if n := runtime.NumGoroutine() - before; n > 2 {
			t.Fatalf("%d more goroutines with 1000 leases held", n)
		}
	})
}
