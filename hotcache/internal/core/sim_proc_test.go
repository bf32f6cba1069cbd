package core

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

var errDatabase = errors.New("the database fails")

// A simProc is a process: a Front and what its driver has.
type simProc struct {
	w       *world
	place   int
	name    string
	born    time.Duration
	rate    float64
	front   *Front
	dead    bool
	paused  bool
	inbox   []func() // what came while it was paused
	memory  map[string]memo
	lives   []int // of what is in memory, by node
	reading map[ReadID]*simRead
	lastID  ReadID
	conns   []*simConn
	acks    map[Stamp]*simAwait
	alarm   time.Duration // the tick that is due
}

// A memo is an item in a process's memory.
type memo struct {
	item Item
	node int
	life int
	ends time.Duration
}

type simRead struct {
	key    string
	min    Version
	need   uint64
	left   bool
	served bool
	calm   bool // nothing was wrong when it began
	began  time.Duration
}

type simAwait struct {
	from map[string]bool
	want map[string]bool
	done func()
}

// spawn puts a new process in a place.
func (w *world) spawn(place int) {
	w.born++
	p := &simProc{
		w: w, place: place, name: fmt.Sprintf("p%d.%d", place, w.born), born: w.now, rate: 1 + (w.r.Float64()-0.5)/100,
		memory: map[string]memo{}, lives: make([]int, len(w.all)), reading: map[ReadID]*simRead{},
		conns: make([]*simConn, len(w.all)), acks: map[Stamp]*simAwait{}, alarm: -1,
	}
	set := Settings{
		Rules: w.rules(), Trust: simTrust, StaleWhile: w.stale, StaleOnError: w.stale,
		FirstPause: 50 * time.Millisecond, LastPause: 400 * time.Millisecond, MaxDirect: 2, MaxWaiting: 2, MaxLoads: max(1, w.keys-2),
		BreakAfter: 3, BreakFor: 200 * time.Millisecond, Tries: 3, Memory: w.memory, Home: w.ring.Owner,
	}
	if w.hot {
		set.Hot = simHot{w}
	}
	p.front = NewFront(len(w.all), set, rand.New(rand.NewPCG(w.r.Uint64(), 2)))
	w.live[place] = p
	w.say("%s is born", p.name)
	for _, n := range w.all {
		p.post(0, func() { p.follow(n) })
		p.post(0, func() { p.beating(n) })
	}
}

// simHot spreads the first two keys over all nodes.
type simHot struct{ w *world }

func (h simHot) Pick(_ time.Duration, key string, home int) int {
	if key != "k0" && key != "k1" {
		return home
	}
	return h.w.r.IntN(len(h.w.all))
}

func (h simHot) Copies(key string) []int {
	if key != "k0" && key != "k1" {
		return nil
	}
	var all []int
	for node := range h.w.all {
		if node != h.w.ring.Owner(key) {
			all = append(all, node)
		}
	}
	return all
}

func (h simHot) Refresh(time.Duration, string) bool { return h.w.r.IntN(4) == 0 }

func (h simHot) Asked(int) {}

func (h simHot) Answered(time.Duration, int, time.Duration) {}

func (p *simProc) now() time.Duration { return p.local(p.w.now) }

func (p *simProc) local(t time.Duration) time.Duration {
	return time.Duration(float64(t-p.born) * p.rate)
}

// wait is how long something lasts that takes so long by the process's clock.
func (p *simProc) wait(d time.Duration) time.Duration { return time.Duration(float64(d)/p.rate) + 1 }

func (p *simProc) post(d time.Duration, fn func()) { p.w.after(d, func() { p.enqueue(fn) }) }

func (p *simProc) enqueue(fn func()) {
	switch {
	case p.dead:
	case p.paused:
		p.inbox = append(p.inbox, fn)
	default:
		fn()
	}
}

func (p *simProc) resume() {
	p.paused = false
	for len(p.inbox) > 0 && !p.dead {
		fn := p.inbox[0]
		p.inbox = p.inbox[1:]
		fn()
	}
}

func (p *simProc) kill() {
	p.dead = true
	for _, c := range p.conns {
		if c != nil {
			c.cut()
		}
	}
}

