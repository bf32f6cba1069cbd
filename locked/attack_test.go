package locked

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// hostile is a context that breaks when it is waited for.
type hostile struct{ context.Context }

func (hostile) Err() error            { return nil }
func (hostile) Done() <-chan struct{} { panic("this context is broken") }

// A context that panics, nil included, takes nobody's place in the queue with it.
func TestBrokenContext(t *testing.T) {
	for name, ctx := range map[string]context.Context{"nil": nil, "hostile": hostile{context.Background()}} {
		m := NewMap(map[int]int{1: 1})
		k := NewKeyMap(map[int]int{1: 1})
		v := NewVar(1)
		calls := map[string]func(){
			"Map.LoadContext":           func() { m.LoadContext(ctx, 1) },
			"Map.SynchronizeContext":    func() { m.SynchronizeContext(ctx, func(*Section[int, int]) error { return nil }) },
			"Var.LoadContext":           func() { v.LoadContext(ctx) },
			"Var.UpdateContext":         func() { v.UpdateContext(ctx, func(n int) (int, error) { return n, nil }) },
			"KeyMap.LoadContext":        func() { k.LoadContext(ctx, 1) },
			"KeyMap.UpdateContext":      func() { k.UpdateContext(ctx, 1, func(n int, _ bool) (int, error) { return n, nil }) },
			"KeyMap.GetOrCreateContext": func() { k.GetOrCreateContext(ctx, 1, func() (int, error) { return 1, nil }) },
		}
		for call, fn := range calls {
			trial.Soon(t, name+" "+call, func() {
				locks := map[string]*lock{"Map": &m.lock, "Var": &v.lock}
				e := entryOf(k, 1)
				locks["KeyMap"] = &e.extra.lock
				for _, l := range locks {
					l.lock(context.Background())
				}
				func() {
					defer func() { _ = recover() }()
					fn()
				}()
				var wg sync.WaitGroup
				for _, l := range locks {
					for range 3 {
						wg.Go(func() {
							l.lock(context.Background())
							runtime.Gosched()
							l.unlock()
						})
					}
				}
				for len(locks) > 0 { // until they queue
					for name, l := range locks {
						if l.word.Load()&waiting != 0 {
							delete(locks, name)
							l.unlock()
						}
					}
					runtime.Gosched()
				}
				wg.Wait()
				for what, l := range map[string]*lock{"Map": &m.lock, "Var": &v.lock, "KeyMap": &e.extra.lock} {
					if w := l.word.Load(); w&flags != 0 {
						t.Errorf("%s %s: the lock of the %s is left with the flags %b", name, call, what, w&flags)
					}
				}
			})
		}
	}
}

func entryOf[K comparable, V any](m *KeyMap[K, V], key K) *keyEntry[K, V] {
	hash, p := m.at(key)
	return p.index.find(hash, key)
}

// However many wait for one key, and however many give up, nobody is left behind, each
// function that ran has counted, and the key goes when it is deleted.
func TestCrowdGivesUp(t *testing.T) {
	const n = 10_000
	m := NewKeyMap[string, int](nil)
	v := new(Var[int])
	whole := NewMap[string, int](nil)
	ran := make([]int, 3)
	trial.Soon(t, "a crowd", func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var wg sync.WaitGroup
		for i := range n {
			c := context.Background()
			if i%2 == 0 {
				var stop context.CancelFunc
				if i%4 == 0 {
					c, stop = context.WithTimeout(ctx, time.Duration(rand.IntN(5_000_000)))
				} else {
					c, stop = context.WithCancel(ctx)
				}
				defer stop()
			}
			wg.Go(func() {
				m.UpdateContext(c, "k", func(n int, _ bool) (int, error) { ran[0]++; return n + 1, nil })
				v.UpdateContext(c, func(n int) (int, error) { ran[1]++; return n + 1, nil })
				whole.SynchronizeContext(c, func(s *Section[string, int]) error {
					ran[2]++
					n, _ := s.Load("k")
					s.Store("k", n+1)
					return nil
				})
				m.LoadContext(c, "k")
				m.GetOrCreateContext(c, "k", func() (int, error) { return 0, errors.New("it is there") })
				if i == n/2 {
					cancel()
				}
			})
		}
		wg.Wait()
	})
	a, _ := m.Load("k")
	b := v.Load()
	c, _ := whole.Load("k")
	if a != ran[0] || b != ran[1] || c != ran[2] || a < n/2 {
		t.Errorf("counts %d %d %d, ran %v", a, b, c, ran)
	}
	m.Delete("k")
	if e := entryOf(m, "k"); e != nil {
		t.Error("the key is still there")
	}
}

// Whoever ends in whatever way, at any call, leaves nothing.
func TestChaos(t *testing.T) {
	type key struct {
		a any
		f float64
	}
	m := NewKeyMap[key, any](nil)
	whole := NewMap[key, any](nil)
	v := NewVar[any](nil)
	trial.Soon(t, "chaos", func() {
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for range 300 {
					var inner sync.WaitGroup // one may end its goroutine
					inner.Go(func() { chaos(r, whole, v, m, key{r.IntN(3), float64(r.IntN(2))}) })
					inner.Wait()
				}
			})
		}
		wg.Wait()
	})
	trial.Soon(t, "after chaos", func() {
		v.Load()
		whole.Copy()
		for i := range 3 {
			for j := range 2 {
				m.Delete(key{i, float64(j)})
			}
		}
	})
	if n := len(m.Keys()); n != 0 {
		t.Errorf("%d keys are left", n)
	}
	for i := range m.parts {
		if n := m.parts[i].index.live; n != 0 {
			t.Errorf("part %d has %d entries left", i, n)
		}
	}
}

