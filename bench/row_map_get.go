package main

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

const (
	pointerMap = "atomic pointer to a map"
	lockedMap  = "map + RWMutex"
	written    = ", a writer at it"
	elsewhere  = ", a writer at another map"

	objects = "objects allocated a read"
	writes  = "writes a second"
)

// number is the value of a key in the rows about reading: which key it is of, and above
// that which write. So a read can be checked without another look into memory.
func number(i, write int) int64 { return int64(write)<<32 | int64(i) }

// reader is a map to read, and a way to change it.
type reader struct {
	name string
	get  func(key string) (int64, bool)
	set  func(i, write int) error
}

// mapGet is the price of a read, at rest and while one goroutine writes all the time.
func mapGet(n int) row {
	name, title := mapPrefix+"-get", "Read a number from a map of %d keys, at rest and while another goroutine writes without a pause"
	if n == mapMany {
		name += "-100k"
	}
	r := row{name: name, title: fmt.Sprintf(title, n)}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		keys := mapKeys(n)
		asked := mapKeys(n) // other texts, as those are that come with a request
		own, err := e.localReader(ctx, keys)
		if err != nil {
			return nil, nil, err
		}
		other, err := e.localReader(ctx, keys)
		if err != nil {
			return nil, nil, err
		}
		pointer, locked := pointerReader(keys), lockedReader(keys)
		arms := []rounds.Arm{
			own.arm(asked, own.name, nil), own.arm(asked, own.name+written, own.set), own.arm(asked, own.name+elsewhere, other.set),
			pointer.arm(asked, pointer.name, nil), pointer.arm(asked, pointer.name+written, pointer.set),
			locked.arm(asked, locked.name, nil), locked.arm(asked, locked.name+written, locked.set),
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: arms, Ours: ours, Peer: pointerMap, Value: rounds.Each, Unit: "ns a read", Smaller: true,
			Pairs: []rounds.Pair{{Ours: ours + written, Peer: ours}, {Ours: ours + written, Peer: ours + elsewhere}, {Ours: ours, Peer: lockedMap}},
		}, e.shorter())
		if err != nil {
			return nil, nil, err
		}
		claims := []rounds.Claim{
			{What: objects + ", most", Got: res.Arm(ours).Facts[objects].Most, Reach: 0.001, Smaller: true},
			{
				What: "time of a read while one writes without a pause, of the same while it writes to another map", Unit: "×",
				Got: res.Pair(ours+written, ours+elsewhere).Worse, Reach: 1.15, Smaller: true,
			},
		}
		if n == mapFew {
			claims = append(claims, rounds.Claim{
				What: "time of a read, of an atomic pointer to a Go map", Unit: "×", Got: res.Worse, Reach: 1.5, Smaller: true,
			})
		}
		return res, claims, nil
	}
	return r
}

// localNumbers is a copy of a map whose store is this process, and is filled.
func (e *env) localNumbers(ctx context.Context, keys []string) (*rmap.Map[string, int64], error) {
	store := rmaplocal.New(rmaplocal.Options{})
	e.later(func() error { store.Close(); return nil })
	m, err := rmap.Join(ctx, store, mapName, rmap.Options[string, int64]{})
	if err != nil {
		return nil, err
	}
	e.later(func() error { m.Close(); return nil })
	return m, fillMap(ctx, m, keys, func(i int) int64 { return number(i, 0) })
}

func (e *env) localReader(ctx context.Context, keys []string) (reader, error) {
	m, err := e.localNumbers(ctx, keys)
	if err != nil {
		return reader{}, err
	}
	return reader{ours, m.Get, func(i, write int) error {
		_, err := m.Set(ctx, keys[i], number(i, write))
		return err
	}}, nil
}

func numbers(keys []string) map[string]int64 {
	all := make(map[string]int64, len(keys))
	for i, k := range keys {
		all[k] = number(i, 0)
	}
	return all
}

// pointerReader is what the quickest copy could be: writers copy the map.
func pointerReader(keys []string) reader {
	p := new(atomic.Pointer[map[string]int64])
	all := numbers(keys)
	p.Store(&all)
	return reader{pointerMap, func(key string) (int64, bool) {
		v, ok := (*p.Load())[key]
		return v, ok
	}, func(i, write int) error {
		next := maps.Clone(*p.Load())
		next[keys[i]] = number(i, write)
		p.Store(&next)
		return nil
	}}
}

func lockedReader(keys []string) reader {
	var mu sync.RWMutex
	all := numbers(keys)
	return reader{lockedMap, func(key string) (int64, bool) {
		mu.RLock()
		defer mu.RUnlock()
		v, ok := all[key]
		return v, ok
	}, func(i, write int) error {
		mu.Lock()
		defer mu.Unlock()
		all[keys[i]] = number(i, write)
		return nil
	}}
}

