package actor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/actor"
)

// Close runs what is queued, refuses the rest, and may be called again.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		o, err := actor.New(ctx, newCounter, actor.Options{Mailbox: 2})
		must(t, err)
		release := hold(t, o)
		must(t, o.Tell(ctx, add))
		f, err := actor.Send(ctx, o, func(c *counter) (int, error) { c.n++; return c.n, nil })
		must(t, err)
		refused := make(chan error, 3)
		go func() { refused <- o.Tell(ctx, add) }()
		go func() { refused <- o.Do(ctx, add) }()
		go func() {
			_, err := actor.Send(ctx, o, func(*counter) (int, error) { return 0, nil })
			refused <- err
		}()
		synctest.Wait()

		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		wantIs(t, "Close", o.Close(short), context.DeadlineExceeded)
		for range 3 {
			wantIs(t, "a waiting sender", <-refused, actor.ErrClosed)
		}
		for name, err := range map[string]error{"Tell": o.Tell(ctx, add), "TryTell": o.TryTell(add), "Do": o.Do(ctx, add)} {
			wantIs(t, name, err, actor.ErrClosed)
		}
		closing := make(chan error)
		for range 2 {
			go func() { closing <- o.Close(ctx) }()
		}
		synctest.Wait()
		release()
		must(t, <-closing)
		must(t, <-closing)
		if n, err := f.Wait(ctx); n != 2 || err != nil {
			t.Errorf("%d, %v; want 2 from a message that was queued", n, err)
		}
		must(t, o.Close(ctx))
		wantIs(t, "Do", o.Do(ctx, add), actor.ErrClosed)
	})
}

// A message that panics or calls Goexit while the owner closes does not keep the rest
// from being answered.
func TestCloseWithFailures(t *testing.T) {
	ctx := context.Background()
	for range 100 {
		o, err := actor.New(ctx, newCounter, actor.Options{OnError: func(error) {}})
		must(t, err)
		release := hold(t, o)
		must(t, o.TryTell(func(*counter) error { panic("a") }))
		must(t, o.TryTell(func(*counter) error { runtime.Goexit(); return nil }))
		f, err := actor.TrySend(o, func(*counter) (int, error) { runtime.Goexit(); return 0, nil })
		must(t, err)
		go release()
		must(t, o.Close(ctx))
		_, err = f.Wait(ctx)
		wantIs(t, "Wait", err, actor.ErrGoexit)
	}
}

// Whenever Close comes, everybody gets exactly one answer, and it is true: what was
// accepted was run once, what was refused was not.
func TestCloseAtRandomMoments(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	for range rounds {
		closeOnce(t)
	}
}

func closeOnce(t *testing.T) {
	ctx := context.Background()
	o, err := actor.New(ctx, newCounter, actor.Options{Mailbox: 1 + rand.IntN(4), OnError: func(error) {}})
	must(t, err)
	var sent, accepted, unknown, ran atomic.Int64
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for {
				how := rand.IntN(6)
				var once atomic.Int32
				fn := func(*counter) error {
					if once.Add(1) != 1 {
						t.Error("a message was run twice")
					}
					ran.Add(1)
					switch how {
					case 1:
						runtime.Goexit()
					case 2:
						panic("in a message")
					}
					return nil
				}
				err := sendSomehow(ctx, o, fn)
				sent.Add(1)
				var p *actor.PanicError
				switch {
				case err == nil, errors.Is(err, actor.ErrGoexit), errors.As(err, &p):
					accepted.Add(1)
				case errors.Is(err, actor.ErrUnknown):
					unknown.Add(1)
					accepted.Add(1)
				case errors.Is(err, actor.ErrClosed):
					return
				case !errors.Is(err, actor.ErrFull) && !errors.Is(err, context.Canceled):
					t.Errorf("an answer that nobody expects: %v", err)
				}
			}
		})
	}
	for range rand.IntN(200) {
		runtime.Gosched()
	}
	must(t, o.Close(ctx))
	wg.Wait()
	if ran.Load() != accepted.Load() {
		t.Errorf("%d messages were accepted (%d of them left while they ran) and %d were run", accepted.Load(), unknown.Load(), ran.Load())
	}
}

// sendSomehow sends in one of all ways and returns what the sender was told.
func sendSomehow(ctx context.Context, o *actor.Object[counter], fn func(*counter) error) error {
	ask := func(c *counter) (int, error) { return 0, fn(c) }
	switch rand.IntN(7) {
	case 0:
		return o.Do(ctx, fn)
	case 1:
		return o.Tell(ctx, fn)
	case 2:
		return o.TryTell(fn)
	case 3:
		_, err := actor.TryAsk(ctx, o, ask)
		return err
	case 4:
		f, err := actor.Send(ctx, o, ask)
		if err != nil {
			return err
		}
		_, err = f.Wait(ctx)
		return err
	case 5:
		ctx, cancel := context.WithCancel(ctx)
		go cancel()
		return o.Do(ctx, fn)
	default:
		ctx, cancel := context.WithCancel(ctx)
		go cancel()
		return o.Tell(ctx, fn)
	}
}

// An owner that nothing refers to ends by itself, with what is in its mailbox.
func TestForgotten(t *testing.T) {
	ctx := context.Background()
	const n = 100
	var ran atomic.Int64
	start := runtime.NumGoroutine()
	for range n {
		o, err := actor.New(ctx, newCounter, actor.Options{})
		must(t, err)
		m, err := actor.NewMap[int, int](nil, actor.Options{})
		must(t, err)
		must(t, o.TryTell(func(*counter) error { ran.Add(1); return nil }))
		must(t, m.TryTell(func(map[int]int) error { ran.Add(1); return nil }))
	}
	deadline := time.Now().Add(30 * time.Second)
	for runtime.NumGoroutine() > start {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, want %d again", runtime.NumGoroutine(), start)
		}
		runtime.GC()
	}
	if ran.Load() != 2*n {
		t.Errorf("%d messages were run, want %d", ran.Load(), 2*n)
	}
}