// chaos makes one call whose function makes another, and ends somehow.
func chaos[K comparable](r *rand.Rand, whole *Map[K, any], v *Var[any], m *KeyMap[K, any], key K) {
	defer func() { _ = recover() }()
	nested := func() {
		defer func() { _ = recover() }()
		switch r.IntN(9) {
		case 0:
			v.Load()
		case 1:
			whole.Load(key)
		case 2:
			m.Store(key, 1)
		case 3:
			m.Delete(key)
		case 4:
			m.GetOrCreate(key, func() (any, error) { return nil, nil })
		case 5:
			whole.Synchronize(func(s *Section[K, any]) error { s.Clear(); s.Store(key, 1); return trial.End(r.IntN(7)) })
		case 6:
			v.Update(func(any) (any, error) { return nil, nil })
		case 7:
			_ = m.String() + whole.String() + v.String()
		case 8:
			for k := range m.All() {
				m.Peek(k)
			}
		}
	}
	switch r.IntN(5) {
	case 0:
		m.Update(key, func(any, bool) (any, error) { nested(); return nil, trial.End(r.IntN(7)) })
	case 1:
		whole.Synchronize(func(s *Section[K, any]) error {
			s.Store(key, nil)
			nested()
			s.Delete(key)
			nested()
			return trial.End(r.IntN(7))
		})
	case 2:
		v.Update(func(any) (any, error) { nested(); return nil, trial.End(r.IntN(7)) })
	case 3:
		m.GetOrCreate(key, func() (any, error) { nested(); return nil, trial.End(r.IntN(7)) })
	case 4:
		m.Delete(key)
	}
}

// Nil functions panic, and leave nothing locked.
func TestNilFunctions(t *testing.T) {
	m := NewKeyMap[int, int](nil)
	whole := NewMap[int, int](nil)
	v := NewVar(1)
	for what, fn := range map[string]func(){
		"Update":      func() { v.Update(nil) },
		"KeyMap":      func() { m.Update(1, nil) },
		"GetOrCreate": func() { m.GetOrCreate(1, nil) },
		"Synchronize": func() { whole.Synchronize(nil) },
		"LoadOr":      func() { m.LoadOr(1, nil) },
		"inner":       func() { whole.Synchronize(func(*Section[int, int]) error { return whole.Synchronize(nil) }) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			fn()
		}()
	}
	trial.Soon(t, "after nil functions", func() {
		v.Load()
		whole.Load(1)
		m.Store(1, 1)
	})
}

type empty struct{}

// Odd keys: empty, with interfaces inside, pointers, arrays; and empty values.
func TestOddKeys(t *testing.T) {
	e := NewKeyMap[empty, empty](nil)
	e.Store(empty{}, empty{})
	if _, ok := e.Delete(empty{}); !ok || len(e.Keys()) != 0 {
		t.Error("the empty key")
	}
	w := NewMap[empty, empty](nil)
	w.Synchronize(func(s *Section[empty, empty]) error {
		s.Store(empty{}, empty{})
		s.Delete(empty{})
		s.Store(empty{}, empty{})
		return nil
	})
	if len(w.Copy()) != 1 {
		t.Error("the empty key in a Map")
	}
	type nest struct {
		a any
		b [2]any
	}
	n := NewKeyMap[nest, any](nil)
	n.Store(nest{1, [2]any{"x", nil}}, nil)
	if v, ok := n.Load(nest{1, [2]any{"x", nil}}); v != nil || !ok {
		t.Error("a nested key")
	}
	for range 2 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("an unhashable key is taken")
				}
			}()
			n.Store(nest{1, [2]any{"x", []int{}}}, nil)
		}()
	}
	n.Store(nest{1, [2]any{"x", nil}}, 1)
	z := NewKeyMap[float64, int](nil)
	z.Store(0, 1)
	z.Store(math.Copysign(0, -1), 2)
	if len(z.Keys()) != 1 {
		t.Errorf("zero and minus zero are two keys: %v", z.Keys())
	}
}

// A loop over a section goes on after an inner section that cleared the map and failed,
// also for keys that are not equal to themselves.
func TestLoopOverUndoneClear(t *testing.T) {
	m := NewMap[float64, int](nil)
	err := m.Synchronize(func(s *Section[float64, int]) error {
		for range 5 {
			s.Store(math.NaN(), 1)
		}
		n := 0
		for range s.All() {
			if n++; n == 1 {
				_ = m.Synchronize(func(s *Section[float64, int]) error {
					s.Clear()
					s.Store(math.NaN(), 2)
					return errors.New("undone")
				})
			}
		}
		if n != 5 || s.Len() != 5 {
			t.Errorf("%d of %d keys came", n, s.Len())
		}
		n = 0
		for range s.All() {
			n++
			s.Clear()
		}
		if n != 1 || s.Len() != 0 {
			t.Errorf("%d keys came of a map that was cleared, and it has %d", n, s.Len())
		}
		return nil
	})
	if err != nil || len(m.Copy()) != 0 {
		t.Error(err, m)
	}
}
