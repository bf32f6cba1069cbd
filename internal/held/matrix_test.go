package held_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/actor"
	"github.com/latchkey-go/latchkey/internal/held"
	"github.com/latchkey-go/latchkey/locked"
	"github.com/latchkey-go/latchkey/stm"
)

// matrix has one of each of the in-process types, and another.
type matrix struct {
	ctx   context.Context
	v, v2 *locked.Var[int]
	m, m2 *locked.Map[string, int]
	k, k2 *locked.KeyMap[string, int]
	x     *stm.Var[int]
	o, o2 *actor.Object[int]
	a     *actor.Map[string, int]
	hooks int
}

func newMatrix(t *testing.T) *matrix {
	w := &matrix{ctx: t.Context(),
		v: locked.NewVar(1), v2: locked.NewVar(1),
		m: locked.NewMap(map[string]int{"k": 1}), m2: locked.NewMap(map[string]int{"k": 1}),
		k: locked.NewKeyMap(map[string]int{"k": 1}), k2: locked.NewKeyMap(map[string]int{"k": 1}),
		x: stm.NewVar(1)}
	var errs [3]error
	one := func() (*int, error) { n := 1; return &n, nil }
	w.o, errs[0] = actor.New(w.ctx, one, actor.Options{})
	w.o2, errs[1] = actor.New(w.ctx, one, actor.Options{})
	w.a, errs[2] = actor.NewMap(map[string]int{"k": 1}, actor.Options{})
	if err := errors.Join(errs[:]...); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *matrix) close(t *testing.T) {
	for _, c := range []interface{ Close(context.Context) error }{w.o, w.o2, w.a} {
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

func same(n int) (int, error) { return n, nil }

func sameKey(n int, _ bool) (int, error) { return n, nil }

func nothing(*int) error { return nil }

func answer(n *int) (int, error) { return *n, nil }

// insides are the places in which a call can be made.
var insides = []struct {
	name string
	run  func(w *matrix, call func()) error
}{
	{"nothing", func(_ *matrix, call func()) error { call(); return nil }},
	{"Var", func(w *matrix, call func()) error {
		_, err := w.v.Update(func(n int) (int, error) { call(); return n, nil })
		return err
	}},
	{"Map", func(w *matrix, call func()) error {
		return w.m.Synchronize(func(*locked.Section[string, int]) error { call(); return nil })
	}},
	{"KeyMap", func(w *matrix, call func()) error {
		_, err := w.k.Update("k", func(n int, _ bool) (int, error) { call(); return n, nil })
		return err
	}},
	{"GetOrCreate", func(w *matrix, call func()) error {
		_, err := w.k.GetOrCreate("new", func() (int, error) { call(); return 1, nil })
		return err
	}},
	{"Atomically", func(w *matrix, call func()) error {
		return stm.Atomically(w.ctx, func(stm.Tx) error { call(); return nil })
	}},
	{"actor", func(w *matrix, call func()) error {
		_, err := actor.Ask(w.ctx, w.o, func(n *int) (int, error) { call(); return *n, nil })
		return err
	}},
	{"actor and Var", func(w *matrix, call func()) error {
		_, err := actor.Ask(w.ctx, w.o, func(n *int) (int, error) {
			return w.v.Update(func(n int) (int, error) { call(); return n, nil })
		})
		return err
	}},
	{"Var and Atomically", func(w *matrix, call func()) error {
		_, err := w.v.Update(func(n int) (int, error) {
			return n, stm.Atomically(w.ctx, func(stm.Tx) error { call(); return nil })
		})
		return err
	}},
}

// The groups of calls, by what is said of them.
const (
	never   = iota // does not wait: allowed everywhere
	waits          // waits for a lock
	ownMap         // waits for the lock of the map that "Map" is inside of
	joins          // a transaction that does not wait
	retries        // one that does
	asks           // waits for an actor that is not the one that "actor" is inside of
	self           // waits for the one that "actor" is inside of
	tries          // sends to an actor without waiting
)

var calls = []struct {
	name string
	kind int
	call func(w *matrix) error
}{
	{"Var.Peek", never, func(w *matrix) error { w.v.Peek(); w.v2.Peek(); return nil }},
	{"KeyMap.Peek", never, func(w *matrix) error { w.k.Peek("k"); w.k2.Peek("k"); return nil }},
	{"KeyMap.All", never, func(w *matrix) error {
		for range w.k.All() {
		}
		return nil
	}},
	{"strings", never, func(w *matrix) error { _ = fmt.Sprint(w.v, w.v2, w.m, w.m2, w.k, w.k2, w.x); return nil }},
	{"stm.Var.Load", never, func(w *matrix) error { w.x.Load(); return nil }},
	{"Var.Load", waits, func(w *matrix) error { w.v.Load(); return nil }},
	{"Var.Update", waits, func(w *matrix) error { _, err := w.v.Update(same); return err }},
	{"other Var.Load", waits, func(w *matrix) error { w.v2.Load(); return nil }},
	{"other Var.UpdateContext", waits, func(w *matrix) error { _, err := w.v2.UpdateContext(w.ctx, same); return err }},
	{"Add", waits, func(w *matrix) error { locked.Add(w.v2, 1); return nil }},
	{"KeyMap.Load", waits, func(w *matrix) error { w.k.Load("k"); return nil }},
	{"KeyMap.Update of another key", waits, func(w *matrix) error { _, err := w.k.Update("z", sameKey); return err }},
	{"other KeyMap.GetOrCreate", waits, func(w *matrix) error {
		_, err := w.k2.GetOrCreate("z", func() (int, error) { return 1, nil })
		return err
	}},
	{"KeyMap.Store", waits, func(w *matrix) error { w.k2.Store("k", 1); return nil }},
	{"Var.Store", waits, func(w *matrix) error { w.v2.Store(1); return nil }},
	{"KeyMap.DeleteIf", waits, func(w *matrix) error {
		w.k2.DeleteIf("y", func(int) bool { return true })
		return nil
	}},
	{"KeyMap.Delete", waits, func(w *matrix) error { w.k2.Delete("y"); return nil }},
	{"AddTo", waits, func(w *matrix) error { locked.AddTo(w.k2, "k", 1); return nil }},
	{"Map.Load", ownMap, func(w *matrix) error { w.m.Load("k"); return nil }},
	{"Map.Synchronize", ownMap, func(w *matrix) error {
		return w.m.Synchronize(func(*locked.Section[string, int]) error { return nil })
	}},
	{"other Map.Copy", waits, func(w *matrix) error { w.m2.Copy(); return nil }},
	{"other Map.Synchronize", waits, func(w *matrix) error {
		return w.m2.Synchronize(func(*locked.Section[string, int]) error { return nil })
	}},
	{"Atomically", joins, func(w *matrix) error {
		return stm.Atomically(w.ctx, func(tx stm.Tx) error { stm.Add(tx, w.x, 1); return nil })
	}},
	{"View", joins, func(w *matrix) error { return stm.View(w.ctx, func(tx stm.Tx) error { w.x.Get(tx); return nil }) }},
	{"Read", joins, func(w *matrix) error {
		_, err := stm.Read(w.ctx, func(tx stm.Tx) (int, error) { return w.x.Get(tx), nil })
		return err
	}},
	{"SetNow", joins, func(w *matrix) error { stm.SetNow(w.x, 1); return nil }},
	{"Retry", retries, func(w *matrix) error {
		return stm.Atomically(w.ctx, func(tx stm.Tx) error { w.x.Get(tx); return stm.Retry })
	}},
	{"Ask itself", self, func(w *matrix) error { _, err := actor.Ask(w.ctx, w.o, answer); return err }},
	{"Ask", asks, func(w *matrix) error { _, err := actor.Ask(w.ctx, w.o2, answer); return err }},
	{"Tell", asks, func(w *matrix) error { return w.o2.Tell(w.ctx, nothing) }},
	{"actor.Map.Get", asks, func(w *matrix) error { _, _, err := w.a.Get(w.ctx, "k"); return err }},
	{"Close", asks, func(w *matrix) error { return w.o2.Close(w.ctx) }},
	{"TryTell", tries, func(w *matrix) error { return w.o2.TryTell(nothing) }},
}

// refused is the matrix itself.
func refused(inside string, kind int) bool {
	lock := inside == "Var" || inside == "Map" || inside == "KeyMap" || inside == "GetOrCreate" || inside == "actor and Var"
	transaction := inside == "Atomically" || inside == "Var and Atomically"
	switch kind {
	case waits:
		return lock || transaction
	case ownMap:
		return inside != "Map" && (lock || transaction)
	case retries:
		return lock // in a transaction it is for the outer one to say; outside it waits
	case asks:
		return lock || transaction
	case self:
		return lock || transaction || inside == "actor"
	case tries:
		return transaction
	}
	return false
}

// Every call inside of everything returns, and what is to be refused is refused.
// A hang would end the bubble with a deadlock.
func TestMatrix(t *testing.T) {
	for _, in := range insides {
		for _, c := range calls {
			if c.kind == retries && !refused(in.name, retries) {
				continue // it waits for a change, as it should
			}
			t.Run(in.name+"/"+c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newMatrix(t)
					var err error
					ran := false
					outer := in.run(w, func() {
						defer func() {
							if v := recover(); v != nil {
								e, ok := v.(*held.NestedError)
								if !ok {
									panic(v)
								}
								err = e
							}
						}()
						ran = true
						err = c.call(w)
					})
					if !ran {
						t.Fatalf("the call was not made: %v", outer)
					}
					if want := refused(in.name, c.kind); errors.Is(err, held.ErrNested) != want || !want && err != nil {
						t.Errorf("%v, want it refused: %v", err, want)
					}
					w.free(t)
					w.close(t)
				})
			})
		}
	}
}

