package stm

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

var errEnds = errors.New("ends")

// clean fails the test if a transaction has left something behind.
func clean(t *testing.T, vars ...*Var[int]) {
	t.Helper()
	if n := shared.bigs.Load(); n != 0 {
		t.Errorf("%d big transactions are left", n)
	}
	if len(gate) != 0 {
		t.Error("the gate is left closed")
	}
	if n := held.Who().Depth(); n != 0 {
		t.Errorf("the goroutine is left inside of %v", held.Who().Top())
	}
	for i, v := range vars {
		if l := v.core.lock.Load(); l != 0 {
			t.Errorf("variable %d is left locked: %x", i, l)
		}
		if w := v.core.waiters.Load(); w != nil && (w.n.Load() != 0 || w.ch != nil) {
			t.Errorf("variable %d has %d waiters left", i, w.n.Load())
		}
	}
}

// begun is a run as the goroutine's next transaction would be, for tests that go
// through a transaction step by step.
func begun(reading bool) *run {
	r := pool.New().(*run)
	r.ctx, r.me, r.reading = context.Background(), held.Who(), reading
	return r
}

// However and wherever a function ends, nothing is left locked or registered, what
// it has set is gone, and its panic comes out as it was.
func TestEnds(t *testing.T) {
	ways := map[string]func() error{
		"error":  func() error { return errEnds },
		"panic":  func() error { panic(errEnds) },
		"goexit": func() error { runtime.Goexit(); return nil },
	}
	vars := make([]*Var[int], 3*small)
	for i := range vars {
		vars[i] = NewVar(0)
	}
	touch := func(tx Tx, n int) {
		for _, v := range vars[:n] {
			Add(tx, v, 1)
		}
	}
	places := map[string]func(tx Tx, end func() error) error{
		"at once": func(_ Tx, end func() error) error { return end() },
		"small":   func(tx Tx, end func() error) error { touch(tx, 3); return end() },
		"big":     func(tx Tx, end func() error) error { touch(tx, len(vars)); return end() },
		"nested": func(tx Tx, end func() error) error {
			touch(tx, 3)
			return Atomically(tx.Context(), func(tx Tx) error { touch(tx, len(vars)); return end() })
		},
		"orelse": func(tx Tx, end func() error) error {
			return OrElse(tx, func(tx Tx) error { touch(tx, len(vars)); return Retry },
				func(tx Tx) error { touch(tx, len(vars)); return end() })
		},
		"behind the gate": func(tx Tx, end func() error) error {
			touch(tx, 2)
			if !tx.r.gated {
				addElsewhere(vars[1])
				vars[2].Get(tx) // loses
			}
			touch(tx, len(vars))
			return end()
		},
	}
	for way, end := range ways {
		for place, body := range places {
			t.Run(fmt.Sprintf("%s %s", way, place), func(t *testing.T) {
				for _, v := range vars {
					mustCommit(t, func(tx Tx) { v.Set(tx, 0) })
				}
				var wg sync.WaitGroup
				wg.Go(func() {
					finished := false
					defer func() {
						v := recover()
						if got, ok := v.(error); way == "panic" && (!ok || got != errEnds) || way != "panic" && v != nil {
							t.Errorf("what came out is %v", v)
						}
						if finished != (way == "error") {
							t.Errorf("it returned: %v", finished)
						}
						clean(t, vars...)
					}()
					err := Atomically(context.Background(), func(tx Tx) error { return body(tx, end) })
					finished = true
					if !errors.Is(err, errEnds) {
						t.Errorf("the error is %v", err)
					}
				})
				wg.Wait()
				for i, v := range vars {
					if got := v.Load(); got > 0 && place != "behind the gate" {
						t.Errorf("variable %d holds %d", i, got)
					}
				}
			})
		}
	}
}

// addElsewhere adds from another goroutine.
func addElsewhere(v *Var[int]) {
	var wg sync.WaitGroup
	wg.Go(func() { AddNow(v, 1) })
	wg.Wait()
}

func mustCommit(t *testing.T, fn func(Tx)) {
	t.Helper()
	if err := Atomically(context.Background(), func(tx Tx) error { fn(tx); return nil }); err != nil {
		t.Error(err)
	}
}

// panicky is a context that panics when it is asked for the nth time.
type panicky struct {
	context.Context
	asked *int
	n     int
}

func (p panicky) Err() error {
	if *p.asked++; *p.asked == p.n {
		panic(errEnds)
	}
	return nil
}

func (p panicky) Done() <-chan struct{} {
	_ = p.Err()
	return p.Context.Done()
}

// A context that panics leaves nothing behind either, wherever it is asked.
func TestEndsByContext(t *testing.T) {
	v := NewVar(0)
	for n := 1; n < 30; n++ {
		asked, runs := 0, 0
		func() {
			defer func() {
				if v := recover(); v != nil && v != errEnds {
					t.Errorf("what came out is %v", v)
				}
				clean(t, v)
			}()
			ctx := panicky{context.Background(), &asked, n}
			_ = Atomically(ctx, func(tx Tx) error {
				runs++
				if v.Get(tx); runs < 20 && !tx.r.gated {
					addElsewhere(v)
					v.Set(tx, 1)
				}
				if runs < 25 {
					if tx.r.gated {
						return Retry
					}
				}
				return errEnds
			})
		}()
	}
}

// A pooled run keeps no values, and no more room than it may.
func TestPooledRunsKeepNothing(t *testing.T) {
	r := begun(false)
	vars := make([]Var[int], 3*pooled)
	for i := range vars {
		r.get(&vars[i].core)
		r.set(&vars[i].core, -1, unsafe.Pointer(new(int)))
	}
	r.save(false)
	for i := range vars {
		r.set(&vars[i].core, i, unsafe.Pointer(new(int)))
		r.hooks = append(r.hooks, func() {})
	}
	r.release()
	r.forget()
	for _, l := range []*log{&r.reads, &r.writes} {
		if len(l.entries) != 0 || cap(l.entries) > pooled || len(l.index) > 8*pooled {
			t.Errorf("a log keeps %d entries, room for %d, %d slots", len(l.entries), cap(l.entries), len(l.index))
		}
		if l.buf != [small]entry{} {
			t.Error("a log keeps values")
		}
	}
	if cap(r.undo) > pooled || cap(r.hooks) > pooled {
		t.Errorf("room for %d undos and %d hooks is kept", cap(r.undo), cap(r.hooks))
	}
	for i := range 100 {
		r.get(&vars[i].core)
	}
	r.release()
	r.forget()
	for _, e := range r.reads.entries[:cap(r.reads.entries)] {
		if e != (entry{}) {
			t.Fatal("a log keeps values")
		}
	}
	clean(t)
}
