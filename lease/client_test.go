package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// What only a client can refuse is refused before anything is sent.
func TestClientRefusesShortTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		for what, err := range map[string]error{
			"acquire": second(c.Acquire(t.Context(), request(99*time.Millisecond, "k"))),
			"hold":    second(c.Hold(t.Context(), request(time.Millisecond, "k"))),
			"do":      c.Do(t.Context(), request(time.Millisecond, "k"), nil),
			"renew":   second(c.Renew(t.Context(), "id", 50*time.Millisecond)),
			"no key":  second(c.Acquire(t.Context(), lease.Request{})),
			"bad max": second(c.Acquire(t.Context(), lease.Request{Keys: []string{"k"}, Mode: lease.Counted})),
		} {
			if !errors.Is(err, lease.ErrRefused) {
				t.Errorf("%s: %v, want refused", what, err)
			}
		}
		if _, err := c.Acquire(t.Context(), request(lease.MinClientTTL, "k")); err != nil {
			t.Errorf("the shortest ttl: %v", err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A context that has ended asks for nothing.
func TestEndedContextAsksForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		cause := errors.New("gave up")
		ctx, stop := context.WithCancelCause(t.Context())
		stop(cause)
		if _, err := c.Acquire(ctx, request(time.Minute, "k")); !errors.Is(err, lease.ErrCancelled) || !errors.Is(err, cause) {
			t.Errorf("acquire: %v, want cancelled with the cause", err)
		}
		if _, err := c.Release(ctx, "id"); !errors.Is(err, lease.ErrCancelled) || !errors.Is(err, cause) {
			t.Errorf("release: %v, want cancelled with the cause", err)
		}
		if s, _ := r.Stats(t.Context()); s.Granted != 0 {
			t.Error("something was granted")
		}
	})
}

// Cancels that race with the grant leave nothing behind, whichever comes first,
// and Acquire never reports a lease that was given back.
func TestCancelRacesGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		seed := rand.Uint64()
		rng := rand.New(rand.NewPCG(seed, 0))
		a, b := r.connect(lease.ClientOptions{}), r.connect(lease.ClientOptions{})
		granted := 0
		for i := range 300 {
			h := r.hold(a, request(time.Minute, "k"))
			ctx, stop := context.WithCancel(t.Context())
			type result struct {
				l   lease.Lease
				err error
			}
			got := make(chan result, 1)
			go func() {
				l, err := b.Acquire(ctx, request(time.Minute, "k"))
				got <- result{l, err}
			}()
			synctest.Wait()
			var wg sync.WaitGroup
			if rng.IntN(2) == 0 {
				wg.Go(stop)
				h.Release(t.Context())
			} else {
				wg.Go(func() { h.Release(t.Context()) })
				stop()
			}
			wg.Wait()
			x := <-got
			stop()
			switch {
			case x.err == nil:
				granted++
				if _, err := b.Release(t.Context(), x.l.ID); err != nil {
					t.Fatalf("seed %d: round %d: the lease was not there: %v", seed, i, err)
				}
			case !errors.Is(x.err, lease.ErrCancelled):
				t.Fatalf("seed %d: round %d: %v, want cancelled", seed, i, x.err)
			}
			if k := r.show("k"); len(k.Holders)+len(k.Waiters) != 0 {
				t.Fatalf("seed %d: round %d left %+v", seed, i, k)
			}
		}
		t.Logf("%d of 300 were granted", granted)
	})
}

// A cancel without an answer makes the outcome unknown after a second; a grant
// that comes after that is given back.
func TestUnansweredCancelIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		var deliver func()
		r.set(func() {
			r.command = only(lease.Cancel, fault{drop: true})
			r.grant = func(d func()) { deliver = d }
		})
		start := time.Now()
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		_, err := c.Acquire(ctx, request(time.Minute, "k"))
		if !errors.Is(err, lease.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 2*time.Second {
			t.Fatalf("after %v: %v, want unknown after 2s", time.Since(start), err)
		}
		r.set(func() { r.command, r.grant = nil, nil })
		if r.holders("k") != 1 {
			t.Fatal("the grant was to be on its way")
		}
		deliver()
		synctest.Wait()
		if r.holders("k") != 0 {
			t.Fatal("the grant that came late was kept")
		}
	})
}

// A cancel that failed makes the outcome unknown too, unless the request's own
// answer settles it.
func TestFailedCancelIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		h := r.hold(c, request(time.Minute, "k"))
		r.set(func() { r.command = only(lease.Cancel, fault{err: lease.ErrUnavailable}) })
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if _, err := c.Hold(ctx, request(time.Minute, "k")); !errors.Is(err, lease.ErrUnknown) {
			t.Fatalf("got %v, want unknown", err)
		}
		r.set(func() { r.command = nil })
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if k := r.show("k"); len(k.Holders)+len(k.Waiters) != 0 {
			t.Fatalf("the abandoned request left %+v", k)
		}
	})
}