// free checks that nothing stayed locked.
func (w *matrix) free(t *testing.T) {
	_, e1 := w.v.Update(same)
	_, e2 := w.v2.Update(same)
	_, e3 := w.k.Update("k", sameKey)
	_, e4 := w.k2.Update("k", sameKey)
	section := func(s *locked.Section[string, int]) error { s.Store("k", 1); return nil }
	e5, e6 := w.m.Synchronize(section), w.m2.Synchronize(section)
	e7 := stm.Atomically(w.ctx, func(tx stm.Tx) error { stm.Add(tx, w.x, 1); return nil })
	_, e8 := actor.Ask(w.ctx, w.o, answer)
	if err := errors.Join(e1, e2, e3, e4, e5, e6, e7, e8); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if top := held.Who().Top(); top.Kind != 0 {
		t.Errorf("afterwards the goroutine is still inside of %v", top.Kind)
	}
}

// After the commit nothing is refused any more.
func TestAfterCommitIsOutside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newMatrix(t)
		err := stm.Atomically(w.ctx, func(tx stm.Tx) error {
			stm.Add(tx, w.x, 1)
			tx.AfterCommit(func() {
				w.hooks++
				_, e1 := w.v.Update(same)
				_, e2 := actor.Ask(w.ctx, w.o, answer)
				e3 := stm.Atomically(w.ctx, func(tx stm.Tx) error { stm.Add(tx, w.x, 1); return nil })
				if err := errors.Join(e1, e2, e3); err != nil {
					t.Error(err)
				}
			})
			return nil
		})
		if err != nil || w.hooks != 1 || w.x.Load() != 3 {
			t.Errorf("%v, %d hooks, value %d", err, w.hooks, w.x.Load())
		}
		w.close(t)
	})
}

// A chain of owners that would wait for one another is refused at its last link,
// however long it is.
func TestChains(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10} {
		synctest.Test(t, func(t *testing.T) {
			owners := make([]*actor.Object[int], n)
			for i := range owners {
				var err error
				if owners[i], err = actor.New(t.Context(), func() (*int, error) { return new(int), nil }, actor.Options{}); err != nil {
					t.Fatal(err)
				}
			}
			var ask func(i int) (int, error)
			ask = func(i int) (int, error) {
				return actor.Ask(t.Context(), owners[i%n], func(*int) (int, error) { return ask(i + 1) })
			}
			if _, err := ask(0); !errors.Is(err, held.ErrNested) {
				t.Errorf("a circle of %d: %v, want it refused", n, err)
			}
			for _, o := range owners {
				if err := o.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
