package core

import (
	"errors"
	"math/rand/v2"
	"time"
)

var (
	errTimeout = errors.New("no answer in time")
	errRefused = errors.New("connection refused")
)

// A simNode is a node as a driver runs it: a Home, copies, who follows its feed, and who may trust his memory.
type simNode struct {
	w       *world
	index   int
	life    int
	born    time.Duration // of this life
	rate    float64       // of its clock
	home    *Home
	copies  map[string]simCopy
	conns   []*simConn
	members map[string]time.Duration
	out     bool // it answers nobody
	hangs   bool // and does not even refuse
}

type simCopy struct {
	c  Copy
	at time.Duration
}

func newSimNode(w *world, index int) *simNode {
	n := &simNode{w: w, index: index, rate: 1}
	n.begin()
	n.members = map[string]time.Duration{}
	n.born = -time.Hour // nobody trusts memory that came from an earlier life
	n.home = NewHome(n.now(), w.rules(), rand.New(rand.NewPCG(w.r.Uint64(), 1)))
	if w.chance(0.7) { // it is long known that nothing was forgotten
		n.home.born -= time.Hour
	}
	return n
}

func (w *world) rules() Rules {
	return Rules{
		LeaseTTL: 900 * time.Millisecond, FloorTTL: 4 * time.Second, MaxFloors: w.maxFloors, MaxItems: w.maxItems,
	}
}

// begin starts a life, with nothing in memory.
func (n *simNode) begin() {
	n.life++
	n.born = n.w.now
	n.rate = 1 + (n.w.r.Float64()-0.5)/100
	n.copies = map[string]simCopy{}
	n.members = map[string]time.Duration{}
	n.home = NewHome(n.now(), n.w.rules(), rand.New(rand.NewPCG(n.w.r.Uint64(), 1)))
	for _, c := range n.conns {
		c.cut()
	}
	n.conns = nil
}

func (n *simNode) now() time.Duration { return time.Duration(float64(n.w.now-n.born) * n.rate) }

// trustees are who has to be waited for. Who trusts his memory because of an earlier life of the node is not known, so
// for as long as somebody may, a nobody is waited for who never answers.
func (n *simNode) trustees(but string) map[string]bool {
	out := map[string]bool{}
	for m, until := range n.members {
		switch {
		case until <= n.now():
			delete(n.members, m)
		case m != but:
			out[m] = true
		}
	}
	if n.w.now-n.born < simTrust+simTrust/20 {
		out["nobody"] = true
	}
	return out
}

func (n *simNode) invalidate(key string, v Version, by string) (Invalidation, map[string]bool) {
	before := n.home.At().Generation
	inv, _ := n.home.Invalidate(n.now(), key, v)
	if n.home.At().Generation != before {
		n.w.count("node forgot floors")
		n.w.say("node%d forgets its floors", n.index)
	}
	n.w.say("node%d invalidates %s version %d number %d of %x", n.index, key, v, inv.Number, inv.Generation>>48)
	for _, c := range n.conns {
		c.send(func() { c.p.heard(c, inv, by) })
	}
	return inv, n.trustees(by)
}

func (n *simNode) wake(key string, somebody bool) {
	if !somebody {
		return
	}
	for _, c := range n.conns {
		c.send(func() { c.p.do(c.p.front.Woken(c.p.now(), key)) })
	}
}

func (n *simNode) getCopy(key string) *Copy {
	c, ok := n.copies[key]
	if !ok {
		return nil
	}
	c.c.Times = c.c.Times.Minus(n.now() - c.at)
	return &c.c
}

func (n *simNode) putCopy(key string, c Copy) {
	old, ok := n.copies[key]
	if ok && !c.Replaces(old.c) {
		return
	}
	n.copies[key] = simCopy{c, n.now()}
}

// A simConn is the feed from a node to a process: what is sent arrives in order, or not at all.
type simConn struct {
	p    *simProc
	n    *simNode
	up   bool          // messages pass
	over bool          // the process knows that they do not
	last time.Duration // arrival of the latest
}

func (c *simConn) send(fn func()) {
	w := c.n.w
	c.last = max(c.last, w.now+w.delay())
	w.after(c.last-w.now, func() {
		if c.up {
			c.p.enqueue(func() {
				if !c.over {
					fn()
				}
			})
		}
	})
}

// cut breaks a connection. The process learns of it later, and then follows anew.
func (c *simConn) cut() {
	if !c.up {
		return
	}
	c.up = false
	w, p := c.n.w, c.p
	w.count("feed cut")
	w.say("feed of node%d to %s is cut", c.n.index, p.name)
	left := c.n.conns[:0:0]
	for _, o := range c.n.conns {
		if o != c {
			left = append(left, o)
		}
	}
	c.n.conns = left
	notice := w.upTo(2 * time.Millisecond)
	if w.chance(0.4) {
		notice = w.upTo(2 * simTrust) // half dead
	}
	p.post(notice, func() {
		c.over = true
		w.say("%s notices that the feed of node%d is cut", p.name, c.n.index)
		p.do(p.front.Lost(p.now(), c.n.index))
		p.post(w.upTo(100*time.Millisecond), func() { p.follow(c.n) })
	})
}

// call asks a node something: do is done there, and what it returns here, or else fail. It is not known then whether
// it was done.
func (p *simProc) call(n *simNode, do func() func(), fail func(error)) {
	w, life, began := p.w, n.life, p.w.now
	late := func() { p.post(began+simTimeout-w.now, func() { fail(errTimeout) }) }
	w.after(w.delay(), func() {
		switch {
		case n.life != life, n.out && !n.hangs:
			p.post(w.delay(), func() { fail(errRefused) })
			return
		case n.hangs, w.rough && w.chance(0.005):
			late()
			return
		}
		reply := do()
		if w.rough && w.chance(0.005) {
			late()
			return
		}
		d := w.delay()
		if w.now+d > began+simTimeout {
			late()
			return
		}
		p.post(d, reply)
	})
}
