package locked

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// plan is a random section: steps, some of which are inner sections, and how it ends.
type plan struct {
	steps  []step
	ending string // one of the endings, or "" for success
}

type step struct {
	what       string
	key, value int
	inner      *plan
}

func drawPlan(t *rapid.T, depth int) *plan {
	p := &plan{ending: rapid.SampledFrom([]string{"", "", "", "error", "panic"}).Draw(t, "ending")}
	for range rapid.IntRange(0, 12).Draw(t, "steps") {
		s := step{
			what:  rapid.SampledFrom([]string{"store", "store", "store", "delete", "delete", "load", "inner", "clear", "each"}).Draw(t, "step"),
			key:   rapid.IntRange(0, 12).Draw(t, "key"),
			value: rapid.IntRange(1, 1000).Draw(t, "value"),
		}
		if s.what == "inner" {
			if depth == 0 {
				continue
			}
			s.inner = drawPlan(t, depth-1)
		}
		p.steps = append(p.steps, s)
	}
	return p
}

// apply runs a plan as a section of the map and on the model, which it returns.
func (p *plan) apply(t *rapid.T, m *Map[int, int], before map[int]int) map[int]int {
	model := maps.Clone(before)
	err := caught(func() error {
		return m.Synchronize(func(s *Section[int, int]) error {
			for _, x := range p.steps {
				model = x.apply(t, m, s, model)
				if s.Len() != len(model) {
					t.Fatalf("Len is %d, want %d", s.Len(), len(model))
				}
			}
			if got := maps.Collect(s.All()); !maps.Equal(got, model) || !maps.Equal(m.Copy(), model) {
				t.Fatalf("the section sees %v, want %v", got, model)
			}
			if p.ending != "" {
				return endings[p.ending]()
			}
			return nil
		})
	})
	if p.ending == "" {
		if err != nil {
			t.Fatalf("a section fails: %v", err)
		}
		return model
	}
	if err != errNo {
		t.Fatalf("a failed section gives %v, want %v", err, errNo)
	}
	return before
}

func (x step) apply(t *rapid.T, m *Map[int, int], s *Section[int, int], model map[int]int) map[int]int {
	switch x.what {
	case "store":
		s.Store(x.key, x.value)
		model[x.key] = x.value
	case "delete":
		v, ok := s.Delete(x.key)
		if want, there := model[x.key]; v != want || ok != there {
			t.Fatalf("Delete gives %d, %v, want %d, %v", v, ok, want, there)
		}
		delete(model, x.key)
	case "load":
		v, ok := s.Load(x.key)
		if want, there := model[x.key]; v != want || ok != there || s.Contains(x.key) != ok || m.LoadOr(x.key, zero) != v || m.Contains(x.key) != ok {
			t.Fatalf("Load gives %d, %v, want %d, %v", v, ok, want, there)
		}
	case "clear":
		s.Clear()
		clear(model)
	case "inner":
		return x.inner.apply(t, m, model)
	case "each":
		seen := make(map[int]bool)
		for k, v := range s.All() {
			if seen[k] || model[k] != v {
				t.Fatalf("All yields %d with %d, want %d; seen before: %v", k, v, model[k], seen[k])
			}
			seen[k] = true
			switch { // change it on the way
			case k%4 == x.key%4:
				s.Store(k+x.value, v)
				model[k+x.value] = v
			case k%4 == 1:
				s.Delete(k)
				delete(model, k)
			case k == x.key:
				s.Clear()
				clear(model)
			}
			if len(seen) > 40 {
				break
			}
		}
	}
	return model
}

// A Map does what a map does, section by section; what fails is undone, inner sections alone.
func TestMapModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := rapid.MapOfN(rapid.IntRange(0, 12), rapid.Int(), 0, 12).Draw(t, "initial")
		m := NewMap(model)
		model = maps.Clone(model)
		for range rapid.IntRange(1, 6).Draw(t, "sections") {
			model = drawPlan(t, 3).apply(t, m, model)
			m.check(t, model)
		}
	})
}

