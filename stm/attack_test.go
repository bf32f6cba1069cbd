package stm

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// Who waits is woken once: a thousand who have been woken, and have not run yet, cost
// the next commits nothing.
func TestWokenOnce(t *testing.T) {
	c := new(core)
	chans := make([]chan struct{}, 1000)
	for i := range chans {
		chans[i] = make(chan struct{}, 1)
		c.wait(chans[i])
	}
	c.wake()
	if n := c.waiters.Load().n.Load(); n != 0 {
		t.Errorf("%d are still to be woken", n)
	}
	for _, ch := range chans {
		if len(ch) != 1 {
			t.Fatal("one was not woken")
		}
		c.unwait(ch)
	}
	late := make(chan struct{}, 1)
	c.wait(late)
	c.wake()
	if len(late) != 1 {
		t.Error("one that came later was not woken")
	}
}

// A transaction in another goroutine than its own cannot write, not even to what is
// written already.
func TestSetByAnother(t *testing.T) {
	v := NewVar(0)
	for _, nested := range []bool{false, true} {
		err := Atomically(t.Context(), func(tx Tx) error {
			v.Set(tx, 1)
			set := func(Tx) error {
				var wg sync.WaitGroup
				wg.Go(func() {
					defer func() { _ = recover() }()
					v.Set(tx, 7)
				})
				wg.Wait()
				return nil
			}
			if nested {
				return Atomically(t.Context(), set)
			}
			return set(tx)
		})
		if err != nil || v.Load() != 1 {
			t.Errorf("nested %v: %v, and it holds %d", nested, err, v.Load())
		}
	}
}

// ending ends a function in one of many ways.
func ending(r *rand.Rand) error {
	way := r.IntN(12)
	if way == 6 {
		return Retry
	}
	return trial.End(way)
}

// However transactions end, at any moment: no run sees money come or go, and nothing is
// left behind. Some are big, some lose until they are behind the gate, some wait.
func TestChaos(t *testing.T) {
	vars := make([]Var[int], 40)
	var torn, committed atomic.Int64
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 2))
			for range 150 {
				var inner sync.WaitGroup // one may end its goroutine
				inner.Go(func() {
					defer func() { _ = recover() }()
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(2_000_000)))
					defer cancel()
					if chaos(ctx, r, vars, &torn) == nil {
						committed.Add(1)
					}
				})
				inner.Wait()
			}
		})
	}
	wg.Wait()
	if torn.Load() != 0 {
		t.Errorf("%d runs saw a wrong sum", torn.Load())
	}
	sum := 0
	for i := range vars {
		c := &vars[i].core
		sum += vars[i].Load()
		if c.lock.Load() != 0 {
			t.Errorf("variable %d is left locked", i)
		}
		if w := c.waiters.Load(); w != nil && (w.n.Load() != 0 || len(w.ch) != 0) {
			t.Errorf("variable %d has waiters left", i)
		}
	}
	if sum != 0 || len(gate) != 0 || shared.bigs.Load() != 0 {
		t.Errorf("sum %d, gate %d, bigs %d: want none", sum, len(gate), shared.bigs.Load())
	}
	t.Logf("%d committed", committed.Load())
}

// chaos moves money about, looks at all of it, and ends somehow.
func chaos(ctx context.Context, r *rand.Rand, vars []Var[int], torn *atomic.Int64) error {
	move := func(tx Tx) {
		i, j, n := r.IntN(len(vars)), r.IntN(len(vars)), r.IntN(10)
		Add(tx, &vars[i], n)
		runtime.Gosched()
		Add(tx, &vars[j], -n)
	}
	look := func(tx Tx) error {
		sum := 0
		for _, i := range r.Perm(len(vars)) {
			sum += vars[i].Get(tx)
			if i%8 == 0 {
				runtime.Gosched()
			}
		}
		if sum != 0 {
			torn.Add(1)
		}
		return nil
	}
	return Atomically(ctx, func(tx Tx) error {
		move(tx)
		if r.IntN(3) == 0 {
			tx.AfterCommit(func() { _ = ending(r) })
		}
		switch r.IntN(4) {
		case 0:
			look(tx)
		case 1:
			// A nested one that panics halfway, and is recovered from, takes back its half.
			func() {
				defer func() { _ = recover() }()
				_ = Atomically(ctx, func(tx Tx) error {
					Add(tx, &vars[r.IntN(len(vars))], 1)
					if err := ending(r); err != nil {
						return err
					}
					return errors.New("half")
				})
			}()
			look(tx)
		case 2:
			err := OrElse(tx, func(tx Tx) error {
				Add(tx, &vars[r.IntN(len(vars))], 1)
				return Retry
			}, func(tx Tx) error {
				move(tx)
				return ending(r)
			})
			if err != nil {
				return err
			}
		case 3:
			if err := View(ctx, look); err != nil {
				return err
			}
		}
		return ending(r)
	})
}
