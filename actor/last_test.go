package actor_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/actor"
	"github.com/latchkey-go/latchkey/internal/held"
)

// file is a state that has something open. What happens to it is noted in a log that
// outlives it.
type file struct {
	lines int
	end   func(*file) error
}

func (f *file) Close() error { return f.end(f) }

func opened(end func(*file) error) func() (*file, error) {
	return func() (*file, error) { return &file{end: end}, nil }
}

func write(f *file) error {
	f.lines++
	return nil
}

// The owner closes what it owns: once, itself, and after the last message.
func TestLastAct(t *testing.T) {
	ctx := context.Background()
	var _ io.Closer = new(file)
	calls, lines, inside := 0, 0, held.Frame{}
	o, err := actor.New(ctx, opened(func(f *file) error {
		calls, lines, inside = calls+1, f.lines, held.Who().Top()
		return nil
	}), actor.Options{})
	must(t, err)
	var message held.Frame
	must(t, o.Tell(ctx, func(f *file) error { message = held.Who().Top(); return write(f) }))
	for range 8 {
		must(t, o.Do(ctx, write))
	}
	must(t, o.Tell(ctx, write))
	for range 3 {
		must(t, o.Close(ctx))
	}
	if calls != 1 || lines != 10 {
		t.Errorf("closed %d times with %d lines, want once with 10", calls, lines)
	}
	if inside != message {
		t.Errorf("closed inside of %v, messages run inside of %v", inside, message)
	}
}

// How it went is what every Close returns, with the owner's name.
func TestLastActFails(t *testing.T) {
	ctx := context.Background()
	for name, c := range map[string]struct {
		end  func(*file) error
		want error
	}{
		"an error": {func(*file) error { return errTest }, errTest},
		"a panic":  {func(*file) error { panic(errTest) }, errTest},
		"Goexit":   {func(*file) error { runtime.Goexit(); return nil }, actor.ErrGoexit},
	} {
		o, err := actor.New(ctx, opened(c.end), actor.Options{Name: "till", OnError: func(err error) {
			t.Errorf("%s: OnError is told what Close returns: %v", name, err)
		}})
		must(t, err)
		must(t, o.Tell(ctx, write))
		for range 2 {
			err := o.Close(ctx)
			wantIs(t, name, err, c.want)
			if err != nil && !strings.HasPrefix(err.Error(), "till: ") {
				t.Errorf("%s: %v does not say whose error it is", name, err)
			}
			var p *actor.PanicError
			if name == "a panic" && (!errors.As(err, &p) || !strings.Contains(string(p.Stack), "TestLastActFails")) {
				t.Errorf("%v, want a PanicError with the stack", err)
			}
		}
	}
}

// What nobody waits for in Close goes to OnError: after Close was given up, and when the
// owner was given up while it was made.
func TestLastActUnseen(t *testing.T) {
	logged(t)
	synctest.Test(t, func(t *testing.T) {
		for _, fail := range []func(*file) error{
			func(*file) error { return errTest },
			func(*file) error { panic(errTest) },
		} {
			var got []error
			o := actor.Options{Name: "till", OnError: func(err error) {
				got = append(got, err)
				panic("in OnError, too")
			}}
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			f, err := actor.New(t.Context(), opened(fail), o)
			must(t, err)
			must(t, f.Tell(t.Context(), func(*file) error { time.Sleep(time.Minute); return nil }))
			wantIs(t, "Close", f.Close(short), context.DeadlineExceeded)
			time.Sleep(time.Hour)
			wantIs(t, "Close afterwards", f.Close(short), errTest) // the end is told rather than the context

			late, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err = actor.New(late, func() (*file, error) {
				time.Sleep(time.Minute)
				return &file{end: fail}, nil
			}, o)
			wantIs(t, "New", err, context.DeadlineExceeded)
			time.Sleep(time.Hour)
			synctest.Wait()

			if len(got) != 2 || !errors.Is(got[0], errTest) || !errors.Is(got[1], errTest) {
				t.Fatalf("reported: %v, want two errors of Close", got)
			}
			for _, err := range got {
				if strings.Count(err.Error(), "till") != 1 {
					t.Errorf("%q does not name the owner, once", err)
				}
			}
		}
	})
}

// A Close that comes to its time limit while the last act runs, and one that comes
// during it, are told how it ended.
func TestLastActTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := actor.New(t.Context(), opened(func(*file) error {
			time.Sleep(time.Minute)
			return errTest
		}), actor.Options{OnError: func(err error) { t.Errorf("OnError is told what Close returns: %v", err) }})
		must(t, err)
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wantIs(t, "Close", o.Close(short), context.DeadlineExceeded)
		wantIs(t, "Close", o.Close(t.Context()), errTest)
	})
}