// check compares a map that is at rest with a model, and looks at what it keeps.
func (m *Map[K, V]) check(t interface{ Fatalf(string, ...any) }, model map[K]V) {
	keys := m.Keys()
	for _, k := range keys {
		if _, ok := model[k]; !ok || !m.Contains(k) {
			t.Fatalf("key %v is there, want %v", k, model)
		}
	}
	if got, want := m.String(), fmt.Sprint(model); got != want || len(keys) != len(model) {
		t.Fatalf("the map is %s with %d keys, want %s", got, len(keys), want)
	}
	n := 0
	for range m.index.all {
		n++
	}
	if n != len(model) || m.index.live != n || m.size != n || len(m.undo) != 0 || m.lock.word.Load()&flags != 0 {
		t.Fatalf("%d entries, counted %d and %d, %d steps to undo, flags %b; want %d entries and nothing else",
			n, m.index.live, m.size, len(m.undo), m.lock.word.Load()&flags, len(model))
	}
}

// However a section fails, all of it is undone and the map goes on.
func TestSectionFails(t *testing.T) {
	for name, fail := range endings {
		t.Run(name, func(t *testing.T) {
			start := map[string]int{"a": 1, "b": 2, "c": 3}
			m := NewMap(start)
			err := ended(func() error {
				return m.Synchronize(func(s *Section[string, int]) error {
					s.Store("a", 10)
					s.Delete("b")
					s.Store("new", 1)
					s.Clear()
					s.Store("b", 20)
					return fail()
				})
			})
			if name != "goexit" && err != errNo {
				t.Errorf("the caller gets %v, want %v", err, errNo)
			}
			m.check(t, start)
		})
	}
}

// An inner section that fails undoes itself only; one that succeeds is undone with the outer one.
func TestInnerSection(t *testing.T) {
	m := NewMap(map[string]int{"a": 1})
	var kept *Section[string, int]
	err := m.Synchronize(func(s *Section[string, int]) error {
		s.Store("outer", 1)
		if err := m.Synchronize(func(in *Section[string, int]) error {
			kept = in
			in.Store("a", 2)
			s.Store("outer", 2) // the outer handle works on the same state
			in.Store("inner", 1)
			return errNo
		}); err != errNo {
			t.Errorf("the inner section gives %v", err)
		}
		if got := m.Copy(); !maps.Equal(got, map[string]int{"a": 1, "outer": 1}) {
			t.Errorf("after an inner failure there is %v", got)
		}
		return m.Synchronize(func(in *Section[string, int]) error { in.Store("inner", 3); return nil })
	})
	if err != nil {
		t.Error(err)
	}
	m.check(t, map[string]int{"a": 1, "outer": 1, "inner": 3})
	mustPanic(t, "used after the function", func() { kept.Store("a", 1) })
	m.Synchronize(func(s *Section[string, int]) error {
		mustPanic(t, "used after the function", func() { kept.Load("a") })
		return m.Synchronize(func(*Section[string, int]) error { s.Clear(); return nil })
	})
	m.check(t, map[string]int{})
}

// A section is void after its end, whatever it is used for.
func TestSectionIsVoid(t *testing.T) {
	m := NewMap(map[string]int{"a": 1, "b": 2})
	var kept *Section[string, int]
	var all func(func(string, int) bool)
	m.Synchronize(func(s *Section[string, int]) error { kept, all = s, s.All(); return nil })
	for name, use := range map[string]func(){
		"Load": func() { kept.Load("a") }, "Contains": func() { kept.Contains("a") }, "Store": func() { kept.Store("a", 1) },
		"Delete": func() { kept.Delete("a") }, "Clear": func() { kept.Clear() }, "Len": func() { kept.Len() },
		"All": func() { all(func(string, int) bool { return true }) },
	} {
		t.Run(name, func(t *testing.T) { mustPanic(t, "used after the function", use) })
	}
	m.check(t, map[string]int{"a": 1, "b": 2})
}

func mustPanic(t *testing.T, with string, call func()) {
	t.Helper()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, with) {
			t.Errorf("panics with %q, want %q in it", text, with)
		}
	}()
	call()
}

