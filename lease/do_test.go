package lease_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

var errWork = errors.New("work failed")

// Do passes fn's word on when the lease was held throughout, and releases.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		for _, want := range []error{nil, errWork} {
			err := c.Do(t.Context(), request(time.Second, "k"), func(ctx context.Context, h *lease.Held) error {
				wait(10 * time.Second)
				if ctx.Err() != nil || h.Err() != nil || r.holders("k") != 1 {
					t.Errorf("not held while fn runs: %v %v", ctx.Err(), h.Err())
				}
				return want
			})
			if err != want {
				t.Errorf("got %v, want %v", err, want)
			}
			if r.holders("k") != 0 {
				t.Error("not released")
			}
		}
		h := r.hold(c, request(time.Minute, "k"))
		q := request(time.Minute, "k")
		q.Try = true
		err := c.Do(t.Context(), q, func(context.Context, *lease.Held) error { panic("must not run") })
		if !errors.Is(err, lease.ErrBusy) || h.Err() != nil {
			t.Errorf("busy: %v", err)
		}
	})
}

// A loss ends fn's context with the cause and is joined to what fn says.
func TestDoReportsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		for name, tt := range map[string]struct {
			say  func(ctx context.Context) error
			also error
		}{
			"nil":   {func(context.Context) error { return nil }, lease.ErrForced},
			"cause": {func(ctx context.Context) error { return context.Cause(ctx) }, lease.ErrForced},
			"ctx":   {func(ctx context.Context) error { return ctx.Err() }, context.Canceled},
			"own":   {func(context.Context) error { return errWork }, errWork},
		} {
			err := c.Do(t.Context(), request(time.Minute, "k"), func(ctx context.Context, h *lease.Held) error {
				if _, err := r.Force(t.Context(), lease.ForceRequest{Key: "k"}); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				if !errors.Is(context.Cause(ctx), lease.ErrForced) {
					t.Errorf("cause %v, want forced", context.Cause(ctx))
				}
				return tt.say(ctx)
			})
			if !errors.Is(err, lease.ErrForced) || !errors.Is(err, tt.also) {
				t.Errorf("%s: got %v, want forced and %v", name, err, tt.also)
			}
		}
	})
}

// A loss that is found only by the release is a loss too.
func TestDoFindsALossAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		r.set(func() { r.notify = func(lease.Notice) bool { return false } })
		err := c.Do(t.Context(), request(time.Minute, "k"), func(context.Context, *lease.Held) error {
			_, err := r.Force(t.Context(), lease.ForceRequest{Key: "k"})
			return err
		})
		if !errors.Is(err, lease.ErrNotHeld) {
			t.Fatalf("got %v, want not held", err)
		}
	})
}

// The end of the caller's context ends fn's; the release still happens.
func TestDoReleasesAfterItsContextEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		err := c.Do(ctx, request(time.Minute, "k"), func(ctx context.Context, h *lease.Held) error {
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) || h.Err() != nil {
				t.Errorf("cause %v, held %v; want the deadline, and the lease still held", context.Cause(ctx), h.Err())
			}
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || r.holders("k") != 0 {
			t.Fatalf("got %v with %d holders, want the deadline, and a release", err, r.holders("k"))
		}
	})
}

// A panic goes through and Goexit ends the goroutine, both after a release.
func TestDoReleasesOnPanicAndGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		for name, leave := range map[string]func(){"panic": func() { panic(errWork) }, "goexit": runtime.Goexit} {
			recovered := make(chan any, 1)
			var wg sync.WaitGroup
			wg.Add(1)
			go func() {
				defer wg.Done()
				defer func() { recovered <- recover() }()
				c.Do(t.Context(), request(time.Minute, "k"), func(context.Context, *lease.Held) error {
					leave()
					return nil
				})
				t.Errorf("%s: Do returned", name)
			}()
			wg.Wait()
			if got := <-recovered; name == "panic" && got != errWork || name == "goexit" && got != nil {
				t.Errorf("%s: recovered %v", name, got)
			}
			if r.holders("k") != 0 {
				t.Errorf("%s: not released", name)
			}
		}
	})
}

