package actor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/actor"
	"github.com/latchkey-go/latchkey/internal/held"
)

var errTest = errors.New("the test's own error")

// Each way to send reaches the owner, with its answer.
func TestWays(t *testing.T) {
	ctx := context.Background()
	o := counting(t, actor.Options{})
	must(t, o.Tell(ctx, add))
	must(t, o.TryTell(add))
	must(t, o.Do(ctx, add))
	wantIs(t, "Do", o.Do(ctx, func(*counter) error { return errTest }), errTest)
	if n, err := actor.TryAsk(ctx, o, func(c *counter) (int, error) { return c.n, errTest }); n != 3 || !errors.Is(err, errTest) {
		t.Errorf("TryAsk: %d, %v; want 3 and the function's error", n, err)
	}
	f, err := actor.Send(ctx, o, func(c *counter) (string, error) { return fmt.Sprint(c.n), errTest })
	must(t, err)
	for range 2 {
		if s, err := f.Wait(ctx); s != "3" || !errors.Is(err, errTest) {
			t.Errorf("Wait: %q, %v; want 3 and the function's error", s, err)
		}
	}
	<-f.Done()
	f2, err := actor.TrySend(o, func(c *counter) (int, error) { return c.n, nil })
	must(t, err)
	if n, err := f2.Wait(ctx); n != 3 || err != nil {
		t.Errorf("Wait: %d, %v; want 3", n, err)
	}
}

// The constructor runs on the goroutine that runs the messages, and how it ends comes
// back to the caller.
func TestConstructor(t *testing.T) {
	ctx := context.Background()
	var made held.Frame
	o, err := actor.New(ctx, func() (*counter, error) {
		made = held.Who().Top()
		return new(counter), nil
	}, actor.Options{})
	must(t, err)
	must(t, o.Do(ctx, func(*counter) error {
		if top := held.Who().Top(); top != made || top.Kind != held.Actor {
			t.Errorf("made inside of %v, a message runs inside of %v", made, top)
		}
		return nil
	}))
	closed(t, o)

	_, err = actor.New(ctx, func() (*counter, error) { return nil, errTest }, actor.Options{})
	wantIs(t, "an error", err, errTest)
	_, err = actor.New(ctx, func() (*counter, error) { return nil, nil }, actor.Options{})
	if err == nil {
		t.Error("nil and no error is taken for an object")
	}
	_, err = actor.New(ctx, func() (*counter, error) { panic(errTest) }, actor.Options{})
	var p *actor.PanicError
	if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "TestConstructor") || !errors.Is(err, errTest) {
		t.Errorf("a panic: %v, want a PanicError with the stack", err)
	}
	_, err = actor.New(ctx, func() (*counter, error) { runtime.Goexit(); return nil, nil }, actor.Options{})
	wantIs(t, "Goexit", err, actor.ErrGoexit)
	for _, n := range []int{-1, actor.MaxMailbox + 1} {
		if _, err := actor.New(ctx, newCounter, actor.Options{Mailbox: n}); err == nil {
			t.Errorf("a mailbox for %d is accepted", n)
		}
		if _, err := actor.NewMap(map[int]int{}, actor.Options{Mailbox: n}); err == nil {
			t.Errorf("a mailbox for %d is accepted", n)
		}
	}
}

// When the context ends before the constructor does, the caller leaves, and the owner
// ends as soon as it is made.
func TestConstructorGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := actor.New(ctx, func() (*counter, error) {
			time.Sleep(time.Minute)
			return new(counter), nil
		}, actor.Options{})
		wantIs(t, "New", err, context.DeadlineExceeded)
		if d := time.Since(start); d != time.Second {
			t.Errorf("New took %v, want 1s", d)
		}
		_, err = actor.New(ctx, func() (*counter, error) {
			t.Error("run although the context had ended")
			return nil, nil
		}, actor.Options{})
		wantIs(t, "New", err, context.DeadlineExceeded)
		time.Sleep(time.Hour)
	}) // and the bubble fails if a goroutine is left
}