// A grant whose answer came too late to act on is given back, not returned.
func TestLateGrantIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		r.set(func() { r.grant = func(d func()) { time.AfterFunc(1990*time.Millisecond, d) } })
		if _, err := c.Acquire(t.Context(), request(2*time.Second, "k")); !errors.Is(err, lease.ErrExpired) {
			t.Errorf("acquire: %v, want expired", err)
		}
		synctest.Wait()
		if r.holders("k") != 0 {
			t.Error("it was not given back")
		}
		if _, err := c.Hold(t.Context(), request(2*time.Second, "k")); !errors.Is(err, lease.ErrExpired) {
			t.Errorf("hold: %v, want expired", err)
		}
		synctest.Wait()
		if r.holders("k") != 0 {
			t.Error("it was not given back")
		}
		// Late, but not too late: renewed at once, since two thirds are gone.
		r.set(func() { r.grant = func(d func()) { time.AfterFunc(1500*time.Millisecond, d) } })
		h := r.hold(c, request(2*time.Second, "k"))
		wait(10 * time.Second)
		if h.Err() != nil {
			t.Error(h.Err())
		}
	})
}

// One id cannot be held twice by one client: each would end the other.
func TestHoldRefusesAnIDInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		q := request(time.Minute, "k")
		q.ID = "mine"
		h := r.hold(c, q)
		if _, err := c.Hold(t.Context(), q); !errors.Is(err, lease.ErrRefused) {
			t.Fatalf("got %v, want refused", err)
		}
		if h.Err() != nil || r.holders("k") != 1 {
			t.Fatal("the first was disturbed")
		}
		if l, err := c.Acquire(t.Context(), q); err != nil || l.Token() != h.Token() {
			t.Fatalf("a repeat by Acquire: %+v, %v; want the same grant", l, err)
		}
		if err := h.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Hold(t.Context(), q); !errors.Is(err, lease.ErrOver) {
			t.Fatalf("after the end: %v, want over", err)
		}
	})
}

// Waiting is told once, with the place in the queue.
func TestOnQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		told := make(chan lease.Queued, 5)
		c := r.connect(lease.ClientOptions{OnQueued: func(q lease.Queued) { told <- q }})
		h := r.hold(c, request(time.Minute, "k"))
		go func() {
			wait(time.Second)
			h.Release(context.Background())
		}()
		q := request(time.Minute, "j", "k")
		q.ID = "w"
		if _, err := c.Acquire(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if got := <-told; got.ID != "w" || got.Key != "k" || len(got.Ahead) != 1 || got.Ahead[0].Token != h.Token() {
			t.Errorf("told %+v", got)
		}
		if len(told) != 0 {
			t.Error("told more than once")
		}
	})
}

// Close ends every hold with ErrClosed, releases what is not detached, and
// answers whoever waits.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c, other := r.connect(lease.ClientOptions{}), r.connect(lease.ClientOptions{})
		h := r.hold(c, request(time.Minute, "k"))
		blocker := r.hold(other, request(time.Minute, "busy"))
		errs := make(chan error, 2)
		go func() { errs <- second(c.Acquire(t.Context(), request(time.Minute, "busy"))) }()
		go func() { errs <- second(c.Hold(t.Context(), request(time.Minute, "busy"))) }()
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, lease.ErrClosed) {
				t.Errorf("waiting: %v, want closed", err)
			}
		}
		if !errors.Is(h.Err(), lease.ErrClosed) || !errors.Is(context.Cause(h.Context()), lease.ErrClosed) {
			t.Errorf("held: %v, want closed", h.Err())
		}
		if err := h.Release(t.Context()); !errors.Is(err, lease.ErrClosed) {
			t.Errorf("release: %v, want closed", err)
		}
		if k := r.show("busy"); len(k.Waiters) != 0 || r.holders("k") != 0 {
			t.Errorf("left behind: %+v", k)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("second close: %v", err)
		}
		for what, err := range map[string]error{
			"acquire": second(c.Acquire(t.Context(), request(time.Minute, "k"))),
			"hold":    second(c.Hold(t.Context(), request(time.Minute, "k"))),
			"renew":   second(c.Renew(t.Context(), "id", 0)),
		} {
			if !errors.Is(err, lease.ErrClosed) {
				t.Errorf("%s after the close: %v, want closed", what, err)
			}
		}
		if blocker.Err() != nil {
			t.Error("another client's hold was disturbed")
		}
	})
}