// follow subscribes to a node, when that is possible.
func (p *simProc) follow(n *simNode) {
	if n.out {
		p.post(50*time.Millisecond, func() { p.follow(n) })
		return
	}
	c := &simConn{p: p, n: n, up: true}
	n.conns = append(n.conns, c)
	p.conns[n.index] = c
	p.beat(n)
}

func (p *simProc) beating(n *simNode) {
	if !p.w.beats {
		return
	}
	p.beat(n)
	p.post(p.wait(simTrust/4), func() { p.beating(n) })
}

// beat proves that everything was heard.
func (p *simProc) beat(n *simNode) {
	w, c := p.w, p.conns[n.index]
	if c == nil || c.over || w.rough && w.chance(0.03) {
		return
	}
	asked, sent := p.front.Sight(n.index).At(), p.now()
	w.after(w.delay(), func() {
		if !c.up || n.hangs {
			return
		}
		n.members[p.name] = n.now() + LongestTrust(simTrust)
		head := n.home.At()
		c.send(func() {
			met := func() {
				p.do(p.front.Met(p.now(), n.index, asked, head, sent))
				w.say("%s met node%d at %d of %x, beat since %v", p.name, n.index, head.Number, head.Generation>>48, sent)
			}
			if w.chance(0.3) { // the answer is here, and other things are done first
				p.post(w.upTo(3*time.Millisecond), met)
				return
			}
			met()
		})
	})
}

// heard is told of an invalidation, and acknowledges it.
func (p *simProc) heard(c *simConn, inv Invalidation, by string) {
	w := p.w
	w.say("%s hears number %d of node%d of %x", p.name, inv.Number, c.n.index, inv.Generation>>48)
	p.do(p.front.Invalidated(p.now(), c.n.index, inv))
	if by == p.name || w.rough && w.chance(0.02) {
		return
	}
	w.after(w.delay(), func() {
		if c.n.out {
			return
		}
		for _, to := range c.n.conns {
			if to.p.name == by {
				to.send(func() { to.p.came(StampOf(inv.Position), p.name) })
			}
		}
	})
}

func (p *simProc) awaited(at Stamp) *simAwait {
	a := p.acks[at]
	if a == nil {
		a = &simAwait{from: map[string]bool{}}
		p.acks[at] = a
	}
	return a
}

func (p *simProc) came(at Stamp, from string) {
	a := p.awaited(at)
	a.from[from] = true
	delete(a.want, from)
	if a.done != nil && len(a.want) == 0 {
		a.done()
	}
}

// write invalidates what was committed, as often as it takes, unless it gives up.
func (p *simProc) write(key string, v uint64, tries int) {
	w := p.w
	version := Version(v)
	if w.chance(w.zeroes) {
		version = 0
	}
	means := v
	if version == 0 {
		means = w.latest(key) // everything older than this moment
	}
	n := w.all[w.ring.Owner(key)]
	p.call(n, func() func() {
		inv, members := n.invalidate(key, version, p.name)
		return func() {
			p.do(p.front.Invalidating(p.now(), n.index, inv))
			p.await(StampOf(inv.Position), members, func() {
				r := w.rows[key]
				r.promised = max(r.promised, means)
				w.count("invalidated")
				w.say("%s has invalidated %s: at least %d from now on", p.name, key, r.promised)
			})
		}
	}, func(error) {
		if w.rough && tries > 3 {
			w.count("invalidation given up")
			return
		}
		p.post(w.upTo(50*time.Millisecond), func() { p.write(key, v, tries+1) })
	})
}

// await waits for the acknowledgements of all members, or for as long as anybody may trust his memory.
func (p *simProc) await(at Stamp, members map[string]bool, done func()) {
	a, over := p.awaited(at), false
	a.done = func() {
		if !over {
			over = true
			delete(p.acks, at)
			done()
		}
	}
	a.want = members
	for m := range a.from {
		delete(a.want, m)
	}
	if len(a.want) == 0 {
		a.done()
		return
	}
	p.post(p.wait(LongestTrust(simTrust)), a.done)
}

