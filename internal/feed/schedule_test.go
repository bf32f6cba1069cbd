package feed_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A move is one thing that can happen in a world.
type move struct {
	name string
	can  func(w *world) bool
	do   func(w *world)
}

func always(*world) bool { return true }

func changeIsFirst(w *world) bool { return len(w.line) > 0 && w.line[0].change != nil }

// moves of the store first, then of the line, then of the follower.
func moves() []move {
	return []move{
		{"write a", always, func(w *world) { w.write(operation{key: 0}) }},
		{"write c", always, func(w *world) { w.write(operation{key: 2}) }},
		{"remove a", func(w *world) bool { return w.cur.data[0] != 0 }, func(w *world) { w.write(operation{remove: true}) }},
		{"clear", func(w *world) bool { return w.cur.at.Exists() }, func(w *world) { w.write(operation{clear: true}) }},
		{"expire", func(w *world) bool { return w.cur.at.Exists() }, (*world).expire},
		{"back 1", func(w *world) bool { return w.cur.from != nil }, func(w *world) { w.back(1) }},
		{"back 2", func(w *world) bool { return w.cur.from != nil && w.cur.from.from != nil }, func(w *world) { w.back(2) }},
		{"deliver", func(w *world) bool { return len(w.line) > 0 }, (*world).deliver},
		{"drop", changeIsFirst, (*world).drop},
		{"duplicate", changeIsFirst, func(w *world) { w.send(w.line[0]) }},
		{"swap", func(w *world) bool { return changeIsFirst(w) && len(w.line) > 1 && w.line[1].change != nil }, (*world).swap},
		{"cut", always, (*world).cut},
		{"ask", func(w *world) bool { return w.stage == quiet && !w.scanning }, func(w *world) { w.ask(toCheck) }},
		{"answer", func(w *world) bool { return w.stage == asking }, (*world).answer},
		{"conclude", func(w *world) bool { return w.stage == answered }, (*world).conclude},
		{"scan", func(w *world) bool { return w.scanning }, (*world).scan},
	}
}

// perform runs the named moves, separated by commas.
func (w *world) perform(t *testing.T, script string) {
	t.Helper()
	for name := range strings.SplitSeq(script, ",") {
		done := false
		for _, m := range moves() {
			if m.name == strings.TrimSpace(name) {
				if !m.can(w) {
					t.Fatalf("%q is not possible in %q", name, script)
				}
				m.do(w)
				done = true
			}
		}
		if !done {
			t.Fatalf("no move %q", name)
		}
	}
	if w.held(); w.errors != nil {
		t.Fatal(w.errors)
	}
}

const (
	joined    = "write a, deliver, answer, deliver, conclude, answer, deliver, conclude, scan, scan, scan, answer, deliver, conclude"
	following = joined + ", write c, deliver"
)

// beginnings are where the exhaustive test sets out from.
var beginnings = []struct{ name, script string }{
	{"nothing was ever written", "ask, answer, deliver, conclude"},
	{"following", following},
	{"two changes on their way", following + ", write a, write c"},
	{"the store went back", following + ", write a, deliver, back 2"},
	{"a head on its way", following + ", write a, ask, answer"},
	{"a head between two changes", following + ", ask, write a, answer, write c"},
	{"half of it read", following + ", expire, write a, deliver, answer, deliver, conclude, answer, deliver, conclude, scan"},
	{"half of it read, and changes came", following + ", write a, drop, ask, answer, deliver, conclude, answer, deliver, conclude, scan, write a, write c, deliver"},
	{"all of it read", following + ", write a, drop, ask, answer, deliver, conclude, answer, deliver, conclude, scan, write c, scan, write a, scan"},
}

// TestEverySchedule tries every order of a few moves, from beginnings where something is going on, and lets the world
// settle after each. The copy is compared with the states of the store after every move.
func TestEverySchedule(t *testing.T) {
	depth := 4
	if os.Getenv("LATCHKEY_SOAK") != "" {
		depth = 5
	}
	var c counts
	for _, b := range beginnings {
		t.Run(strings.ReplaceAll(b.name, " ", "-"), func(t *testing.T) {
			w := newWorld(&c)
			w.perform(t, b.script)
			all := moves()
			var path []string
			var try func(w *world, depth int)
			try = func(w *world, depth int) {
				c.worlds++
				settled := *w
				if settled.settle(); settled.errors != nil {
					t.Fatalf("%s, %s, settle: %v", b.script, strings.Join(path, ", "), settled.errors)
				}
				if depth == 0 {
					return
				}
				for _, m := range all {
					if !m.can(w) {
						continue
					}
					path = append(path, m.name)
					next := *w
					m.do(&next)
					if next.held(); next.errors != nil {
						t.Fatalf("%s, %s: %v", b.script, strings.Join(path, ", "), next.errors)
					}
					try(&next, depth-1)
					path = path[:len(path)-1]
				}
			}
			try(w, depth)
		})
	}
	c.demand(t)
}

// demand fails the test if it did not come by what it is about. Only a burst comes to lie further ahead than a cursor
// remembers: see TestAhead.
func (c *counts) demand(t *testing.T) {
	t.Helper()
	for what, n := range map[string]int{"next": c.next, "duplicate": c.duplicate, "reload": c.reload, "current": c.current,
		"apart": c.apart, "adopted": c.adopted, "readings that failed": c.failed, "resets": c.resets} {
		if n < 10 && !t.Failed() {
			t.Errorf("%s: only %d in %+v", what, n, *c)
		}
	}
	t.Logf("%+v", *c)
}

