package stm

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
)

// hammer changes variables from other goroutines, without a pause, until stop.
func hammer(vars []*Var[int]) (stop func()) {
	var wg sync.WaitGroup
	var done atomic.Bool
	for w := range 2 {
		wg.Go(func() {
			for i := w; !done.Load(); i++ {
				if i%2 == 0 {
					AddNow(vars[i%len(vars)], 1)
					continue
				}
				_ = Atomically(context.Background(), func(tx Tx) error {
					Add(tx, vars[i%len(vars)], 1)
					Add(tx, vars[(i+1)%len(vars)], 1)
					return nil
				})
			}
		})
	}
	return func() { done.Store(true); wg.Wait() }
}

// loses makes sure that a run loses unless it is behind the gate: what it has read is
// changed by another goroutine, which it waits for.
func loses(tx Tx, vars []*Var[int]) {
	for _, v := range vars {
		v.Get(tx)
	}
	if !tx.r.gated {
		addElsewhere(vars[0])
		NewVar(0).Get(tx) // checks what was read before, unless it is a big one
	}
}

// The worst case: every run that can lose does. A view is run three times, and once
// more behind the gate; a transaction that writes ten times and once.
func TestLosesNoMoreThanPromised(t *testing.T) {
	for _, n := range []int{1, 3, 5 * small} {
		vars := make([]*Var[int], n)
		for i := range vars {
			vars[i] = NewVar(0)
		}
		before, runs := Reruns(), 0
		if err := View(context.Background(), func(tx Tx) error {
			runs++
			loses(tx, vars)
			if n > small && !tx.r.gated {
				vars[0].core.stamp.Store(tx.r.clock + 1)
				fresh := NewVar(0)
				fresh.core.stamp.Store(tx.r.clock + 1)
				fresh.Get(tx)
			}
			return nil
		}); err != nil || runs != viewTriesBeforeGate+1 {
			t.Errorf("%d variables: %v after %d runs of the view, want %d", n, err, runs, viewTriesBeforeGate+1)
		}
		if got := Reruns() - before; got != viewTriesBeforeGate {
			t.Errorf("%d reruns are counted, want %d", got, viewTriesBeforeGate)
		}
		runs = 0
		if err := Atomically(context.Background(), func(tx Tx) error {
			runs++
			for _, v := range vars {
				v.Get(tx)
			}
			if !tx.r.gated {
				addElsewhere(vars[n-1])
			}
			vars[n/2].Set(tx, 1)
			return nil
		}); err != nil || runs != triesBeforeGate+1 {
			t.Errorf("%d variables: %v after %d runs of the transaction, want %d", n, err, runs, triesBeforeGate+1)
		}
		clean(t, vars...)
	}
}

// Long transactions and views finish, and views within their runs, while others
// change all that they read as fast as they can.
func TestStarving(t *testing.T) {
	vars := make([]*Var[int], 200)
	for i := range vars {
		vars[i] = NewVar(0)
	}
	stop := hammer(vars)
	for i := range 20 {
		runs := 0
		long := func(tx Tx) error {
			runs++
			for j, v := range vars {
				v.Get(tx)
				if j%20 == 0 {
					runtime.Gosched()
				}
			}
			if i%2 == 0 {
				Add(tx, vars[0], 1)
			}
			return nil
		}
		do, most := Atomically, triesBeforeGate+1
		if i%2 == 1 {
			do, most = View, viewTriesBeforeGate+1
		}
		if err := do(context.Background(), long); err != nil || runs > most {
			t.Errorf("%v after %d runs, want at most %d", err, runs, most)
		}
	}
	stop()
	clean(t, vars...)
}

// While one is behind the gate, and stays there, another one that needs its variables
// gives up when its context ends; others are not touched.
func TestGateRespectsContexts(t *testing.T) {
	v, w := NewVar(0), NewVar(0)
	inside, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = Atomically(context.Background(), func(tx Tx) error {
			loses(tx, []*Var[int]{v})
			if tx.r.gated {
				close(inside)
				<-leave
			}
			v.Set(tx, 100)
			return nil
		})
	})
	<-inside
	mustCommit(t, func(tx Tx) { Add(tx, w, v.Get(tx)*0+1) }) // it may be read
	for _, fn := range []func(Tx) error{
		func(tx Tx) error { Add(tx, v, 1); return nil },
		func(tx Tx) error { v.Set(tx, 1); return nil },
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		runs := 0
		err := Atomically(ctx, func(tx Tx) error {
			if runs++; runs == triesBeforeGate {
				go cancel(errEnds) // while it waits for its turn
			}
			return fn(tx)
		})
		if !errors.Is(err, errEnds) || !errors.Is(err, context.Canceled) || runs != triesBeforeGate {
			t.Errorf("%v after %d runs, want the context's error and cause after %d", err, runs, triesBeforeGate)
		}
	}
	close(leave)
	wg.Wait()
	if v.Load() != 100 || w.Load() != 1 {
		t.Errorf("the variables hold %d and %d, want 100 and 1", v.Load(), w.Load())
	}
	clean(t, v, w)
}

// A big transaction is not disturbed by commits to other variables, and what it does
// to check its reads grows with their number, not with its square.
func TestBigIsLinear(t *testing.T) {
	const n = 100_000
	vars, others := make([]Var[int], n), make([]*Var[int], 10)
	for i := range others {
		others[i] = NewVar(0)
	}
	stop := hammer(others)
	defer stop()
	runs, checks, sum := 0, 0, 0
	for _, write := range []int{0, 1} {
		runs = 0
		mustCommit(t, func(tx Tx) {
			runs++
			for i := range vars {
				sum += vars[i].Get(tx)
				if write != 0 {
					vars[i].Set(tx, 1)
				}
			}
			checks = tx.r.work
		})
		if runs != 1 || checks > small || sum != 0 {
			t.Errorf("%d runs, %d checks of earlier reads, sum %d; want 1, at most %d, 0", runs, checks, sum, small)
		}
	}
	// With changes among what it reads, it checks again or loses, within bounds.
	all := make([]*Var[int], 2000)
	for i := range all {
		all[i] = &vars[i]
	}
	stopAll := hammer(all)
	defer stopAll()
	most := 0
	mustCommit(t, func(tx Tx) {
		for i := range all {
			all[i].Get(tx)
			most = max(most, tx.r.work)
		}
	})
	if most > 17*len(all) {
		t.Errorf("%d checks for %d reads", most, len(all))
	}
}
