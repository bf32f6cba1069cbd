package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// ours is package hotcache: its core decides, and what is here does what the live driver does, on the virtual clock.
type ours struct {
	w       *world
	ring    *core.Ring
	rules   core.Rules
	data    []byte // of every row
	nodes   []*home
	servers []*server
	born    int // servers so far
	quiet   bool
	saved   string // the set of hot keys that was kept last
}

// epoch is when a run begins by the clock of the core: nodes have been there for long, so that nothing was forgotten.
func (o *ours) epoch() time.Duration { return o.rules.FloorTTL + time.Second }

func (o *ours) now() time.Duration { return o.w.now + o.epoch() }

func (o *ours) longestTrust() time.Duration { return core.LongestTrust(o.w.cfg.Trust) }

// A home is what a node keeps for the cache: its Home, copies, those who follow its feed and those who may trust memory.
type home struct {
	node    *node
	core    *core.Home
	copies  *lru[core.Copy] // with times that count from the epoch of the run
	links   []*link
	members []member
	born    time.Duration // of the life that it leads
}

type member struct {
	of    *server
	until time.Duration
}

// maxCopies is how many copies a node keeps: hot keys are few.
const maxCopies = 1 << 12

func newOurs(w *world) *ours {
	o := &ours{w: w, rules: core.DefaultRules(), data: make([]byte, w.cfg.ValueBytes)}
	o.rules.MaxItems = w.cfg.NodeEntries
	if o.rules.MaxItems == 0 {
		o.rules.MaxItems = MaxKeys
	}
	o.rules.MaxBytes = 0
	var names []string
	for i, n := range w.nodes {
		names = append(names, fmt.Sprint("node", i))
		o.nodes = append(o.nodes, &home{node: n})
		o.empty(o.nodes[i], 0)
		o.nodes[i].born = -time.Hour
	}
	o.ring = core.NewRing(names)
	for i := range w.cfg.Servers {
		o.servers = append(o.servers, nil)
		o.spawn(i)
	}
	return o
}

func (o *ours) source(of uint64) *rand.Rand { return rand.New(rand.NewPCG(o.w.random.Uint64(), of)) }

func (o *ours) empty(h *home, now time.Duration) {
	h.core = core.NewHome(now, o.rules, o.source(3))
	h.copies = newLRU[core.Copy](maxCopies)
	h.members, h.born = nil, now
}

// read implements policy.
func (o *ours) read(r *read) { o.servers[r.server].read(r) }

// write implements policy: it invalidates, and does so again until the home has heard of it. That is what a writer with
// an outbox has: whatever happens to him, somebody does it.
func (o *ours) write(place, key int, version uint64, done func(sure bool)) {
	w, p := o.w, o.servers[place]
	name := w.keys.names[key]
	n := o.nodes[o.ring.Owner(name)]
	w.res.Invalidations++
	again := func() { w.after(outboxAgain, func() { o.write(place, key, version, done) }) }
	if w.drops() {
		w.after(timeout, again)
		return
	}
	w.ask(n.node, call{bytes: keyBytes(name), do: func() (func(), int) {
		inv, members := o.invalidate(n, name, core.Version(version), p)
		return func() {
			if p.dead {
				again()
				return
			}
			p.do(p.front.Invalidating(o.now(), n.node.index, inv))
			p.await(core.StampOf(inv.Position), members, func() { done(true) })
		}, overhead
	}, fail: func(error) { again() }})
}

const (
	outboxAgain = 100 * time.Millisecond // until an invalidation that failed is tried again
	outboxFirst = 200 * time.Millisecond // until the outbox delivers what a writer that died did not
)

// invalidate has a home invalidate a key and tell everybody. It returns who has to be waited for.
func (o *ours) invalidate(h *home, name string, version core.Version, by *server) (core.Invalidation, []*server) {
	inv, _ := h.core.Invalidate(o.now(), name, version)
	for _, l := range h.links {
		l.tell(keyBytes(name), func() { l.p.heard(l, inv, by) })
	}
	var wait []*server
	kept := h.members[:0]
	for _, m := range h.members {
		if m.until > o.now() {
			kept = append(kept, m)
			if m.of != by {
				wait = append(wait, m.of)
			}
		}
	}
	h.members = kept
	if o.now()-h.born < o.longestTrust() {
		wait = append(wait, nil) // who trusts what he has from an earlier life is not known, so nobody's answer will do
	}
	return inv, wait
}

// join notes that a server may trust its memory.
func (h *home) join(p *server, until time.Duration) {
	for i := range h.members {
		if h.members[i].of == p {
			h.members[i].until = until
			return
		}
	}
	h.members = append(h.members, member{p, until})
}

// wake tells everybody that a load has ended, if somebody waits for it.
func (o *ours) wake(h *home, name string, somebody bool) {
	if !somebody {
		return
	}
	for _, l := range h.links {
		l.send(keyBytes(name), func() { l.p.do(l.p.front.Woken(o.now(), name)) })
	}
}

func (o *ours) getCopy(h *home, name string) *core.Copy {
	c, ok := h.copies.get(o.now(), name)
	if !ok {
		return nil
	}
	c.Times = c.Times.Minus(o.now())
	return &c
}

func (o *ours) putCopy(h *home, name string, c core.Copy) {
	old, ok := h.copies.get(o.now(), name)
	if ok && !c.Replaces(old) {
		return
	}
	c.Times = c.Times.Minus(-o.now())
	h.copies.put(name, c, c.Times.Hard)
}

// crash implements policy: another process takes the place, and the outbox has what was written.
func (o *ours) crash(place, key int, version uint64) {
	o.servers[place].die()
	o.spawn(place)
	o.w.writing++
	o.w.after(outboxFirst, func() {
		o.write(place, key, version, func(bool) {
			o.w.writing--
			r := o.w.row(key)
			r.promised = max(r.promised, version)
		})
	})
}

// cut implements policy.
func (o *ours) cut(place int, off bool) {
	p := o.servers[place]
	for _, l := range p.links {
		l.off = off
	}
	if !off {
		p.refollow()
	}
}

// lost implements policy.
func (o *ours) lost(index int, kept bool) {
	h := o.nodes[index]
	if !kept {
		o.empty(h, o.now())
	}
	links := h.links
	h.links = nil
	for _, l := range links {
		l.broken()
	}
}

// peek implements policy.
func (o *ours) peek(key int) (uint64, bool) {
	name := o.w.keys.names[key]
	a := o.nodes[o.ring.Owner(name)].core.Ask(o.now(), core.Ask{Key: name})
	if a.State != core.Hit {
		return 0, false
	}
	return uint64(a.Item.Version), true
}

// end implements policy.
func (o *ours) end() { o.quiet = true }