// Messages of one sender run in its order, whatever way they are sent, and whether or
// not they had to wait for room.
func TestOrder(t *testing.T) {
	const senders, each = 4, 2000
	for _, size := range []int{1, 3, 128} {
		ctx := context.Background()
		type log struct{ next [senders]int }
		o, err := actor.New(ctx, func() (*log, error) { return new(log), nil }, actor.Options{Mailbox: size})
		must(t, err)
		var wg sync.WaitGroup
		for s := range senders {
			wg.Go(func() {
				for i := range each {
					fn := func(l *log) error {
						if l.next[s] != i {
							return fmt.Errorf("message %d of sender %d runs when %d is due", i, s, l.next[s])
						}
						l.next[s]++
						return nil
					}
					var err error
					switch (i + s) % 7 {
					case 0:
						err = o.Do(ctx, fn)
					case 1:
						for err = actor.ErrFull; errors.Is(err, actor.ErrFull); {
							err = o.TryTell(fn)
							runtime.Gosched()
						}
					case 2:
						_, err = actor.Send(ctx, o, func(l *log) (int, error) { return 0, fn(l) })
					default:
						err = o.Tell(ctx, fn)
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		done, err := actor.Ask(ctx, o, func(l *log) ([senders]int, error) { return l.next, nil })
		must(t, err)
		if want := [senders]int{each, each, each, each}; done != want {
			t.Errorf("mailbox for %d: %v messages were in order, want %v", size, done, want)
		}
		closed(t, o)
	}
}

// A mailbox holds what it is said to, beside the message that runs.
func TestFull(t *testing.T) {
	for _, size := range []int{0, 1, 5, 8} {
		synctest.Test(t, func(t *testing.T) {
			o := counting(t, actor.Options{Mailbox: size})
			want := size
			if size == 0 {
				want = actor.DefaultMailbox
			}
			release := hold(t, o)
			for range want {
				must(t, o.TryTell(add))
			}
			wantIs(t, "TryTell", o.TryTell(add), actor.ErrFull)
			_, err := actor.TrySend(o, func(*counter) (int, error) { return 0, nil })
			wantIs(t, "TrySend", err, actor.ErrFull)
			_, err = actor.TryAsk(t.Context(), o, func(*counter) (int, error) { return 0, nil })
			wantIs(t, "TryAsk", err, actor.ErrFull)

			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errTest)
			defer cancel()
			for name, err := range map[string]error{"Tell": o.Tell(ctx, add), "Do": o.Do(ctx, add)} {
				wantIs(t, name, err, context.DeadlineExceeded)
				if ctx.Err() != nil && name == "Tell" {
					wantIs(t, name, err, errTest)
				}
				if errors.Is(err, actor.ErrUnknown) {
					t.Errorf("%s: %v, but it was not run", name, err)
				}
			}
			release()
			if n := value(t, o); n != want {
				t.Errorf("%d messages were run, want %d", n, want)
			}
		})
	}
}

// Those who wait for room get it in the order in which they came; nobody overtakes.
func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := counting(t, actor.Options{Mailbox: 2})
		release := hold(t, o)
		var got []int
		note := func(i int) func(*counter) error {
			return func(*counter) error {
				got = append(got, i)
				return nil
			}
		}
		must(t, o.TryTell(note(0)))
		must(t, o.TryTell(note(1)))
		ctx, cancel := context.WithCancel(t.Context())
		for i := 2; i < 8; i++ {
			ctx := ctx
			if i != 4 {
				ctx = t.Context()
			}
			go func() {
				if i%2 == 0 {
					o.Tell(ctx, note(i))
				} else {
					o.Do(ctx, note(i))
				}
			}()
			synctest.Wait()
		}
		cancel() // of the one in the middle
		synctest.Wait()
		release()
		synctest.Wait()
		value(t, o)
		if want := "[0 1 2 3 5 6 7]"; fmt.Sprint(got) != want {
			t.Errorf("run in the order %v, want %v", got, want)
		}
	})
}

// An ask whose context ends in time is skipped; while it runs, its outcome is unknown,
// and what it returns is reported.
func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []error
		o := counting(t, actor.Options{OnError: func(err error) { reported = append(reported, err) }})
		release := hold(t, o)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := o.Do(ctx, add)
		wantIs(t, "Do", err, context.DeadlineExceeded)
		if errors.Is(err, actor.ErrUnknown) {
			t.Errorf("%v, but it was not started", err)
		}
		wantIs(t, "Do", o.Do(ctx, add), context.DeadlineExceeded)
		wantIs(t, "Tell", o.Tell(ctx, add), context.DeadlineExceeded)
		release()
		if n := value(t, o); n != 0 {
			t.Errorf("%d messages were run, want none", n)
		}

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		n, err := actor.Ask(ctx, o, func(c *counter) (int, error) {
			time.Sleep(time.Minute)
			c.n = 7
			return 7, errTest
		})
		wantIs(t, "Ask", err, context.DeadlineExceeded)
		wantIs(t, "Ask", err, actor.ErrUnknown)
		if n != 0 {
			t.Errorf("Ask returned %d from a message that runs", n)
		}
		if n := value(t, o); n != 7 {
			t.Errorf("%d, want what the message stored", n)
		}
		if len(reported) != 1 || !errors.Is(reported[0], errTest) {
			t.Errorf("reported: %v, want the error of the message that was left", reported)
		}
	})
}