// A release whose answer is lost does not spoil work that was done under the
// lease, and does not hang.
func TestDoWithALostReleaseAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		r.set(func() { r.command = only(lease.Release, fault{mute: true}) })
		start := time.Now()
		err := c.Do(t.Context(), request(time.Minute, "k"), func(context.Context, *lease.Held) error { return nil })
		if err != nil || time.Since(start) > 6*time.Second {
			t.Fatalf("got %v after %v, want success within seconds", err, time.Since(start))
		}
	})
}

// Lead leads again after a loss, in turn with others, and ends by fn's word.
func TestLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		terms := 0
		var last lease.Token
		err := c.Lead(t.Context(), request(time.Second, "k"), func(ctx context.Context, h *lease.Held) error {
			terms++
			if h.Token() <= last || h.Err() != nil {
				t.Errorf("term %d with token %d after %d: %v", terms, h.Token(), last, h.Err())
			}
			last = h.Token()
			if terms == 4 {
				return errWork
			}
			if _, err := r.Force(t.Context(), lease.ForceRequest{Key: "k"}); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return []error{nil, errWork, context.Cause(ctx)}[terms-1]
		})
		if err != errWork || terms != 4 || r.holders("k") != 0 {
			t.Fatalf("ended with %v after %d terms, want its own error after 4", err, terms)
		}
		if err := c.Lead(t.Context(), request(time.Second, "k"), func(context.Context, *lease.Held) error { return nil }); err != nil {
			t.Fatalf("resigned with %v", err)
		}
		q := request(time.Second, "k")
		q.ID = "fixed"
		if err := c.Lead(t.Context(), q, nil); !errors.Is(err, lease.ErrRefused) {
			t.Fatalf("with an id: %v, want refused", err)
		}
	})
}

// Lead ends with its context, waiting or leading.
func TestLeadEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c, other := r.connect(lease.ClientOptions{}), r.connect(lease.ClientOptions{})
		blocker := r.hold(other, request(time.Minute, "k"))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		if err := c.Lead(ctx, request(time.Second, "k"), nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("waiting: %v, want the deadline", err)
		}
		if k := r.show("k"); len(k.Waiters) != 0 {
			t.Fatalf("left %+v", k)
		}
		blocker.Release(t.Context())
		ctx, stop = context.WithTimeout(t.Context(), 5*time.Second)
		defer stop()
		err := c.Lead(ctx, request(time.Second, "k"), func(ctx context.Context, _ *lease.Held) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.DeadlineExceeded) || r.holders("k") != 0 {
			t.Fatalf("leading: %v with %d holders, want the deadline and a release", err, r.holders("k"))
		}
	})
}

// A place in the queue that went with its session is taken up again.
func TestLeadStandsAgainAfterItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		first := r.last
		blocker := r.hold(r.connect(lease.ClientOptions{}), request(time.Minute, "k"))
		led := make(chan error, 1)
		go func() {
			led <- c.Lead(t.Context(), request(time.Second, "k"), func(context.Context, *lease.Held) error { return nil })
		}()
		synctest.Wait()
		// Taken over and ended from elsewhere: the waiter is not answered.
		first.Session.Suspend()
		back, err := r.Service.Open(t.Context(), lease.SessionOptions{Resume: first.Session.ID()})
		if err != nil {
			t.Fatal(err)
		}
		back.Close(nil)
		first.notify(lease.Notice{Code: lease.ErrSessionLost})
		wait(2 * time.Second)
		blocker.Release(t.Context())
		synctest.Wait()
		select {
		case err := <-led:
			if err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("it stands no more: %+v", r.show("k"))
		}
	})
}

// Closing the client ends Lead.
func TestLeadEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		led := make(chan error, 1)
		go func() {
			led <- c.Lead(t.Context(), request(time.Second, "k"), func(ctx context.Context, _ *lease.Held) error {
				<-ctx.Done()
				return nil
			})
		}()
		wait(5 * time.Second)
		if err := c.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-led; !errors.Is(err, lease.ErrClosed) {
			t.Fatalf("got %v, want closed", err)
		}
	})
}