// weights make random worlds in which followers come to follow: the rarer moves are those that end everything.
var weights = map[string]int{"write a": 60, "write c": 60, "remove a": 40, "clear": 8, "expire": 4, "back 1": 4, "back 2": 4,
	"deliver": 400, "drop": 6, "duplicate": 20, "swap": 6, "cut": 4, "ask": 40, "answer": 200, "conclude": 200, "scan": 300}

func pick(r *rand.Rand, w *world, all []move) move {
	total := 0
	for _, m := range all {
		if m.can(w) {
			total += weights[m.name]
		}
	}
	n := r.IntN(total)
	for _, m := range all {
		if m.can(w) {
			if n -= weights[m.name]; n < 0 {
				return m
			}
		}
	}
	panic("the weights of what can happen do not add up")
}

// TestLongSchedules tries long random orders. LATCHKEY_SEED repeats one.
func TestLongSchedules(t *testing.T) {
	first, runs := rand.Uint64(), uint64(200)
	if os.Getenv("LATCHKEY_SOAK") != "" {
		runs = 20_000
	}
	if s := os.Getenv("LATCHKEY_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, runs = n, 1
	}
	var c counts
	all := moves()
	for seed := first; seed != first+runs; seed++ {
		r := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(&c)
		var path []string
		for range 300 {
			m := pick(r, w, all)
			path = append(path, m.name)
			m.do(w)
			if w.held(); w.errors != nil {
				break
			}
		}
		if w.settle(); w.errors != nil {
			t.Fatalf("LATCHKEY_SEED=%d: %v, after %s", seed, w.errors, strings.Join(path[max(0, len(path)-60):], ", "))
		}
		c.worlds++
	}
	if runs > 1 {
		c.demand(t)
	}
}

// TestSteady demands that nothing is read again while nothing is lost, however often changes arrive.
func TestSteady(t *testing.T) {
	var c counts
	w := newWorld(&c)
	w.perform(t, joined)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	steady := moves()
	for i, m := range steady {
		switch m.name {
		case "expire", "back 1", "back 2", "drop", "swap", "cut":
			steady[i].can = func(*world) bool { return false }
		}
	}
	for range 5_000 {
		pick(r, w, steady).do(w)
	}
	if w.settle(); w.errors != nil {
		t.Fatalf("seed %d: %v", seed, w.errors)
	}
	if c.adopted != 1 || c.apart != 1 || c.current == 0 || c.duplicate == 0 {
		t.Errorf("seed %d: after the first reading there must be none: %+v", seed, c)
	}
}

// TestAhead lets a follower go on while a head waits to be looked at: as far as it remembers the head is current, and
// beyond that it asks again and is current then, without reading anything.
func TestAhead(t *testing.T) {
	for _, on := range []int{1, feed.Remembered - 2, feed.Remembered - 1, feed.Remembered, 3 * feed.Remembered} {
		var c counts
		w := newWorld(&c)
		w.perform(t, following+", ask, answer, deliver")
		for range on {
			w.write(operation{key: 1})
			w.deliver()
		}
		w.conclude()
		if got, want := c.ahead == 1, on >= feed.Remembered; got != want {
			t.Errorf("%d changes after the head: ahead is %v, want %v", on, got, want)
		}
		if w.settle(); w.errors != nil {
			t.Errorf("%d changes after the head: %v", on, w.errors)
		}
		if c.adopted != 1 {
			t.Errorf("%d changes after the head: everything was read again", on)
		}
	}
}

// TestStaleLife hands a follower that found the store empty the first change of the life that is over (S13, S15): its
// copy must stay empty, and nothing is read for it.
func TestStaleLife(t *testing.T) {
	var c counts
	w := newWorld(&c)
	w.perform(t, "write a, duplicate, expire, deliver, answer, deliver, deliver")
	if w.cursor.At().Exists() {
		t.Errorf("the follower adopted %v of a life that is over", w.cursor.At())
	}
	if w.settle(); w.errors != nil {
		t.Error(w.errors)
	}
	if c.adopted != 0 {
		t.Error("a stale change made the follower read everything")
	}
}

// TestUnheard loses a change and delivers the next (S7): that alone, without a heartbeat, must bring the copy to the
// store.
func TestUnheard(t *testing.T) {
	w := newWorld(new(counts))
	w.perform(t, following+", write a, drop, write c, deliver, answer, deliver, conclude, answer, deliver, conclude, scan, scan, scan, "+
		"answer, deliver, conclude")
	if w.cursor.At() != w.cur.at {
		t.Errorf("the copy is at %v, the store at %v", w.cursor.At(), w.cur.at)
	}
}

// TestNothingToRead has a short life come and go while a follower that found nothing reads: entries of that life must
// not become a copy of nothing.
func TestNothingToRead(t *testing.T) {
	w := newWorld(new(counts))
	w.perform(t, following+", expire, ask, answer, deliver, conclude, answer, deliver, conclude, write a, drop")
	for w.scanning {
		w.scan()
	}
	w.expire()
	if w.settle(); w.errors != nil {
		t.Error(w.errors)
	}
}
