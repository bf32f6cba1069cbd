package core

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	replay = flag.Uint64("core.seed", 0, "the history to repeat and print, if it is not 0")
	most   = flag.Uint64("core.most", 0, "how many histories there are, if it is not 0")
)

// planOf is the world of a seed.
func planOf(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 7))
	p := plan{
		seed: seed, procs: 2 + r.IntN(3), nodes: 1 + r.IntN(4), keys: 2 + r.IntN(6), chaos: r.IntN(8) > 0,
		storm: 2*time.Second + time.Duration(r.IntN(3))*time.Second, memory: r.IntN(5) > 0, hot: r.IntN(3) > 0,
		lag: 200 * time.Millisecond, load: 20 * time.Millisecond, maxFloors: 1000, maxItems: 1000, picky: 0.05,
		reads: []time.Duration{4, 4, 25}[r.IntN(3)] * time.Millisecond, writes: []time.Duration{10, 40, 150}[r.IntN(3)] * time.Millisecond,
	}
	p.hard = []time.Duration{200, 1000, 5000}[r.IntN(3)] * time.Millisecond
	p.soft = p.hard
	if r.IntN(2) == 0 {
		p.soft = p.hard / 2
	}
	if r.IntN(2) == 0 {
		p.stale = p.hard
	}
	switch x := r.IntN(20); {
	case x < 6:
		p.versions = unversioned
	case x == 6:
		p.versions = deaf
	}
	switch {
	case r.IntN(3) == 0:
		p.zeroes = 0.4
	case p.versions == unversioned:
		p.zeroes = 1
	}
	if r.IntN(4) == 0 {
		p.maxFloors = p.keys / 2
	}
	if r.IntN(4) == 0 {
		p.maxItems = 2
	}
	if r.IntN(4) == 0 {
		p.load, p.hard, p.soft = 300*time.Millisecond, max(p.hard, time.Second), max(p.soft, 700*time.Millisecond)
	}
	return p
}

// history lets a world go through a storm, a calm and rest, and returns what was wrong.
func history(p plan, keep bool) *world {
	w := newWorld(p, keep)
	end := p.storm
	w.after(0, func() { w.writer(end + time.Second) })
	for i := range w.live {
		w.after(0, func() { w.reader(i, end+2*time.Second) })
	}
	if p.chaos {
		w.after(100*time.Millisecond, func() { w.havoc(end) })
	}
	w.run(end)
	w.heal()
	w.run(end + 2*time.Second + w.hard + w.stale + w.lag) // until everything that nobody invalidated has had its time
	for _, p := range w.live {
		for _, key := range w.names {
			p.post(w.upTo(time.Millisecond), func() {
				if w.versions != deaf {
					w.rows[key].promised = w.latest(key)
				}
				p.read(key, 0)
			})
		}
	}
	w.run(w.now + 3*time.Second)
	w.beats = false
	w.rest(10 * time.Second)
	w.atRest()
	return w
}

// atRest looks for what should have gone.
func (w *world) atRest() {
	for _, p := range w.live {
		f := p.front
		for what, n := range map[string]int{
			"reads without an answer": len(p.reading), "open flights": len(f.open), "operations": len(f.flights),
			"flights asleep": len(f.asleep), "flights past a node": len(f.running) + len(f.queue) + f.direct, "timers": len(f.timers),
			"actions": len(f.out), "loads": f.loads + len(f.turns), "pauses beyond the keys": max(len(f.pauses)-w.keys, 0),
		} {
			if n != 0 {
				w.fail("at rest %s has %d %s", p.name, n, what)
			}
		}
		for i := range f.nodes {
			if s := &f.nodes[i]; len(s.sight.present) > w.keys || s.probing || f.Out(i) && w.owns(i) {
				w.fail("at rest %s has %d keys of node%d in mind, probes it: %v, thinks it is out: %v", p.name, len(s.sight.present), i,
					s.probing, f.Out(i))
			}
		}
	}
	for _, n := range w.all {
		h, left := n.home, 0
		for _, l := range h.leases {
			if l.until > n.now() {
				left++
			}
		}
		floors := len(h.floors.present) + len(h.floors.former)
		if left > 0 || len(h.leases) > w.keys || len(h.failed) > w.keys || floors > 2*w.keys || floors > w.maxFloors || h.items.len() > w.maxItems {
			w.fail("at rest node%d has %d leases that last, %d in all, %d failures, %d floors, %d items", n.index, left, len(h.leases),
				len(h.failed), floors, h.items.len())
		}
	}
}

// TestHistories lets several hundred worlds, in which everything goes wrong that may, show an invalidated version, a
// read without an answer, or anything that stays behind. With LATCHKEY_SOAK it is ten thousand.
func TestHistories(t *testing.T) {
	if *replay != 0 {
		w := history(planOf(*replay), true)
		fmt.Printf("%+v\n%s\n", w.plan, strings.Join(w.log, "\n"))
		if w.err != nil {
			t.Fatal(w.err)
		}
		return
	}
	seeds := uint64(300)
	if testing.Short() {
		seeds = 60
	}
	if os.Getenv("LATCHKEY_SOAK") != "" {
		seeds = 10_000
	}
	if *most != 0 {
		seeds = *most
	}
	var next, failed atomic.Uint64
	var mu sync.Mutex
	var all sync.WaitGroup
	counts := map[string]int{}
	for range runtime.GOMAXPROCS(0) {
		all.Add(1)
		go func() {
			defer all.Done()
			for seed := next.Add(1); seed <= seeds && failed.Load() == 0; seed = next.Add(1) {
				w := history(planOf(seed), false)
				mu.Lock()
				for what, n := range w.counts {
					counts[what] += n
				}
				mu.Unlock()
				if w.err != nil {
					failed.Store(seed)
				}
			}
		}()
	}
	all.Wait()
	if seed := failed.Load(); seed != 0 {
		printed(t, seed)
		return
	}
	t.Log(counts)
	for _, what := range []string{
		"memory", "copy", "home", "load", "stale", "stale_on_error", "failed_load", "failed_shared", "failed_outdated", "shed", "stored",
		"lost lease", "outdated", "renewed", "invalidated", "invalidation given up", "node forgot floors", "dropped node",
		"crash between commit and invalidation", "feed cut", "pause", "kill", "restart", "outage", "evicted", "lease lost",
	} {
		if counts[what] == 0 {
			t.Errorf("in no history is there any %q", what)
		}
	}
}

// printed fails with the end of a history that went wrong.
func printed(t *testing.T, seed uint64) {
	w := history(planOf(seed), true)
	const last = 400
	log := w.log[max(len(w.log)-last, 0):]
	t.Errorf("seed %d, %+v: %v\nthe last of its %d events; go test -run TestHistories -args -core.seed=%d prints them all:\n%s",
		seed, w.plan, w.err, len(w.log), seed, strings.Join(log, "\n"))
}

// TestSameSeedSameHistory shows that a history can be had again.
func TestSameSeedSameHistory(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		a, b := history(planOf(seed), true), history(planOf(seed), true)
		if strings.Join(a.log, "\n") != strings.Join(b.log, "\n") {
			t.Errorf("seed %d gives two histories", seed)
		}
	}
}

// owns tells whether a node is asked for anything but copies.
func (w *world) owns(node int) bool {
	return slices.ContainsFunc(w.names, func(key string) bool { return w.ring.Owner(key) == node })
}