// The garbage collector's end of an owner closes, too.
func TestForgottenLastAct(t *testing.T) {
	ctx := context.Background()
	got := make(chan error, 1)
	func() {
		o, err := actor.New(ctx, opened(func(*file) error { return errTest }), actor.Options{OnError: func(err error) { got <- err }})
		must(t, err)
		must(t, o.Tell(ctx, write))
	}()
	deadline := time.After(30 * time.Second)
	for {
		select {
		case err := <-got:
			wantIs(t, "OnError", err, errTest)
			return
		case <-deadline:
			t.Fatal("not closed")
		default:
			runtime.GC()
		}
	}
}

// What the last act must not wait for is refused there as in any message.
func TestLastActNested(t *testing.T) {
	ctx := context.Background()
	var a, b *actor.Object[file]
	var err error
	a, err = actor.New(ctx, opened(func(*file) error {
		wantIs(t, "an ask", a.Do(ctx, write), actor.ErrNested)
		wantIs(t, "a tell", a.TryTell(write), actor.ErrClosed)
		wantIs(t, "a close of itself", a.Close(ctx), actor.ErrNested)
		return b.Close(ctx)
	}), actor.Options{Name: "a"})
	must(t, err)
	b, err = actor.New(ctx, opened(func(*file) error { return a.Close(ctx) }), actor.Options{Name: "b"})
	must(t, err)
	soon := make(chan error, 1)
	go func() { soon <- a.Close(ctx) }()
	select {
	case err := <-soon:
		wantIs(t, "a circle of ends", err, actor.ErrNested)
	case <-time.After(time.Minute):
		t.Fatal("hangs")
	}
}

// Errors say whose they are.
func TestNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		over, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		o, err := actor.New(ctx, newCounter, actor.Options{Name: "till", Mailbox: 1, OnError: func(error) {}})
		must(t, err)
		check := func(what string, err, want error) {
			t.Helper()
			wantIs(t, what, err, want)
			if err == nil || strings.Count(err.Error(), "till") != 1 {
				t.Errorf("%s: %v does not name the owner, once", what, err)
			}
		}
		check("a panic", o.Do(ctx, func(*counter) error { panic(errTest) }), errTest)
		check("Goexit", o.Do(ctx, func(*counter) error { runtime.Goexit(); return nil }), actor.ErrGoexit)
		f, err := actor.Send(ctx, o, func(*counter) (int, error) { panic(errTest) })
		must(t, err)
		_, err = f.Wait(ctx)
		check("a future's panic", err, errTest)
		if err := o.Do(ctx, func(*counter) error { return errTest }); err != errTest {
			t.Errorf("the function's own error is %v", err)
		}

		release := hold(t, o)
		f, err = actor.TrySend(o, func(*counter) (int, error) { return 0, nil })
		must(t, err)
		check("TryTell", o.TryTell(add), actor.ErrFull)
		_, err = actor.TryAsk(ctx, o, func(*counter) (int, error) { return 0, nil })
		check("TryAsk", err, actor.ErrFull)
		_, err = f.Wait(over)
		check("Wait", err, context.DeadlineExceeded)
		check("Tell", o.Tell(over, add), context.DeadlineExceeded)
		release()

		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = o.Do(short, func(*counter) error { time.Sleep(time.Minute); return nil })
		check("Do", err, actor.ErrUnknown)
		wantIs(t, "Do", err, context.DeadlineExceeded)

		release = hold(t, o)
		must(t, o.TryTell(add))
		waiting := make(chan error, 2)
		go func() { waiting <- o.Tell(ctx, add) }()
		go func() { waiting <- o.Do(ctx, add) }()
		synctest.Wait()
		go func() { waiting <- o.Close(ctx) }()
		check("who waits for room", <-waiting, actor.ErrClosed)
		check("who waits for room", <-waiting, actor.ErrClosed)
		release()
		must(t, <-waiting)
		check("Tell", o.Tell(ctx, add), actor.ErrClosed)
		check("TryTell", o.TryTell(add), actor.ErrClosed)
		check("Do", o.Do(ctx, add), actor.ErrClosed)
		_, err = actor.Send(ctx, o, func(*counter) (int, error) { return 0, nil })
		check("Send", err, actor.ErrClosed)
	})
}

// A message that closes its own owner is told how that is done.
func TestCloseInsideMessage(t *testing.T) {
	ctx := context.Background()
	o := counting(t, actor.Options{Name: "till"})
	err := o.Do(ctx, func(*counter) error { return o.Close(ctx) })
	wantIs(t, "Close", err, actor.ErrNested)
	if err == nil || strings.Contains(err.Error(), "method directly") || !strings.Contains(err.Error(), "go o.Close(ctx)") {
		t.Errorf("%v: no advice for a message that closes its owner", err)
	}
	must(t, o.Do(ctx, func(*counter) error { go o.Close(ctx); return nil })) // the advice
}

