package locked

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// world is one object of each kind to be inside of, and another one.
type world struct {
	v, v2 *Var[int]
	k, k2 *KeyMap[string, int]
	m, m2 *Map[string, int]
}

func newWorld() *world {
	one := map[string]int{"a": 1, "b": 1}
	return &world{NewVar(1), NewVar(1), NewKeyMap(one), NewKeyMap(one), NewMap(one), NewMap(one)}
}

// insides are what a goroutine can be inside of.
var insides = map[string]func(w *world, body func()) error{
	"Var": func(w *world, body func()) error {
		_, err := w.v.Update(func(int) (int, error) { body(); return 1, nil })
		return err
	},
	"KeyMap": func(w *world, body func()) error {
		_, err := w.k.Update("a", func(int, bool) (int, error) { body(); return 1, nil })
		return err
	},
	"KeyMap, creating": func(w *world, body func()) error {
		_, err := w.k.GetOrCreate("new", func() (int, error) { body(); return 1, nil })
		return err
	},
	"Map": func(w *world, body func()) error {
		return w.m.Synchronize(func(*Section[string, int]) error { body(); return nil })
	},
	"Map, inner section": func(w *world, body func()) error {
		return w.m.Synchronize(func(*Section[string, int]) error {
			return w.m.Synchronize(func(*Section[string, int]) error { body(); return nil })
		})
	},
	"transaction": func(_ *world, body func()) error {
		var run int
		defer held.Who().Enter(held.Frame{Kind: held.Transaction, Of: unsafe.Pointer(&run)}).Leave()
		body()
		return nil
	},
	"message": func(_ *world, body func()) error {
		var actor int
		defer held.Who().Enter(held.Frame{Kind: held.Actor, Of: unsafe.Pointer(&actor)}).Leave()
		body()
		return nil
	},
	"section in a message": func(w *world, body func()) error {
		var actor int
		defer held.Who().Enter(held.Frame{Kind: held.Actor, Of: unsafe.Pointer(&actor)}).Leave()
		return w.m.Synchronize(func(*Section[string, int]) error { body(); return nil })
	},
}

// calls are the calls that may wait, by what they are of. Each is told the objects that it
// is for, so that it is tried on those one is inside of and on others.
var calls = map[string]func(v *Var[int], k *KeyMap[string, int], m *Map[string, int], key string) error{
	"Var.Load": func(v *Var[int], _ *KeyMap[string, int], _ *Map[string, int], _ string) error { v.Load(); return nil },
	"Var.LoadContext": func(v *Var[int], _ *KeyMap[string, int], _ *Map[string, int], _ string) error {
		_, err := v.LoadContext(context.Background())
		return err
	},
	"Var.Update": func(v *Var[int], _ *KeyMap[string, int], _ *Map[string, int], _ string) error {
		_, err := v.Update(same)
		return err
	},
	"Var.UpdateContext": func(v *Var[int], _ *KeyMap[string, int], _ *Map[string, int], _ string) error {
		_, err := v.UpdateContext(context.Background(), same)
		return err
	},
	"Var.Store": func(v *Var[int], _ *KeyMap[string, int], _ *Map[string, int], _ string) error { v.Store(1); return nil },
	"Add":       func(v *Var[int], _ *KeyMap[string, int], _ *Map[string, int], _ string) error { Add(v, 0); return nil },
	"KeyMap.Load": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		k.Load(key)
		return nil
	},
	"KeyMap.LoadContext": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		_, _, err := k.LoadContext(context.Background(), key)
		return err
	},
	"KeyMap.LoadOr": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		k.LoadOr(key, zero)
		return nil
	},
	"KeyMap.Update": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		_, err := k.Update(key, sameKey)
		return err
	},
	"KeyMap.UpdateContext": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		_, err := k.UpdateContext(context.Background(), key, sameKey)
		return err
	},
	"KeyMap.GetOrCreate": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		_, err := k.GetOrCreate(key, func() (int, error) { return 0, nil })
		return err
	},
	"KeyMap.GetOrCreateContext": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		_, err := k.GetOrCreateContext(context.Background(), key, func() (int, error) { return 0, nil })
		return err
	},
	"KeyMap.Store": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		k.Store(key, 1)
		return nil
	},
	"KeyMap.Delete": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		k.Delete(key)
		return nil
	},
	"KeyMap.DeleteIf": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		k.DeleteIf(key, func(int) bool { return true })
		return nil
	},
	"AddTo": func(_ *Var[int], k *KeyMap[string, int], _ *Map[string, int], key string) error {
		AddTo(k, key, 1)
		return nil
	},
	"Map.Load": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], key string) error {
		m.Load(key)
		return nil
	},
	"Map.LoadContext": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], key string) error {
		_, _, err := m.LoadContext(context.Background(), key)
		return err
	},
	"Map.LoadOr": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], key string) error {
		m.LoadOr(key, zero)
		return nil
	},
	"Map.Contains": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], key string) error {
		m.Contains(key)
		return nil
	},
	"Map.Keys": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], _ string) error { m.Keys(); return nil },
	"Map.Copy": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], _ string) error { m.Copy(); return nil },
	"Map.Synchronize": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], key string) error {
		return m.Synchronize(func(s *Section[string, int]) error { s.Store(key, 1); return nil })
	},
	"Map.SynchronizeContext": func(_ *Var[int], _ *KeyMap[string, int], m *Map[string, int], key string) error {
		return m.SynchronizeContext(context.Background(), func(s *Section[string, int]) error { s.Store(key, 1); return nil })
	},
}