// Readers wait for a section in flight, so that all of it is one step for them; String says so
// instead.
func TestMapReadsDuringSection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMap(map[string]int{"a": 1})
		leave := make(chan struct{})
		go m.Synchronize(func(s *Section[string, int]) error { s.Store("a", 2); s.Store("b", 2); <-leave; return nil })
		synctest.Wait()
		if got := m.String(); got != "a locked.Map in a section" {
			t.Errorf("String gives %q", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, _, err := m.LoadContext(ctx, "a"); !errors.Is(err, context.Canceled) {
			t.Errorf("LoadContext: %v", err)
		}
		if err := m.SynchronizeContext(ctx, func(*Section[string, int]) error { t.Error("it runs"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("SynchronizeContext: %v", err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			if v, ok := m.Load("a"); v != 2 || !ok {
				t.Errorf("Load sees %d, %v", v, ok)
			}
		})
		wg.Go(func() {
			if got := m.Copy(); !maps.Equal(got, map[string]int{"a": 2, "b": 2}) {
				t.Errorf("Copy sees %v", got)
			}
		})
		wg.Go(func() {
			if got := len(m.Keys()); got != 2 {
				t.Errorf("Keys sees %d keys", got)
			}
		})
		synctest.Wait()
		close(leave)
		wg.Wait()
		if err := m.SynchronizeContext(ctx, func(*Section[string, int]) error { t.Error("it runs"); return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("SynchronizeContext of a map that is free: %v", err)
		}
	})
}

// Sections move an amount between keys, create and delete them, and fail half way; every
// snapshot has the same sum, and what a reader finds is of no section that failed.
func TestSnapshotsAreConsistent(t *testing.T) {
	const keys, sum = 20, 2000
	start := make(map[int]int)
	for k := range keys {
		start[k] = sum / keys
	}
	m := NewMap(start)
	var stop atomic.Bool
	var writers, readers sync.WaitGroup
	for w := range 3 {
		writers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				from, to := (i*7+w)%keys, (i*3+w*5)%keys
				m.Synchronize(func(s *Section[int, int]) error {
					had, _ := s.Delete(from)
					runtime.Gosched()
					if i%3 == 0 {
						s.Clear()
						s.Store(to, -1_000_000)
						return errNo
					}
					has, _ := s.Load(to)
					s.Store(to, has+had)
					return nil
				})
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for i := range 2000 {
				total := 0
				m.snapshot("", func() { total = 0 }, func(_, v int) {
					total += v
					if i%10 == 0 {
						runtime.Gosched() // lets a whole section pass in the middle
					}
				})
				if v, _ := m.Load(i % keys); total != sum || v < 0 {
					t.Errorf("a snapshot has the sum %d, want %d; a key has %d", total, sum, v)
				}
			}
		})
	}
	readers.Wait()
	stop.Store(true)
	writers.Wait()
	m.check(t, m.Copy())
}

// A snapshot in the middle of which a whole section passes begins anew.
func TestSnapshotBeginsAnew(t *testing.T) {
	const keys = 10
	m := NewMap[int, int](nil)
	m.Synchronize(func(s *Section[int, int]) error {
		for k := range keys {
			s.Store(k, 1)
		}
		return nil
	})
	begun, total := 0, 0
	m.snapshot("", func() { begun++; total = 0 }, func(k, v int) {
		total += v
		if begun == 1 { // give all to this key
			m.Synchronize(func(s *Section[int, int]) error {
				s.Clear()
				s.Store(k, keys)
				return nil
			})
		}
	})
	if begun != 2 || total != keys {
		t.Errorf("a snapshot that began %d times has the sum %d, want 2 and %d", begun, total, keys)
	}
}

// Keys that came and went leave nothing behind.
func TestMapMemory(t *testing.T) {
	const n = 50_000
	m := NewMap[int, [4]int](nil)
	before := heap()
	for i := range n {
		m.Synchronize(func(s *Section[int, [4]int]) error { s.Store(i, [4]int{}); return nil })
	}
	for _, k := range slices.Sorted(slices.Values(m.Keys())) {
		m.Synchronize(func(s *Section[int, [4]int]) error { s.Delete(k); return nil })
	}
	m.Synchronize(func(s *Section[int, [4]int]) error {
		for i := range n {
			s.Store(i, [4]int{})
		}
		return errNo
	})
	if left := heap() - before; left > 64<<10 {
		t.Errorf("%d bytes are left, want next to none", left)
	}
	m.check(t, map[int][4]int{})
}

// Reads allocate nothing; a section costs its handle, and each stored value one more.
func TestMapAllocations(t *testing.T) {
	m := NewMap(map[string]record{"k": {}})
	for name, c := range map[string]struct {
		want float64
		call func()
	}{
		"Load":     {0, func() { m.Load("k") }},
		"a miss":   {0, func() { m.Load("none") }},
		"Contains": {0, func() { m.Contains("k") }},
		"a section that stores": {2, func() {
			m.Synchronize(func(s *Section[string, record]) error { s.Store("k", record{}); return nil })
		}},
		"a section that reads": {1, func() {
			m.Synchronize(func(s *Section[string, record]) error { s.Load("k"); return nil })
		}},
	} {
		if got := testing.AllocsPerRun(100, c.call); got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
	}
}