// The session that was lost is replaced by one for all who ask at once.
func TestOneSessionForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var told []lease.Notice
		c := r.connect(lease.ClientOptions{SessionOptions: lease.SessionOptions{
			Name: "me", Notify: func(n lease.Notice) { told = append(told, n) },
		}})
		r.last.notify(lease.Notice{Code: lease.ErrSessionLost})
		if len(told) != 1 {
			t.Fatalf("the caller's own Notify got %+v, want the notice", told)
		}
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if _, err := c.Acquire(t.Context(), request(time.Minute, fmt.Sprint("k", i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if r.opened != 2 {
			t.Fatalf("%d sessions were opened, want 2", r.opened)
		}
	})
}

// A waiter whose session was ended is told so: it lost its place.
func TestWaiterLosesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a, b := r.connect(lease.ClientOptions{}), r.connect(lease.ClientOptions{})
		mine := r.last
		r.hold(a, request(time.Minute, "k"))
		got := make(chan error, 1)
		go func() { got <- second(b.Acquire(t.Context(), request(time.Minute, "k"))) }()
		synctest.Wait()
		mine.Session.Close(nil)
		if err := <-got; !errors.Is(err, lease.ErrClosed) && !errors.Is(err, lease.ErrSessionLost) {
			t.Fatalf("got %v, want the end of the session", err)
		}
	})
}

// Contexts declare what is held through them, outermost first, and what ended is
// not declared any more.
func TestDeclared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		if got := lease.Declared(t.Context()); got != nil {
			t.Errorf("declared %q by a plain context", got)
		}
		ctx := lease.WithDeclared(t.Context(), "out1", "out2", "out1", "")
		one, err := c.Hold(ctx, request(time.Minute, "one"))
		if err != nil {
			t.Fatal(err)
		}
		inner, stop := context.WithCancel(one.Context())
		defer stop()
		two, err := c.Hold(inner, request(time.Minute, "two"))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"out1", "out2", one.Lease().ID, two.Lease().ID}
		if got := lease.Declared(two.Context()); !slices.Equal(got, want) {
			t.Errorf("declared %q, want %q", got, want)
		}
		if _, err := c.Acquire(two.Context(), request(time.Minute, "one")); !errors.Is(err, lease.ErrDeadlock) {
			t.Errorf("asking for what is held further out: %v, want deadlock", err)
		}
		one.Release(t.Context())
		want = slices.Delete(want, 2, 3)
		if got := lease.Declared(two.Context()); !slices.Equal(got, want) {
			t.Errorf("declared %q after a release, want %q", got, want)
		}
	})
}

// A slow reader of events gets what was buffered, then one gap, then what
// happens after it.
func TestEventsGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		churn := func(n int) {
			for range n {
				l, err := c.Acquire(t.Context(), request(time.Minute, "k"))
				if err != nil {
					t.Fatal(err)
				}
				c.Release(t.Context(), l.ID)
			}
		}
		go func() {
			wait(time.Second) // the watch has begun
			c.Acquire(t.Context(), request(time.Hour, "first"))
		}()
		var got, gaps, after int
		for e, err := range lease.Events(ctx, r, lease.Query{}) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				break
			}
			switch got++; {
			case got == 1:
				churn(2000)
			case e.Kind == lease.EventGap:
				gaps++
				if got != 1026 {
					t.Errorf("the gap is event %d, want it after the 1024 that were kept", got)
				}
				churn(3)
			case gaps > 0:
				if after++; after == 6 {
					stop()
				}
			}
			if got == 1 && e.Kind != lease.EventGranted {
				t.Errorf("first event %+v", e)
			}
		}
		if gaps != 1 || after != 6 {
			t.Fatalf("%d gaps and %d events after, want 1 and 6", gaps, after)
		}
		if s, _ := r.Stats(t.Context()); s.Watches != 0 {
			t.Error("the watch goes on")
		}
	})
}

// A watch that cannot be had is the sequence's one error; a reader may stop early.
func TestEventsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		ctx, stop := context.WithCancel(t.Context())
		stop()
		n := 0
		for _, err := range lease.Events(ctx, r, lease.Query{}) {
			if n++; err == nil {
				t.Error("an event of a watch that never began")
			}
		}
		if n != 1 {
			t.Errorf("%d pairs, want one error", n)
		}
		c := r.connect(lease.ClientOptions{})
		go func() {
			wait(time.Second)
			c.Acquire(context.Background(), request(time.Minute, "k"))
		}()
		for range lease.Events(t.Context(), r, lease.Query{}) {
			break
		}
		if s, _ := r.Stats(t.Context()); s.Watches != 0 {
			t.Error("the watch goes on")
		}
	})
}