func zero() int                          { return 0 }
func same(n int) (int, error)            { return n, nil }
func sameKey(n int, _ bool) (int, error) { return n, nil }
func caught(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = p.(error)
		}
	}()
	return call()
}

// Every call that may wait, inside of everything, on the same object and on another, held by
// somebody else or free: it returns at once, refused by name where the rules say so, and
// nothing is left locked.
func TestMatrix(t *testing.T) {
	for inside, enter := range insides {
		for name, call := range calls {
			for _, other := range []string{"the same", "another key", "another"} {
				t.Run(fmt.Sprintf("%s/%s/%s", inside, name, other), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { // it fails when all are waiting
						checkCell(t, inside, name, other, enter, call)
					})
				})
			}
		}
	}
}

func checkCell(t *testing.T, inside, name, other string, enter func(*world, func()) error,
	call func(*Var[int], *KeyMap[string, int], *Map[string, int], string) error) {
	w := newWorld()
	v, k, m, key := w.v, w.k, w.m, "a"
	switch other {
	case "another key":
		key = "c"
	case "another":
		v, k, m = w.v2, w.k2, w.m2
	}
	var err error
	if failed := enter(w, func() {
		err = caught(func() error { return call(v, k, m, key) })
	}); failed != nil {
		t.Fatal(failed)
	}
	allowed := inside == "message" ||
		strings.HasPrefix(name, "Map.") && other != "another" && (strings.HasPrefix(inside, "Map") || strings.HasPrefix(inside, "section"))
	if allowed {
		if err != nil {
			t.Errorf("it is refused: %v", err)
		}
	} else {
		var nested *NestedError
		if !errors.Is(err, ErrNested) || !errors.As(err, &nested) || nested.Advice == "" {
			t.Fatalf("got %v, want a NestedError", err)
		}
		of, _, _ := strings.Cut(strings.TrimPrefix(name, "Add"), ".")
		if of == "" {
			of = "Var"
		} else if of == "To" {
			of = "KeyMap"
		}
		if !strings.Contains(err.Error(), "locked."+of) || !strings.Contains(err.Error(), nested.Inside.String()) {
			t.Errorf("the error does not name both: %v", err)
		}
	}
	for name, call := range calls { // nothing is left locked
		for _, key := range []string{"a", "b", "c", "new"} {
			if err := caught(func() error { return call(w.v, w.k, w.m, key) }); err != nil {
				t.Errorf("afterwards %s: %v", name, err)
			}
			if err := caught(func() error { return call(w.v2, w.k2, w.m2, key) }); err != nil {
				t.Errorf("afterwards %s: %v", name, err)
			}
		}
	}
}

// What never waits is allowed inside of everything, on what is locked too.
func TestNeverWaits(t *testing.T) {
	for inside, enter := range insides {
		t.Run(inside, func(t *testing.T) {
			w := newWorld()
			if err := enter(w, func() {
				if err := caught(func() error {
					for range 2 {
						if w.v.Peek() != 1 || w.v2.Peek() != 1 {
							t.Error("Peek of a Var is wrong")
						}
						if n, ok := w.k.Peek("a"); n != 1 || !ok || !w.k.Contains("a") || w.k.Contains("new") {
							t.Error("Peek of a KeyMap is wrong")
						}
						if len(w.k.Keys()) != 2 || len(w.k2.Copy()) != 2 {
							t.Error("a copy of a KeyMap is wrong")
						}
						if s := fmt.Sprint(w.v, w.k, w.m2); s != "1 map[a:1 b:1] map[a:1 b:1]" {
							t.Errorf("they print as %s", s)
						}
						_ = w.m.String()
					}
					return nil
				}); err != nil {
					t.Error(err)
				}
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

// A goroutine that was started inside is another one: it waits, and is not refused.
func TestChildGoroutineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := NewVar(1)
		done := make(chan int, 1)
		v.Update(func(int) (int, error) {
			go func() { done <- v.Load() }()
			return 2, nil
		})
		if got := <-done; got != 2 {
			t.Errorf("the child sees %d, want 2", got)
		}
	})
}

// The advice points at the type that was probably wanted.
func TestAdvice(t *testing.T) {
	w := newWorld()
	for _, c := range []struct {
		inside, call, want string
		other              bool
	}{
		{"Var", "Var.Update", "was given the value", false},
		{"Var", "Var.Update", "stm.Vars", true},
		{"KeyMap", "KeyMap.Update", "locked.Map", false},
		{"Map", "Map.Synchronize", "one locked.Map", true},
		{"Map", "Var.Load", "Peek", true},
		{"transaction", "Var.Update", "AfterCommit", true},
		{"transaction", "Map.Load", "AfterCommit", true},
		{"Var", "Map.Load", "before", true},
		{"KeyMap", "Map.Copy", "before", true},
	} {
		v, k, m := w.v, w.k, w.m
		if c.other {
			v, k, m = w.v2, w.k2, w.m2
		}
		insides[c.inside](w, func() {
			err := caught(func() error { return calls[c.call](v, k, m, "b") })
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s inside of %s says %v, want something with %q", c.call, c.inside, err, c.want)
			}
			if strings.HasPrefix(c.call, "Map.") && strings.Contains(err.Error(), "Peek") {
				t.Errorf("%s inside of %s says %v, but a Map has no Peek", c.call, c.inside, err)
			}
		})
	}
}
