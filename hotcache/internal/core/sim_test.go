package core

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"time"
)

// This is a world in which the core is tried: processes, nodes, a database and what lies between them, on a virtual
// clock and in one event loop, so that a seed is a history and can be had again. It owes the core what a live driver
// owes it, and everything else may go wrong.

// A plan is what kind of world it is.
type plan struct {
	seed      uint64
	procs     int
	nodes     int
	keys      int
	chaos     bool          // things go wrong
	storm     time.Duration // for how long
	versions  loaderKind
	zeroes    float64 // share of invalidations that name no version
	memory    bool
	hot       bool
	soft      time.Duration
	hard      time.Duration
	stale     time.Duration // past hard, while it is loaded or when the load fails
	lag       time.Duration // of the replica, at most
	load      time.Duration // of a load, usually
	maxFloors int
	maxItems  int
	reads     time.Duration // between two reads of a process, on average
	writes    time.Duration // between two writes of the fleet
	picky     float64       // share of reads that want the row as it is now, or a version
}

type loaderKind uint8

const (
	versioned   loaderKind = iota
	unversioned            // returns no versions, reads the primary when asked
	deaf                   // a defect: always reads the replica
)

const (
	simTrust   = 250 * time.Millisecond
	simTimeout = 400 * time.Millisecond // of whatever a node is asked
	loadLimit  = 2 * time.Second
)

type event struct {
	at  time.Duration
	seq uint64
	fn  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{}
	*e = (*e)[:len(*e)-1]
	return last
}

type world struct {
	plan
	r      *rand.Rand
	now    time.Duration
	events events
	seq    uint64
	ring   *Ring
	names  []string
	all    []*simNode
	live   []*simProc // one for each place; who is killed is replaced
	born   int        // processes so far
	rows   map[string]*row
	lagNow time.Duration
	rough  bool          // things go wrong now
	failed bool          // loads fail now
	healed time.Duration // since when nothing goes wrong
	beats  bool          // until everything is to come to rest

	loads  map[string]int
	counts map[string]int
	keep   bool // the log
	log    []string
	err    error
}

// A row is the history of one key in the database, and what was promised about it.
type row struct {
	commits  []commit
	promised uint64 // no read that begins now may get an older one
}

type commit struct {
	at     time.Duration
	absent bool
}

func newWorld(p plan, keep bool) *world {
	w := &world{
		plan: p, r: rand.New(rand.NewPCG(p.seed, 99)), keep: keep, rows: map[string]*row{}, rough: p.chaos, beats: true, healed: -time.Hour,
		loads: map[string]int{}, counts: map[string]int{}, lagNow: p.lag / 2,
	}
	for i := range p.keys {
		w.names = append(w.names, fmt.Sprintf("k%d", i))
		w.rows[w.names[i]] = &row{commits: []commit{{at: -time.Hour, absent: w.r.IntN(3) == 0}}}
	}
	var nodes []string
	for i := range p.nodes {
		nodes = append(nodes, fmt.Sprintf("node%d", i))
		w.all = append(w.all, newSimNode(w, i))
	}
	w.ring = NewRing(nodes)
	for i := range p.procs {
		w.live = append(w.live, nil)
		w.spawn(i)
	}
	return w
}

// say notes an event, if the history is to be printed.
func (w *world) say(format string, args ...any) {
	if w.keep {
		w.log = append(w.log, fmt.Sprintf("%11v ", w.now)+fmt.Sprintf(format, args...))
	}
}

// fail notes the first thing that is wrong.
func (w *world) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("at %v: %s", w.now, fmt.Sprintf(format, args...))
		w.say("WRONG: %v", w.err)
	}
}

func (w *world) after(d time.Duration, fn func()) {
	w.seq++
	heap.Push(&w.events, event{w.now + max(d, 0), w.seq, fn})
}

// run lets the world go on until a moment.
func (w *world) run(until time.Duration) {
	for len(w.events) > 0 && w.events[0].at <= until && w.err == nil {
		e := heap.Pop(&w.events).(event)
		w.now = e.at
		e.fn()
	}
	if w.err == nil {
		w.now = max(w.now, until)
	}
}

// rest lets it go on until nothing more happens.
func (w *world) rest(limit time.Duration) {
	end := w.now + limit
	for len(w.events) > 0 && w.events[0].at <= end && w.err == nil {
		w.run(w.events[0].at)
	}
	if len(w.events) > 0 {
		w.fail("things still happen %v after the last of them was to", limit)
	}
}

func (w *world) chance(p float64) bool { return w.r.Float64() < p }

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.r.Int64N(int64(d) + 1)) }

// delay is how long a message takes.
func (w *world) delay() time.Duration {
	switch d := 50*time.Microsecond + w.upTo(time.Millisecond); {
	case !w.rough || w.chance(0.9):
		return d
	case w.chance(0.9):
		return d + w.upTo(40*time.Millisecond)
	default:
		return d + w.upTo(simTimeout)
	}
}

func (w *world) anyKey() string {
	if w.chance(0.5) {
		return w.names[0]
	}
	return w.names[w.r.IntN(len(w.names))]
}

// The database.

func (w *world) latest(key string) uint64 { return uint64(len(w.rows[key].commits)) }

func (w *world) commit(key string) uint64 {
	r := w.rows[key]
	r.commits = append(r.commits, commit{at: w.now, absent: w.chance(0.25)})
	w.say("commit %s version %d", key, len(r.commits))
	return uint64(len(r.commits))
}

// sight is what a replica shows that is so far behind.
func (w *world) seen(key string, lag time.Duration) (version uint64, absent bool) {
	r := w.rows[key]
	for i := len(r.commits) - 1; ; i-- {
		if c := r.commits[i]; i == 0 || c.at <= w.now-lag {
			return uint64(i + 1), c.absent
		}
	}
}

// writer commits and invalidates, and does so again after a while.
func (w *world) writer(end time.Duration) {
	if w.now >= end {
		return
	}
	w.after(w.upTo(2*w.writes), func() { w.writer(end) })
	p, key := w.live[w.r.IntN(len(w.live))], w.anyKey()
	v := w.commit(key)
	switch {
	case w.rough && w.chance(0.05):
		w.count("crash between commit and invalidation")
	case w.rough && w.chance(0.1):
		p.post(w.upTo(200*time.Millisecond), func() { p.write(key, v, 0) })
	default:
		p.post(0, func() { p.write(key, v, 0) })
	}
	if w.versions == versioned && w.chance(0.3) { // read your writes, in another process, without waiting
		q := w.live[w.r.IntN(len(w.live))]
		q.post(w.delay(), func() { q.read(key, Version(v)) })
	}
}

// reader has a place's process read, again and again.
func (w *world) reader(place int, end time.Duration) {
	if w.now >= end {
		return
	}
	w.after(w.upTo(2*w.reads), func() { w.reader(place, end) })
	p, key, min := w.live[place], w.anyKey(), Version(0)
	switch x := w.r.Float64(); {
	case x < w.picky*2/5:
		min = Fresh
	case x < w.picky && w.versions == versioned:
		min = Version(1 + w.r.Uint64N(w.latest(key)))
	}
	p.post(0, func() { p.read(key, min) })
}

func (w *world) count(what string) { w.counts[what]++ }
