package inproc

import (
	"sync"
	"sync/atomic"

	cmap "github.com/orcaman/concurrent-map/v2"
	"github.com/puzpuzpuz/xsync/v4"
)

func mapped() []Subject {
	return []Subject{
		{Labels: everywhere("map + Mutex"), Map: true, New: newMutexMap},
		{Labels: everywhere(rwMap), Map: true, New: newRWMap},
		{Labels: label("sync.Map", "sync.Map Load + CAS", "sync.Map Load + CAS", "sync.Map of *atomic.Int64"), Map: true, New: newSyncMap},
		{Labels: label("xsync.Map", "xsync.Map Compute", "xsync.Map Compute", "xsync.Map Compute"), Map: true, New: newXsync},
		{Labels: label("concurrent-map", "concurrent-map Upsert", "concurrent-map Upsert", "concurrent-map Upsert"), Map: true, New: newConcurrentMap},
	}
}

// entries is a map with a record for each key, and one with a number.
type entries[L any] struct {
	_  apart
	mu L
	r  map[string]*Record
	n  map[string]int64
	_  apart
}

func (x *entries[L]) fill() *entries[L] {
	x.r, x.n = make(map[string]*Record), make(map[string]int64)
	for k := range keys {
		x.r[name(k)], x.n[name(k)] = begin(), 0
	}
	return x
}

func (x *entries[L]) state(key int) (Record, int64) { return *x.r[name(key)], x.n[name(key)] }

func newMutexMap(int) (Thing, error) {
	x := new(entries[sync.Mutex]).fill()
	return Thing{State: x.state, Worker: func(key int) Worker {
		k := name(key)
		return Worker{
			Read: func() Record {
				x.mu.Lock()
				r := *x.r[k]
				x.mu.Unlock()
				return r
			},
			Write: func() {
				x.mu.Lock()
				x.r[k] = next(x.r[k])
				x.mu.Unlock()
			},
			Add: func() {
				x.mu.Lock()
				x.n[k]++
				x.mu.Unlock()
			},
		}
	}}, nil
}

func newRWMap(int) (Thing, error) {
	x := new(entries[sync.RWMutex]).fill()
	return Thing{State: x.state, Worker: func(key int) Worker {
		k := name(key)
		return Worker{
			Read: func() Record {
				x.mu.RLock()
				r := *x.r[k]
				x.mu.RUnlock()
				return r
			},
			Write: func() {
				x.mu.Lock()
				x.r[k] = next(x.r[k])
				x.mu.Unlock()
			},
			Add: func() {
				x.mu.Lock()
				x.n[k]++
				x.mu.Unlock()
			},
		}
	}}, nil
}

func newSyncMap(int) (Thing, error) {
	type counter struct {
		atomic.Int64
		_ apart
	}
	var x struct {
		_    apart
		r, n sync.Map
		_    apart
	}
	for k := range keys {
		x.r.Store(name(k), begin())
		x.n.Store(name(k), new(counter))
	}
	load := func(k string) *Record {
		v, _ := x.r.Load(k)
		return v.(*Record)
	}
	count := func(k string) *counter {
		v, _ := x.n.Load(k)
		return v.(*counter)
	}
	return Thing{
		Worker: func(key int) Worker {
			k := name(key)
			return Worker{
				Read: func() Record { return *load(k) },
				Write: func() {
					old := load(k)
					for !x.r.CompareAndSwap(k, old, next(old)) {
						old = load(k)
					}
				},
				Add: func() { count(k).Add(1) },
			}
		},
		State: func(key int) (Record, int64) { return *load(name(key)), count(name(key)).Load() },
	}, nil
}

func newXsync(int) (Thing, error) {
	r, n := xsync.NewMap[string, *Record](), xsync.NewMap[string, int64]()
	for k := range keys {
		r.Store(name(k), begin())
		n.Store(name(k), 0)
	}
	load := func(k string) Record {
		v, _ := r.Load(k)
		return *v
	}
	replace := func(old *Record, _ bool) (*Record, xsync.ComputeOp) { return next(old), xsync.UpdateOp }
	add := func(old int64, _ bool) (int64, xsync.ComputeOp) { return old + 1, xsync.UpdateOp }
	return Thing{
		Worker: func(key int) Worker {
			k := name(key)
			return Worker{
				Read:  func() Record { return load(k) },
				Write: func() { r.Compute(k, replace) },
				Add:   func() { n.Compute(k, add) },
			}
		},
		State: func(key int) (Record, int64) {
			count, _ := n.Load(name(key))
			return load(name(key)), count
		},
	}, nil
}

func newConcurrentMap(int) (Thing, error) {
	r, n := cmap.New[*Record](), cmap.New[int64]()
	for k := range keys {
		r.Set(name(k), begin())
		n.Set(name(k), 0)
	}
	load := func(k string) Record {
		v, _ := r.Get(k)
		return *v
	}
	replace := func(_ bool, old, _ *Record) *Record { return next(old) }
	add := func(_ bool, old, by int64) int64 { return old + by }
	return Thing{
		Worker: func(key int) Worker {
			k := name(key)
			return Worker{
				Read:  func() Record { return load(k) },
				Write: func() { r.Upsert(k, nil, replace) },
				Add:   func() { n.Upsert(k, 1, add) },
			}
		},
		State: func(key int) (Record, int64) {
			count, _ := n.Get(name(key))
			return load(name(key)), count
		},
	}, nil
}
