package stm

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// waitUntil runs a transaction that waits until the variables add up to n.
func waitUntil(ctx context.Context, n int, vars ...*Var[int]) (runs int, err error) {
	err = Atomically(ctx, func(tx Tx) error {
		runs++
		sum := 0
		for _, v := range vars {
			sum += v.Get(tx)
		}
		if sum < n {
			return fmt.Errorf("only %d: %w", sum, Retry)
		}
		return nil
	})
	return runs, err
}

// Retry runs the function again when what it has read has changed, and only then.
func TestRetryWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, w, other := NewVar(0), NewVar(0), NewVar(0)
		var runs int
		done := make(chan error, 1)
		go func() {
			var err error
			runs, err = waitUntil(context.Background(), 3, v, w)
			done <- err
		}()
		step := func(what *Var[int], wantRuns int) {
			t.Helper()
			synctest.Wait()
			if runs := int(what.core.waiters.Load().n.Load()); runs != 1 {
				t.Errorf("%d wait, want 1", runs)
			}
			AddNow(what, 1)
			synctest.Wait()
		}
		step(v, 2)
		AddNow(other, 1)
		step(w, 3)
		mustCommit(t, func(tx Tx) { w.Set(tx, 2) })
		if err := <-done; err != nil || runs != 4 {
			t.Errorf("%v after %d runs, want 4", err, runs)
		}
		clean(t, v, w, other)
	})
}

// One change wakes all who wait for it, and each of many changes is noticed.
func TestRetryWakesAll(t *testing.T) {
	for range 50 {
		v := NewVar(0)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := waitUntil(context.Background(), i%5+1, v); err != nil {
					t.Error(err)
				}
			})
		}
		for range 5 {
			wg.Go(func() { mustCommit(t, func(tx Tx) { Add(tx, v, 1) }) })
		}
		wg.Wait()
		clean(t, v)
	}
}

// Every value that is handed over arrives: a full variable makes the giver wait, an
// empty one the taker.
func TestHandOver(t *testing.T) {
	const n = 3000
	var slot Var[int]
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range n {
				if err := Atomically(context.Background(), func(tx Tx) error {
					if slot.Get(tx) != 0 {
						return Retry
					}
					slot.Set(tx, i+1)
					return nil
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	sum := 0
	for range 2 {
		wg.Go(func() {
			for range n {
				got := 0
				if err := Atomically(context.Background(), func(tx Tx) error {
					if got = slot.Get(tx); got == 0 {
						return Retry
					}
					slot.Set(tx, 0)
					return nil
				}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				sum += got
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if sum != n*(n+1) {
		t.Errorf("what arrived adds up to %d, want %d", sum, n*(n+1))
	}
	clean(t, &slot)
}

// A change between the end of a run and its wait is noticed.
func TestAwaitLooksAgain(t *testing.T) {
	v, w := NewVar(0), NewVar(0)
	reads := []entry{{&w.core, w.core.load()}, {&v.core, v.core.load()}}
	AddNow(v, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := await(ctx, reads); err != nil {
		t.Errorf("it waits for a change that has happened: %v", err)
	}
	clean(t, v, w)
}

// The wait ends with the context, with its cause, and leaves nothing behind; so does
// one in a view, behind the gate, or with nothing to wait for.
func TestRetryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v, w := NewVar(0), NewVar(0)
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Hour, errEnds)
		defer cancel()
		start := time.Now()
		if _, err := waitUntil(ctx, 1, v, w); !errors.Is(err, errEnds) || !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Hour {
			t.Errorf("%v after %v, want the context's error and cause after an hour", err, time.Since(start))
		}
		clean(t, v, w)

		ctx, cancel = context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := View(ctx, func(tx Tx) error { v.Get(tx); return Retry }); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		clean(t, v, w)

		ctx, cancel = context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := Atomically(ctx, func(tx Tx) error {
			if loses(tx, []*Var[int]{v}); tx.r.gated {
				return Retry
			}
			v.Set(tx, 1)
			return nil
		}); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		clean(t, v, w)

		if err := Atomically(context.Background(), func(Tx) error { return Retry }); !errors.Is(err, ErrNothingRead) {
			t.Error(err)
		}
		clean(t, v, w)
	})
}

// OrElse waits for what either of its functions has read.
func TestOrElseWaitsForBoth(t *testing.T) {
	for _, second := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			v, w := NewVar(0), NewVar(0)
			take := func(v *Var[int]) func(Tx) error {
				return func(tx Tx) error {
					if Add(tx, v, -1) < 0 {
						return Retry
					}
					return nil
				}
			}
			done := make(chan error, 1)
			go func() {
				done <- Atomically(context.Background(), func(tx Tx) error { return OrElse(tx, take(v), take(w)) })
			}()
			synctest.Wait()
			if second {
				AddNow(w, 1)
			} else {
				AddNow(v, 1)
			}
			if err := <-done; err != nil || v.Load() != 0 || w.Load() != 0 {
				t.Errorf("%v; %d and %d are left", err, v.Load(), w.Load())
			}
			clean(t, v, w)
		})
	}
}