// Errors that nobody waits for are told, with the owner's name; what OnError does
// itself does not end the owner.
func TestReported(t *testing.T) {
	ctx := context.Background()
	var got []error
	o := counting(t, actor.Options{Name: "till", OnError: func(err error) {
		got = append(got, err)
		if len(got) == 2 {
			panic("in OnError")
		}
		if len(got) == 3 {
			runtime.Goexit()
		}
	}})
	log := logged(t)
	must(t, o.Tell(ctx, func(*counter) error { return errTest }))
	must(t, o.Tell(ctx, func(*counter) error { panic(errTest) }))
	must(t, o.Tell(ctx, func(*counter) error { runtime.Goexit(); return nil }))
	must(t, o.Tell(ctx, func(*counter) error { return errTest }))
	value(t, o)
	if len(got) != 4 {
		t.Fatalf("%d reports, want 4: %v", len(got), got)
	}
	for i, want := range []error{errTest, errTest, actor.ErrGoexit, errTest} {
		if !errors.Is(got[i], want) || !strings.HasPrefix(got[i].Error(), "till: ") {
			t.Errorf("report %d: %v, want %v", i, got[i], want)
		}
	}
	var p *actor.PanicError
	if !errors.As(got[1], &p) || !strings.Contains(string(p.Stack), "TestReported") {
		t.Errorf("%v, want a PanicError with the stack", got[1])
	}
	if text := log.String(); !strings.Contains(text, "in OnError") || !strings.Contains(text, "Goexit") {
		t.Errorf("the log tells nothing of OnError's own failures: %s", text)
	}
}

// By default they are in the log.
func TestLogged(t *testing.T) {
	log := logged(t)
	o := counting(t, actor.Options{})
	must(t, o.TryTell(func(*counter) error { panic(errTest) }))
	value(t, o)
	for _, want := range []string{"level=ERROR", "actor_test.counter", errTest.Error(), "TestLogged"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not have %q: %s", want, log)
		}
	}
}

// logged collects the default log until the end of the test.
func logged(t *testing.T) *bytes.Buffer {
	var b bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	t.Cleanup(func() { slog.SetDefault(was) })
	return &b
}

// A message that panics or calls Goexit answers its caller, and the owner goes on with
// the state as it is.
func TestDidNotReturn(t *testing.T) {
	ctx := context.Background()
	o := counting(t, actor.Options{})
	err := o.Do(ctx, func(c *counter) error {
		c.n++
		var none *counter
		none.n = 1
		return nil
	})
	var p *actor.PanicError
	if !errors.As(err, &p) || !strings.Contains(string(p.Stack), "TestDidNotReturn") {
		t.Errorf("%v, want a PanicError with the owner's stack", err)
	}
	var re runtime.Error
	if !errors.As(err, &re) {
		t.Errorf("%v is not the panic's own error", err)
	}
	for range 100 {
		wantIs(t, "Goexit", o.Do(ctx, func(c *counter) error { c.n++; runtime.Goexit(); return nil }), actor.ErrGoexit)
	}
	f, err := actor.Send(ctx, o, func(c *counter) (int, error) { panic(1) })
	must(t, err)
	if _, err := f.Wait(ctx); !errors.As(err, &p) {
		t.Errorf("Wait: %v, want a PanicError", err)
	}
	f, err = actor.Send(ctx, o, func(c *counter) (int, error) { runtime.Goexit(); return 0, nil })
	must(t, err)
	_, err = f.Wait(ctx)
	wantIs(t, "Wait", err, actor.ErrGoexit)
	if n := value(t, o); n != 101 {
		t.Errorf("%d, want 101", n)
	}
}

// A future may be waited for more than once, and a context ends only the waiting.
func TestFutureWaitGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := counting(t, actor.Options{})
		f, err := actor.Send(t.Context(), o, func(c *counter) (int, error) {
			time.Sleep(time.Minute)
			return 5, nil
		})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = f.Wait(ctx)
		wantIs(t, "Wait", err, context.DeadlineExceeded)
		if n, err := f.Wait(t.Context()); n != 5 || err != nil {
			t.Errorf("Wait: %d, %v; want 5", n, err)
		}
	})
}

// broken is a log that panics, as a handler with a defect does.
type broken struct{ slog.Handler }

func (broken) Handle(context.Context, slog.Record) error { panic("in the log") }

// A log that panics ends neither the owner nor the process.
func TestBrokenLog(t *testing.T) {
	was := slog.Default()
	slog.SetDefault(slog.New(broken{slog.NewTextHandler(io.Discard, nil)}))
	defer slog.SetDefault(was)
	for _, onError := range []func(error){nil, func(error) { panic("in OnError") }} {
		o := counting(t, actor.Options{OnError: onError})
		must(t, o.TryTell(func(*counter) error { return errTest }))
		must(t, o.TryTell(func(*counter) error { panic(errTest) }))
		value(t, o)
	}
}
