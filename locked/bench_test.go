package locked

import (
	"sync"
	"testing"
)

// The yardsticks are what a user would write by hand: a mutex and a function. Compare only
// figures of one run.

type record [3]int

func next(r record) (record, error) {
	r[0]++
	return r, nil
}

func nextOf(r record, _ bool) (record, error) { return next(r) }

func BenchmarkMutex(b *testing.B) {
	var mu sync.Mutex
	p := new(record)
	update := func(fn func(record) (record, error)) {
		mu.Lock()
		defer mu.Unlock()
		if r, err := fn(*p); err == nil {
			p = &r
		}
	}
	m := map[int]*record{7: p}
	var rw sync.RWMutex
	run(b, "load", func(int) { mu.Lock(); _ = *p; mu.Unlock() })
	run(b, "update", func(int) { update(next) })
	run(b, "RWMutex map load", func(i int) { rw.RLock(); _ = m[i&511]; rw.RUnlock() })
}

func BenchmarkVar(b *testing.B) {
	var v Var[record]
	var n Var[int]
	run(b, "Peek", func(int) { v.Peek() })
	run(b, "Load", func(int) { v.Load() })
	run(b, "Update", func(int) { v.Update(next) })
	run(b, "Add", func(int) { Add(&n, 1) })
}

func BenchmarkKeyMap(b *testing.B) {
	m, n := NewKeyMap[int, record](nil), NewKeyMap[int, int](nil)
	for i := range 512 {
		m.Store(i, record{})
	}
	run(b, "Peek", func(i int) { m.Peek(i & 511) })
	run(b, "Load", func(i int) { m.Load(i & 511) })
	run(b, "Update", func(int) { m.Update(7, nextOf) })
	run(b, "AddTo", func(int) { AddTo(n, 7, 1) })
	run(b, "GetOrCreate", func(i int) { m.GetOrCreate(i&511, notRun[record]) })
	run(b, "create and delete", func(i int) { m.Store(512+i, record{}); m.Delete(512 + i) })
}

func BenchmarkMap(b *testing.B) {
	all := make(map[int]record)
	for i := range 512 {
		all[i] = record{}
	}
	m := NewMap(all)
	run(b, "Load", func(i int) { m.Load(i & 511) })
	run(b, "Synchronize", func(i int) {
		m.Synchronize(func(s *Section[int, record]) error {
			s.Store(7, record{i})
			return nil
		})
	})
}

// run measures a call from one goroutine, and from one for each processor.
func run(b *testing.B, name string, call func(i int)) {
	b.Run(name+"/one", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			call(i)
		}
	})
	b.Run(name+"/shared", func(b *testing.B) {
		b.RunParallel(func(pb *testing.PB) {
			for i := 0; pb.Next(); i++ {
				call(i)
			}
		})
	})
}