// read is a Get.
func (p *simProc) read(key string, min Version) {
	w := p.w
	r := &simRead{key: key, min: min, need: w.rows[key].promised, calm: !w.rough && w.now > w.healed+1500*time.Millisecond, began: w.now}
	switch {
	case w.versions == deaf:
		r.need = 0
		min = 0
	case min == Fresh:
		r.need = w.latest(key)
	default:
		r.need = max(r.need, uint64(min))
	}
	w.count("read")
	if m, ok := p.memory[key]; ok && min != Fresh && m.item.Version >= min && m.life == p.lives[m.node] && p.now() < m.ends &&
		p.now() < p.front.Sight(m.node).Until(simTrust) {
		p.judge(r, FromMemory, m.item)
		return
	}
	p.lastID++
	id := p.lastID
	p.reading[id] = r
	if w.rough && w.chance(0.05) {
		p.post(w.upTo(100*time.Millisecond), func() {
			if !r.served {
				r.left = true
				delete(p.reading, id)
				p.front.Leave(id, key)
			}
		})
	}
	p.do(p.front.Read(p.now(), id, key, min))
}

// judge holds an answer against what was promised.
func (p *simProc) judge(r *simRead, o Outcome, item Item) {
	w := p.w
	w.count(o.String())
	got := binary.BigEndian.Uint64(item.Data)
	if w.keep {
		w.say("%s reads %s version %d, %v (since %v, least %d)", p.name, r.key, got, o, r.began, r.need)
	}
	if got < r.need {
		w.fail("%s gets version %d of %s from %v; it asked for %d at %v, when %d was the least", p.name, got, r.key, o, r.min,
			r.began, r.need)
	}
	if item.Absent != w.rows[r.key].commits[got-1].absent {
		w.fail("%s gets a version of %s as something else", p.name, r.key)
	}
}

// do does what the core asks for.
func (p *simProc) do(actions []Action) {
	for i := range actions {
		switch a := &actions[i]; a.Do {
		case DoDrop:
			delete(p.memory, a.Key)
		case DoDropNode:
			p.lives[a.Node]++
			p.w.count("dropped node")
		}
	}
	p.arm()
	for i := range actions {
		switch a := &actions[i]; a.Do {
		case DoDrop, DoDropNode:
		case DoServe:
			p.serve(a)
		case DoKeep:
			if p.w.chance(0.3) {
				p.post(p.w.upTo(time.Millisecond), func() { p.keep(a) })
			} else {
				p.keep(a)
			}
		case DoLoad:
			p.load(a)
		default:
			p.ask(a)
		}
	}
}

func (p *simProc) arm() {
	at, ok := p.front.Next()
	if !ok {
		p.alarm = -1
		return
	}
	if p.alarm == at {
		return
	}
	p.alarm = at
	p.post(p.wait(max(at-p.now(), 0)), func() {
		if p.alarm == at {
			p.alarm = -1
			p.do(p.front.Tick(p.now()))
		}
	})
}

func (p *simProc) serve(a *Action) {
	for _, id := range a.Reads {
		r := p.reading[id]
		if r == nil {
			continue // its caller left
		}
		if r.served {
			p.w.fail("%s: a read of %s is answered twice", p.name, r.key)
		}
		r.served = true
		delete(p.reading, id)
		if a.Err == nil {
			p.judge(r, a.Outcome, a.Item)
			continue
		}
		p.w.count(a.Outcome.String())
		p.w.say("%s reads %s: %v", p.name, r.key, a.Err)
		crowded := a.Outcome == Shed && p.front.loads == p.front.set.MaxLoads // by one key, if it is written very often
		if r.calm && p.w.versions != deaf && !crowded {
			p.w.fail("%s cannot read %s though nothing is wrong: %v", p.name, r.key, a.Err)
		}
	}
}

func (p *simProc) keep(a *Action) {
	if !p.front.Holds(p.now(), a.Node, a.Key, a.Stamp) {
		return
	}
	if len(p.memory) > 4 && p.w.chance(0.2) {
		for _, key := range p.w.names {
			delete(p.memory, key)
		}
	}
	p.w.say("%s keeps %s version %d, stamp %d of %x", p.name, a.Key, a.Item.Version, a.Stamp.Number, a.Stamp.Generation>>48)
	p.memory[a.Key] = memo{item: a.Item, node: a.Node, life: p.lives[a.Node], ends: p.now() + a.Times.Soft}
}