// A request whose client is closed comes to what the service made of it: a
// detached grant that was faster is returned, since it lives on.
func TestCloseAndADetachedGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		r.set(func() { r.grant = func(d func()) { time.AfterFunc(100*time.Millisecond, d) } })
		type result struct {
			l   lease.Lease
			err error
		}
		ask := func(key string, detach bool) chan result {
			got := make(chan result, 1)
			q := request(time.Minute, key)
			q.Detach = detach
			go func() {
				l, err := c.Acquire(t.Context(), q)
				got <- result{l, err}
			}()
			return got
		}
		kept, gone := ask("kept", true), ask("gone", false)
		synctest.Wait()
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if x := <-kept; x.err != nil || x.l.Token() != r.show("kept").Holders[0].Token {
			t.Errorf("detached: %+v, %v; want the grant", x.l, x.err)
		}
		if x := <-gone; !errors.Is(x.err, lease.ErrClosed) || r.holders("gone") != 0 {
			t.Errorf("not detached: %+v, %v; want closed", x.l, x.err)
		}
	})
}

// A request whose session ends without a word about it is answered within a
// second: what was not detached is gone for certain, the rest unknown.
func TestSessionEndsWithoutAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		r.set(func() {
			r.grant = func(func()) {}
			r.command = func(lease.Command) fault { return fault{drop: true} }
		})
		detached := request(time.Minute, "detached")
		detached.Detach = true
		plain, kept, renewal := make(chan error, 1), make(chan error, 1), make(chan error, 1)
		go func() { plain <- second(c.Acquire(t.Context(), request(time.Minute, "plain"))) }()
		go func() { kept <- second(c.Acquire(t.Context(), detached)) }()
		go func() { renewal <- second(c.Renew(t.Context(), "id", 0)) }()
		synctest.Wait()
		start := time.Now()
		r.last.notify(lease.Notice{Code: lease.ErrSessionLost})
		if err := <-plain; !errors.Is(err, lease.ErrSessionLost) {
			t.Errorf("acquire: %v, want session lost", err)
		}
		for _, ch := range []chan error{kept, renewal} {
			if err := <-ch; !errors.Is(err, lease.ErrUnknown) {
				t.Errorf("got %v, want unknown", err)
			}
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("answered after %v, want a second", d)
		}
	})
}

// A session that answers that it is lost is given up, unless it came back under
// the same value meanwhile.
func TestAnswersOfALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		h := r.hold(c, request(time.Minute, "k"))
		r.set(func() { r.command = only(lease.Detach, fault{err: lease.ErrSessionLost}) })
		if err := h.Detach(t.Context()); !errors.Is(err, lease.ErrSessionLost) {
			t.Errorf("detach: %v, want session lost", err)
		}
		if !errors.Is(h.Err(), lease.ErrSessionLost) || c.Session() != nil {
			t.Errorf("err %v, session %v; want it given up", h.Err(), c.Session())
		}
		if _, err := c.Detach(t.Context(), "nobody"); !errors.Is(err, lease.ErrSessionLost) {
			t.Errorf("detach: %v, want session lost", err)
		}
		r.set(func() { r.command = nil })
		r.hold(c, request(time.Minute, "k"))

		r.last.mu.Lock()
		r.last.id = "another"
		r.last.mu.Unlock()
		opened := r.opened
		r.set(func() { r.command = only(lease.Detach, fault{err: lease.ErrSessionLost}) })
		if _, err := c.Detach(t.Context(), "nobody"); !errors.Is(err, lease.ErrSessionLost) {
			t.Errorf("detach: %v, want session lost", err)
		}
		if _, err := c.Acquire(t.Context(), request(time.Minute, "k2")); err != nil || r.opened != opened {
			t.Errorf("acquire: %v after %d more sessions, want the same session to go on", err, r.opened-opened)
		}
	})
}

// A hold that was lost before Hold could return it is an error, not a hold.
func TestHoldLostBeforeItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		q := request(time.Minute, "a", "b")
		q.ID = "h"
		r.set(func() {
			r.grant = func(deliver func()) {
				deliver()
				r.last.notify(lease.Notice{ID: "h", Key: "a", Code: lease.ErrForced})
			}
		})
		_, err := c.Hold(t.Context(), q)
		if !errors.Is(err, lease.ErrForced) {
			t.Fatalf("got %v, want forced", err)
		}
		synctest.Wait()
		if r.holders("a")+r.holders("b") != 0 {
			t.Error("what was left was not given back")
		}
	})
}