// What is zero or nil panics, where the mistake is, and says what to do.
func TestNothing(t *testing.T) {
	ctx := context.Background()
	o := counting(t, actor.Options{Mailbox: 1})
	m, err := actor.NewMap[int, int](nil, actor.Options{})
	must(t, err)
	defer closed(t, m)
	one := func(*counter) (int, error) { return 1, nil }
	var zero actor.Object[counter]
	var zeroMap actor.Map[int, int]
	var none *actor.Object[counter]
	var owner actor.Owner[*counter]
	var future actor.Future[int]
	var noFuture *actor.Future[int]
	var noContext context.Context
	for _, c := range []struct {
		name, want string
		fn         func()
	}{
		{"zero Tell", "not made by New: use", func() { zero.Tell(ctx, add) }},
		{"zero TryTell", "not made by New: use", func() { zero.TryTell(add) }},
		{"zero Do", "not made by New: use", func() { zero.Do(ctx, add) }},
		{"zero Close", "not made by New: use", func() { zero.Close(ctx) }},
		{"zero Ask", "not made by New: use", func() { actor.Ask(ctx, &zero, one) }},
		{"zero Send", "not made by New: use", func() { actor.Send(ctx, &zero, one) }},
		{"nil Tell", "not made by New: use", func() { none.Tell(ctx, add) }},
		{"nil TrySend", "make one with actor.New", func() { actor.TrySend(owner, one) }},
		{"nil TryAsk", "make one with actor.New", func() { actor.TryAsk(ctx, owner, one) }},
		{"zero Map.Get", "not made by NewMap: use", func() { zeroMap.Get(ctx, 1) }},
		{"zero Map.Set", "not made by NewMap: use", func() { zeroMap.Set(ctx, 1, 1) }},
		{"zero Map.TryTell", "not made by NewMap: use", func() { zeroMap.TryTell(func(map[int]int) error { return nil }) }},
		{"zero Map.Close", "not made by NewMap: use", func() { zeroMap.Close(ctx) }},
		{"zero Future", "actor.Send", func() { future.Wait(ctx) }},
		{"zero Future", "actor.Send", func() { future.Done() }},
		{"nil Future", "actor.Send", func() { noFuture.Wait(ctx) }},

		{"function of Tell", "function is nil", func() { o.Tell(ctx, nil) }},
		{"function of TryTell", "function is nil", func() { o.TryTell(nil) }},
		{"function of Do", "function is nil", func() { o.Do(ctx, nil) }},
		{"function of Ask", "function is nil", func() { actor.Ask[*counter, int](ctx, o, nil) }},
		{"function of TryAsk", "function is nil", func() { actor.TryAsk[*counter, int](ctx, o, nil) }},
		{"function of Send", "function is nil", func() { actor.Send[*counter, int](ctx, o, nil) }},
		{"function of TrySend", "function is nil", func() { actor.TrySend[*counter, int](o, nil) }},
		{"function of New", "function is nil", func() { actor.New[counter](ctx, nil, actor.Options{}) }},
		{"function of Map.Tell", "function is nil", func() { m.Tell(ctx, nil) }},
		{"function of Map.Do", "function is nil", func() { m.Do(ctx, nil) }},

		{"context of Tell", "context is nil", func() { o.Tell(noContext, add) }},
		{"context of Do", "context is nil", func() { o.Do(noContext, add) }},
		{"context of Send", "context is nil", func() { actor.Send(noContext, o, one) }},
		{"context of Close", "context is nil", func() { o.Close(noContext) }},
		{"context of New", "context is nil", func() { actor.New(noContext, newCounter, actor.Options{}) }},
		{"context of Map.Get", "context is nil", func() { m.Get(noContext, 1) }},
		{"context of Wait", "context is nil", func() {
			f, err := actor.Send(ctx, o, one)
			must(t, err)
			f.Wait(noContext)
		}},
	} {
		func() {
			defer func() {
				if s, _ := recover().(string); !strings.HasPrefix(s, "actor: ") || !strings.Contains(s, c.want) {
					t.Errorf("%s: panics with %q, want something of %q", c.name, s, c.want)
				}
			}()
			c.fn()
		}()
	}
	if n := value(t, o); n != 0 {
		t.Errorf("%d messages were run, want none", n)
	}
}

// Delete is a tell: what comes after it from the same goroutine finds the key gone.
func TestMapDelete(t *testing.T) {
	ctx := context.Background()
	m, err := actor.NewMap(map[string]int{"a": 1, "b": 2}, actor.Options{})
	must(t, err)
	must(t, m.Delete(ctx, "a"))
	must(t, m.Delete(ctx, "missing"))
	if got, err := m.Copy(ctx); len(got) != 1 || got["b"] != 2 || err != nil {
		t.Errorf("%v, %v; want b alone", got, err)
	}
	closed(t, m)
	wantIs(t, "Delete", m.Delete(ctx, "b"), actor.ErrClosed)
}