// arm reads all keys in turn, while write, if there is one, is called without a pause.
func (r reader) arm(keys []string, name string, write func(i, write int) error) rounds.Arm {
	setting := "1 reader, at rest"
	if write != nil {
		setting = "1 reader, 1 writer"
	}
	return rounds.Arm{
		Name: name, Setting: setting + ", no connection",
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			if write == nil {
				return r.read(ctx, keys, d)
			}
			w := &busyWriter{write: write, keys: len(keys)}
			w.start()
			s, err := r.read(ctx, keys, d)
			n, failed := w.stop()
			if err == nil {
				err = failed
			}
			if s.Elapsed > 0 {
				s.Facts = map[string]float64{writes: float64(n) / s.Elapsed.Seconds()}
			}
			return s, err
		},
		Check: func(context.Context, *rounds.Sample) error { // each read was checked
			for i, k := range keys {
				if v, ok := r.get(k); !ok || int32(v) != int32(i) {
					return rounds.Wrong("under %q there is %x, %t", k, v, ok)
				}
			}
			return nil
		},
	}
}

// read reads for about d. The clock is read once in a batch.
func (r reader) read(ctx context.Context, keys []string, d time.Duration) (rounds.Sample, error) {
	const batch = 1 << 10
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	at, ops, start := 0, 0, time.Now()
	for time.Since(start) < d {
		for range batch {
			v, ok := r.get(keys[at])
			if !ok || int32(v) != int32(at) {
				return rounds.Sample{}, rounds.Wrong("under %q there is %x, %t", keys[at], v, ok)
			}
			if at++; at == len(keys) {
				at = 0
			}
		}
		ops += batch
	}
	s := rounds.Sample{Ops: ops, Elapsed: time.Since(start)}
	runtime.ReadMemStats(&after)
	s.Facts = map[string]float64{objects: float64(after.Mallocs-before.Mallocs) / float64(ops)}
	return s, ctx.Err()
}

// busyWriter writes from a goroutine of its own, key after key.
type busyWriter struct {
	write func(i, write int) error
	keys  int

	end  atomic.Bool
	done chan struct{} // closed when the goroutine is over, and then the rest may be read
	n    int
	err  error
}

func (w *busyWriter) start() {
	w.done = make(chan struct{})
	go func() { // ends with stop
		defer close(w.done)
		for !w.end.Load() && w.err == nil {
			w.err = w.write(w.n%w.keys, w.n)
			w.n++
		}
	}()
}

// stop ends it and returns how much it wrote.
func (w *busyWriter) stop() (int, error) {
	w.end.Store(true)
	<-w.done
	return w.n, w.err
}

// mapSnapshot is the price of all of the map at one moment.
func mapSnapshot() row {
	r := row{name: mapPrefix + "-snapshot", title: fmt.Sprintf("Snapshot of a map of %d keys, against one of %d keys and a copy of a Go map", mapMany, mapFew)}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		const few = ours + ", few keys"
		var arms []rounds.Arm
		for _, c := range []struct {
			name string
			n    int
		}{{ours, mapMany}, {few, mapFew}} {
			m, err := e.localNumbers(ctx, mapKeys(c.n))
			if err != nil {
				return nil, nil, err
			}
			arms = append(arms, takes(c.name, c.n, 1<<10, func() int { return m.Snapshot().Len() }))
		}
		all := numbers(mapKeys(mapMany))
		arms = append(arms, takes("maps.Clone", mapMany, 1, func() int { return len(maps.Clone(all)) }))
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: arms, Ours: ours, Peer: few, Value: rounds.Each, Unit: "ns a snapshot", Smaller: true,
			Pairs: []rounds.Pair{{Ours: ours, Peer: "maps.Clone"}},
		}, e.shorter())
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{
			{What: "time of a snapshot, upper quartile", Unit: "ns", Got: res.Arm(ours).Value.High, Reach: 1000, Smaller: true},
			{What: fmt.Sprintf("time of a snapshot of %d keys, of one of %d", mapMany, mapFew), Unit: "×", Got: res.Worse, Reach: 1.15, Smaller: true},
		}, nil
	}
	return r
}

// takes makes an arm that takes one snapshot after another, each of n entries.
func takes(name string, n, batch int, snapshot func() int) rounds.Arm {
	return rounds.Arm{
		Name: name, Setting: fmt.Sprintf("%d keys, 1 reader, no connection", n),
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			ops, start := 0, time.Now()
			for time.Since(start) < d {
				for range batch {
					if got := snapshot(); got != n {
						return rounds.Sample{}, rounds.Wrong("a snapshot has %d entries, not %d", got, n)
					}
				}
				ops += batch
			}
			return rounds.Sample{Ops: ops, Elapsed: time.Since(start)}, ctx.Err()
		},
		Check: func(context.Context, *rounds.Sample) error { return nil }, // each was checked
	}
}
