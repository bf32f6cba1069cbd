package locked

import (
	"context"
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

var errNo = errors.New("no")

// endings are the ways for a function to fail.
var endings = map[string]func() error{
	"error":  func() error { return errNo },
	"panic":  func() error { panic(errNo) },
	"goexit": func() error { runtime.Goexit(); return nil },
}

// ended runs a call in a goroutine of its own and returns what became of it: its error, or
// what it panicked with, or nil when it returned nil or left by Goexit.
func ended(call func() error) (out error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				out, _ = p.(error)
			}
		}()
		out = call()
	}()
	<-done
	return out
}

// A function that fails stores nothing and leaves nothing locked.
func TestVarFailingUpdate(t *testing.T) {
	for name, fail := range endings {
		t.Run(name, func(t *testing.T) {
			v := NewVar(1)
			err := ended(func() error {
				x, err := v.Update(func(old int) (int, error) { return 2, fail() })
				if x != 0 {
					t.Errorf("a failing update returns %d", x)
				}
				return err
			})
			if name != "goexit" && err != errNo {
				t.Errorf("the caller gets %v, want %v", err, errNo)
			}
			if got := v.Load(); got != 1 {
				t.Errorf("value %d, want 1", got)
			}
			if x, err := v.Update(func(old int) (int, error) { return old + 1, nil }); x != 2 || err != nil {
				t.Errorf("afterwards an update gives %d, %v", x, err)
			}
		})
	}
}

// The whole function of an update is one step for Load, and Peek does not see it.
func TestVarReadsDuringUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVar("old")
		leave := make(chan struct{})
		go v.Update(func(string) (string, error) { <-leave; return "new", nil })
		synctest.Wait()
		if got := v.Peek(); got != "old" {
			t.Errorf("Peek sees %q during an update", got)
		}
		if got := v.String(); got != "old" {
			t.Errorf("String is %q during an update", got)
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if got := v.Load(); got != "new" {
					t.Errorf("Load sees %q during an update", got)
				}
			})
			wg.Go(func() {
				if got, err := v.LoadContext(t.Context()); got != "new" || err != nil {
					t.Errorf("LoadContext sees %q, %v during an update", got, err)
				}
			})
		}
		synctest.Wait()
		close(leave)
		wg.Wait()
	})
}

// A context ends the wait for an update in flight, and the function does not run.
func TestVarContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVar(1)
		leave := make(chan struct{})
		go v.Update(func(int) (int, error) { <-leave; return 2, nil })
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := v.LoadContext(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("LoadContext: %v", err)
		}
		ran := func(int) (int, error) { t.Error("the function runs though its caller gave up"); return 0, nil }
		if _, err := v.UpdateContext(ctx, ran); !errors.Is(err, context.Canceled) {
			t.Errorf("UpdateContext: %v", err)
		}
		close(leave)
		synctest.Wait()
		if _, err := v.UpdateContext(ctx, ran); !errors.Is(err, context.Canceled) {
			t.Errorf("UpdateContext with an ended context of what is free: %v", err)
		}
		if got := v.Load(); got != 2 {
			t.Errorf("value %d, want 2", got)
		}
	})
}

// The zero Var holds the zero value, of any type.
func TestVarZero(t *testing.T) {
	var p Var[*int]
	var s Var[struct{ a, b, c string }]
	if p.Load() != nil || s.Load() != (struct{ a, b, c string }{}) {
		t.Errorf("the zero Vars hold %v, %v", &p, &s)
	}
	x := 3
	p.Update(func(*int) (*int, error) { return &x, nil })
	if p.Load() != &x {
		t.Error("a pointer is not what was stored")
	}
}

type celsius float32

// Numbers of any size and kind can be added to, replaced in between, and overflow as Go's do.
func TestAdd(t *testing.T) {
	var f Var[celsius]
	if Add(&f, 1.5); Add(&f, 1) != 2.5 {
		t.Errorf("a float has %v", f.Load())
	}
	small := NewVar[int8](math.MaxInt8)
	if got := Add(small, 1); got != math.MinInt8 || small.Peek() != got {
		t.Errorf("an int8 has %d", got)
	}
	big := NewVar[uint64](7)
	Add(big, math.MaxUint64)
	big.Update(func(n uint64) (uint64, error) { return n * 2, nil })
	if got := Add(big, 1); got != 13 || big.Load() != 13 {
		t.Errorf("a uint64 has %d, want 13", got)
	}
}

// A number that was added to stays in its word: a reader that has seen the pointer to it and
// reads the word later must not be ahead of another reader that comes after it.
func TestNumbersStayInTheirWord(t *testing.T) {
	v := NewVar(1)
	Add(v, 1)
	p := v.cell.p.Load()
	v.Update(func(n int) (int, error) { return n + 1, nil })
	if v.cell.p.Load() != p || v.cell.number() != 3 {
		t.Errorf("after an update the word has %d, and the pointer has moved: %v", v.cell.number(), v.cell.p.Load() != p)
	}
}

// No addition is lost beside updates, and readers never see a number fall.
func TestAddBesideUpdates(t *testing.T) {
	var v Var[int64]
	var wg sync.WaitGroup
	const rounds = 5000
	for range 2 {
		wg.Go(func() {
			for range rounds {
				Add(&v, 1)
			}
		})
		wg.Go(func() {
			for range rounds {
				v.Update(func(n int64) (int64, error) { return n + 1, nil })
			}
		})
		wg.Go(func() {
			last := int64(0)
			for range rounds {
				for _, now := range []int64{v.Peek(), v.Load()} {
					if now < last {
						t.Errorf("%d is seen after %d", now, last)
					}
					last = now
				}
			}
		})
	}
	wg.Wait()
	if got := v.Load(); got != 4*rounds {
		t.Errorf("value %d, want %d", got, 4*rounds)
	}
}

// Stored values cost an allocation each, numbers that are added to and reads cost none.
func TestVarAllocations(t *testing.T) {
	var v Var[record]
	var n Var[int]
	for name, c := range map[string]struct {
		want float64
		call func()
	}{
		"Peek":   {0, func() { v.Peek() }},
		"Load":   {0, func() { v.Load() }},
		"Update": {1, func() { v.Update(next) }},
		"Store":  {1, func() { v.Store(record{}) }},
		"Add":    {0, func() { Add(&n, 1) }},
	} {
		if got := testing.AllocsPerRun(100, c.call); got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
	}
}

// Store waits for an update in flight, so that it is not lost in it, and for numbers too.
func TestVarStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := new(Var[int])
		v.Store(5)
		if got := v.Load(); got != 5 {
			t.Errorf("stored 5, got %d", got)
		}
		leave, stored := make(chan struct{}), false
		go v.Update(func(n int) (int, error) { <-leave; return n + 1, nil })
		synctest.Wait()
		go func() { v.Store(10); stored = true }()
		synctest.Wait()
		if stored {
			t.Error("Store did not wait for the update in flight")
		}
		close(leave)
		synctest.Wait()
		if got := v.Load(); got != 10 {
			t.Errorf("after an update and a Store the value is %d, want 10", got)
		}
		if got := Add(v, 1); got != 11 {
			t.Errorf("a Store and an Add make %d, want 11", got)
		}
		v.Store(3)
		if got := v.Peek(); got != 3 {
			t.Errorf("a number that was added to is %d after Store(3)", got)
		}
	})
}
