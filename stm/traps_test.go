package stm_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/stm"
)

// What other transactional memories for Go get wrong, one test each: a nested
// transaction hangs, a run sees half of another one (see opacity_test.go), a
// function that recovers commits all the same, watchers are left behind by a panic
// (see ends_test.go), nil interface values panic.

func TestTrapNestedOnTheSameVariable(t *testing.T) {
	v := stm.NewVar(1)
	atomically(t, func(tx stm.Tx) {
		v.Get(tx)
		atomically(t, func(tx stm.Tx) { v.Set(tx, v.Get(tx)+1) })
		v.Set(tx, v.Get(tx)+1)
	})
	want(t, v, 3)
}

// interfere changes a variable while a transaction runs.
func interfere(v *stm.Var[int], by int) {
	var wg sync.WaitGroup
	wg.Go(func() { stm.AddNow(v, by) })
	wg.Wait()
}

// A function that recovers from having lost is run again, whatever it does then:
// returns as if nothing was, fails, makes another panic of it; whether it writes or not.
func TestTrapSwallowedPanic(t *testing.T) {
	for what, after := range map[string]func() error{
		"returns": func() error { return nil },
		"fails":   func() error { return errMine },
		"panics":  func() error { panic(errMine) },
	} {
		for _, writes := range []bool{false, true} {
			a, b, c := stm.NewVar(0), stm.NewVar(0), stm.NewVar(0)
			runs, hooks := 0, 0
			err := stm.Atomically(t.Context(), func(tx stm.Tx) (err error) {
				runs++
				defer func() {
					if recover() != nil {
						err = after()
					}
				}()
				tx.AfterCommit(func() { hooks++ })
				if writes {
					c.Set(tx, runs)
				}
				a.Get(tx)
				if runs < 3 {
					interfere(a, 1)
					interfere(b, 1)
				}
				b.Get(tx)
				return nil
			})
			if err != nil || runs != 3 || hooks != 1 {
				t.Errorf("%s, writes: %v: %v after %d runs, and %d hooks; want 3 runs and one hook", what, writes, err, runs, hooks)
			}
			if writes {
				want(t, c, 3)
			}
		}
	}
}

// Retry is a value, so there is no panic that could be swallowed: to drop it is to
// decide not to wait.
func TestTrapRecoverAroundRetry(t *testing.T) {
	a, b := stm.NewVar(0), stm.NewVar(0)
	runs := 0
	err := stm.Atomically(t.Context(), func(tx stm.Tx) error {
		defer func() { _ = recover() }()
		runs++
		b.Set(tx, runs)
		if a.Get(tx) == 0 {
			var wg sync.WaitGroup
			wg.Go(func() { stm.AddNow(a, 1) })
			wg.Wait()
			return stm.Retry
		}
		return nil
	})
	if err != nil || runs != 2 {
		t.Errorf("%v after %d runs, want 2 runs", err, runs)
	}
	want(t, b, 2)
}

func TestTrapNilInterfaces(t *testing.T) {
	var zero stm.Var[error]
	v := stm.NewVar[any](nil)
	atomically(t, func(tx stm.Tx) {
		if v.Get(tx) != nil || zero.Get(tx) != nil {
			t.Error("nil is not nil")
		}
		v.Set(tx, 1)
		v.Set(tx, nil)
		zero.Set(tx, errMine)
	})
	if v.Load() != nil || zero.Load() != errMine {
		t.Errorf("the variables hold %v and %v", v.Load(), zero.Load())
	}
}

// mustPanic returns what fn panics with.
func mustPanic(t *testing.T, fn func()) (v any) {
	t.Helper()
	defer func() {
		if v = recover(); v == nil {
			t.Error("it did not panic")
		}
	}()
	fn()
	return nil
}

// A transaction that was kept is of no use, not even while another one has its memory.
func TestTxAfterItsEnd(t *testing.T) {
	v := stm.NewVar(1)
	var old stm.Tx
	atomically(t, func(tx stm.Tx) { old = tx })
	uses := map[string]func(stm.Tx){
		"Get":         func(tx stm.Tx) { v.Get(tx) },
		"Set":         func(tx stm.Tx) { v.Set(tx, 2) },
		"Add":         func(tx stm.Tx) { stm.Add(tx, v, 2) },
		"Context":     func(tx stm.Tx) { tx.Context() },
		"AfterCommit": func(tx stm.Tx) { tx.AfterCommit(func() {}) },
		"OrElse":      func(tx stm.Tx) { _ = stm.OrElse(tx, nil, nil) },
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			mustPanic(t, func() { use(old) })
			mustPanic(t, func() { use(stm.Tx{}) })
			atomically(t, func(stm.Tx) { mustPanic(t, func() { use(old) }) })
		})
	}
	// That of an attempt that lost is not that of the next one.
	var first stm.Tx
	runs := 0
	atomically(t, func(tx stm.Tx) {
		if runs++; runs == 1 {
			first = tx
			v.Get(tx)
			interfere(v, 1)
			v.Set(tx, 1)
			return
		}
		mustPanic(t, func() { v.Get(first) })
	})
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
}

// In another goroutine a transaction is refused by all that could harm it.
func TestTxInAnotherGoroutine(t *testing.T) {
	v := stm.NewVar(1)
	for name, use := range map[string]func(stm.Tx){
		"Get":         func(tx stm.Tx) { v.Get(tx) },
		"Set":         func(tx stm.Tx) { v.Set(tx, 2) },
		"AfterCommit": func(tx stm.Tx) { tx.AfterCommit(func() {}) },
		"OrElse":      func(tx stm.Tx) { _ = stm.OrElse(tx, nil, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			atomically(t, func(tx stm.Tx) {
				var wg sync.WaitGroup
				wg.Go(func() { mustPanic(t, func() { use(tx) }) })
				wg.Wait()
			})
			want(t, v, 1)
		})
	}
}

// A goroutine that a function starts is outside of the transaction.
func TestChildGoroutine(t *testing.T) {
	v, w := stm.NewVar(1), stm.NewVar(1)
	err := stm.Atomically(t.Context(), func(tx stm.Tx) error {
		v.Set(tx, 2)
		done := make(chan error)
		go func() {
			done <- stm.Atomically(context.Background(), func(tx stm.Tx) error {
				w.Set(tx, v.Get(tx)+10)
				return nil
			})
		}()
		if err := <-done; err != nil {
			t.Error(err)
		}
		return errMine
	})
	if !errors.Is(err, errMine) {
		t.Error(err)
	}
	want(t, v, 1)
	want(t, w, 11)
}
