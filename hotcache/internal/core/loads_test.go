package core

import (
	"testing"
	"time"
)

// calm is a world in which nothing goes wrong and nobody writes: one key, four processes.
func calm(change func(*plan)) *world {
	p := plan{
		seed: 1, procs: 4, nodes: 1, keys: 1, memory: true, soft: time.Second, hard: time.Second, load: 50 * time.Millisecond,
		maxFloors: 100, maxItems: 100, reads: time.Millisecond,
	}
	if change != nil {
		change(&p)
	}
	w := newWorld(p, false)
	w.rows["k0"].commits[0].absent = false
	w.all[0].home.born = -time.Hour
	return w
}

// end lets everything come to rest.
func (w *world) end(t *testing.T) {
	t.Helper()
	w.beats = false
	w.rest(10 * time.Second)
	w.atRest()
	if w.err != nil {
		t.Error(w.err)
	}
}

// TestOneLoadPerExpiry: however many read, in however many processes.
func TestOneLoadPerExpiry(t *testing.T) {
	for name, change := range map[string]func(*plan){
		"expiry":    nil,
		"no memory": func(p *plan) { p.memory = false },
		"refresh":   func(p *plan) { p.soft = p.hard / 2 },
		"stale":     func(p *plan) { p.stale = p.hard },
		"slow":      func(p *plan) { p.load = 3 * time.Second; p.hard, p.soft = 10*time.Second, 10*time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			w := calm(change)
			const long = 20 * time.Second
			for i := range w.live {
				w.after(0, func() { w.reader(i, long) })
			}
			w.run(long)
			w.end(t)
			if got, want := w.loads["k0"], 1+int(long/w.soft); got > want || got < want/2 {
				t.Errorf("%d loads in %v, want %d at most: %v", got, long, want, w.counts)
			}
			if w.counts["read"] < 1000 || w.counts["failed_load"]+w.counts["failed_shared"] > 0 {
				t.Error(w.counts)
			}
		})
	}
}

// TestFailedLoadIsShared: a hundred readers of a loader that fails make few loads, and none waits long.
func TestFailedLoadIsShared(t *testing.T) {
	w := calm(nil)
	w.failed, w.rough = true, true // so that errors are no surprise
	for i := range 100 {
		p := w.live[i%len(w.live)]
		p.post(10*time.Millisecond, func() { p.read("k0", 0) })
	}
	w.run(10*time.Millisecond + 2*w.load)
	for _, p := range w.live {
		if len(p.reading) > 0 {
			t.Errorf("%d readers of %s still wait", len(p.reading), p.name)
		}
	}
	w.end(t)
	if n := w.loads["k0"]; n > 4 {
		t.Errorf("%d loads", n)
	}
}

// TestKilledFillerIsReplaced: within a second, in another process.
func TestKilledFillerIsReplaced(t *testing.T) {
	w := calm(nil)
	w.live[0].post(0, func() { w.live[0].read("k0", 0) })
	w.after(10*time.Millisecond, func() {
		for _, p := range w.live[1:] {
			p.read("k0", 0)
		}
	})
	w.after(20*time.Millisecond, w.live[0].kill)
	w.run(20*time.Millisecond + time.Second + 2*w.load)
	for _, p := range w.live[1:] {
		if len(p.reading) > 0 {
			t.Errorf("%s still waits", p.name)
		}
	}
	if n := w.loads["k0"]; n != 2 {
		t.Errorf("%d loads", n)
	}
	w.live = w.live[1:]
	w.end(t)
}
