package inproc

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"

	cmap "github.com/orcaman/concurrent-map/v2"
	"github.com/puzpuzpuz/xsync/v4"

	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// store is a map as far as keys come and go in it.
type store struct {
	name   string
	put    func(key string, r Record)
	get    func(key string) (Record, bool)
	remove func(key string)
}

// stores makes one of each map, empty.
func stores() []func() store {
	return []func() store{
		keyMapStore,
		func() store {
			var mu sync.Mutex
			m := make(map[string]*Record)
			return store{
				"map + Mutex",
				func(k string, r Record) { mu.Lock(); m[k] = &r; mu.Unlock() },
				func(k string) (Record, bool) {
					mu.Lock()
					defer mu.Unlock()
					return found(m[k], m[k] != nil)
				},
				func(k string) { mu.Lock(); delete(m, k); mu.Unlock() },
			}
		},
		func() store {
			var m sync.Map
			return store{
				"sync.Map",
				func(k string, r Record) { m.Store(k, &r) },
				func(k string) (Record, bool) {
					v, ok := m.Load(k)
					if !ok {
						return Record{}, false
					}
					return *v.(*Record), true
				},
				func(k string) { m.Delete(k) },
			}
		},
		func() store {
			m := xsync.NewMap[string, *Record]()
			return store{
				"xsync.Map",
				func(k string, r Record) { m.Store(k, &r) },
				func(k string) (Record, bool) { return found(m.Load(k)) },
				func(k string) { m.Delete(k) },
			}
		},
		func() store {
			m := cmap.New[*Record]()
			return store{
				"concurrent-map",
				func(k string, r Record) { m.Set(k, &r) },
				func(k string) (Record, bool) { return found(m.Get(k)) },
				func(k string) { m.Remove(k) },
			}
		},
	}
}

func found(r *Record, ok bool) (Record, bool) {
	if !ok {
		return Record{}, false
	}
	return *r, true
}

// Memory is what keys that come and go leave behind.
type Memory struct {
	Subject string
	Keys    int
	PerKey  float64   // bytes of heap a key while all are there, its text and its record included
	Left    []float64 // bytes of heap when all have gone, after each wave
}

// waves are how often keys come and go, other ones each time.
const waves = 2

// MeasureMemory lets n keys come and go in each of the maps.
func MeasureMemory(ctx context.Context, n int) ([]Memory, error) {
	var all []Memory
	for _, open := range stores() {
		before := heap()
		s := open()
		m := Memory{Subject: s.name, Keys: n}
		for wave := range waves {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			if err := s.come(wave, n); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			if wave == 0 {
				m.PerKey = (heap() - before) / float64(n)
			}
			if err := s.leave(wave, n); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			m.Left = append(m.Left, heap()-before)
		}
		runtime.KeepAlive(s)
		all = append(all, m)
	}
	return all, nil
}

// come puts n keys of a wave.
func (s store) come(wave, n int) error {
	for i := range n {
		s.put(passing(wave, i), *record(int64(i)))
	}
	for i := range n {
		if r, ok := s.get(passing(wave, i)); !ok || r.Seq != int64(i) || r.Twin != ^r.Seq {
			return rounds.Wrong("key %d of wave %d was put and is %v, %v", i, wave, r, ok)
		}
	}
	return nil
}

// leave takes them away again.
func (s store) leave(wave, n int) error {
	for i := range n {
		s.remove(passing(wave, i))
	}
	for i := range n {
		if _, ok := s.get(passing(wave, i)); ok {
			return rounds.Wrong("key %d of wave %d was taken away and is there", i, wave)
		}
	}
	return nil
}

// passing is a key that comes and goes.
func passing(wave, i int) string { return "session-" + strconv.Itoa(wave) + "-" + strconv.Itoa(i) }

// heap is what is live.
func heap() float64 {
	runtime.GC()
	runtime.GC() // what pools hold is dropped by the second collection
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// MemoryTable renders what was measured.
func MemoryTable(all []Memory) report.Table {
	t := report.Table{
		Title: "heap of maps in which keys came and went",
		Head:  []string{"", "B a key while all are there"},
		Text: "A key is a text of about 16 bytes and a record of 24, both part of the figure. What is left is what the collector cannot take back, " +
			"in KiB, when every key of the wave has been deleted; each wave has keys of its own.",
	}
	for wave := range waves {
		t.Head = append(t.Head, fmt.Sprintf("left after wave %d", wave+1))
	}
	for _, m := range all {
		line := []string{m.Subject, report.Figure(m.PerKey)}
		for _, left := range m.Left {
			line = append(line, report.Figure(left/1024))
		}
		t.Lines = append(t.Lines, line)
	}
	return t
}

// MemoryClaims claims that ours leaves nothing behind.
func MemoryClaims(all []Memory) []rounds.Claim {
	var out []rounds.Claim
	for _, m := range all {
		if m.Subject == keyMapName {
			out = append(out, rounds.Claim{
				What: "heap left of a key that was deleted", Unit: "B", Reach: 5, Smaller: true,
				Got: max(0, m.Left[len(m.Left)-1]) / float64(m.Keys),
			})
		}
	}
	return out
}
