package engine

import (
	"errors"
	"fmt"
	"slices"
)

// check recounts everything that the engine keeps twice, and says what does not
// agree. It may be called whenever no call of the engine is under way; every
// test that drives a world does so after each step.
func (e *Engine) check() error {
	c := &checker{e: e, holds: map[*hold]bool{}, waiters: map[*waiter]bool{}, delays: map[*delay]bool{}, sessions: map[*Session]bool{}}
	c.keys()
	c.requests()
	c.allSessions()
	c.wheels()
	c.declared()
	c.stats()
	return errors.Join(c.faults...)
}

// checker collects what there is by walking the keys, and compares every other
// index with that.
type checker struct {
	e        *Engine
	faults   []error
	holds    map[*hold]bool
	waiters  map[*waiter]bool
	delays   map[*delay]bool
	sessions map[*Session]bool
}

func (c *checker) that(ok bool, format string, args ...any) {
	if !ok {
		c.faults = append(c.faults, fmt.Errorf(format, args...))
	}
}

func (c *checker) keys() {
	e := c.e
	c.that(len(e.dirty) == 0, "%d keys were touched and not looked at", len(e.dirty))
	names, contended := map[string]bool{}, 0
	for k := range e.keys.all {
		c.that(!names[k.name], "key %q has two records", k.name)
		names[k.name] = true
		c.that(e.keys.first(k.name) == k, "key %q is in the wrong bucket", k.name)
		c.that(!k.dirty, "key %q is marked and not listed", k.name)
		c.that(k.n > 0 || k.waiting() != nil || k.delayed() != nil, "key %q has no reason to be", k.name)
		c.that(k.busy == nil || k.waiting() != nil || k.delayed() != nil, "key %q keeps an empty queue", k.name)
		c.holders(k)
		c.queue(k)
		if k.waiting() != nil {
			contended++
			_, listed := e.contended[k]
			c.that(listed, "key %q has waiters and is not listed as contended", k.name)
		}
		if d := k.delayed(); d != nil {
			c.that(d.key == k, "the delay of key %q belongs to another", k.name)
			c.delays[d] = true
		}
	}
	c.that(len(names) == e.keys.n, "%d keys, %d counted", len(names), e.keys.n)
	c.that(contended == len(e.contended), "%d contended keys, %d listed", contended, len(e.contended))
}

func (c *checker) holders(k *key) {
	n, limit, shared := int32(0), int32(0), int32(0)
	var prev *hold
	for h := k.first; h != nil; prev, h = h, h.next {
		c.that(h.prev == prev && h.key == k && h.live(), "key %q: a broken link or a dead hold among the holders", k.name)
		c.that(prev == nil || prev.token < h.token, "key %q: holders are not in the order of their grants", k.name)
		c.that(h.token <= c.e.token, "key %q: token %d is not granted yet", k.name, h.token)
		if n == 0 || h.req.limit < limit {
			limit = h.req.limit
		}
		if h.req.limit == 0 {
			shared++
		}
		n++
		c.holds[h] = true
	}
	c.that(k.last == prev, "key %q: the last holder is another", k.name)
	c.that(k.n == n, "key %q: %d holders, %d counted", k.name, n, k.n)
	c.that(n == 0 || k.limit == limit, "key %q: smallest limit %d, %d kept", k.name, limit, k.limit)
	c.that(shared == 0 || shared == n, "key %q: %d shared holders among %d", k.name, shared, n)
	c.that(shared > 0 || n <= limit, "key %q: %d holders with limit %d", k.name, n, limit)
}

func (c *checker) queue(k *key) {
	q := k.waiting()
	if q == nil {
		return
	}
	n, prefer := 0, 0
	var prev, first, writer *node
	for m := q.head; m != nil; prev, m = m, m.next {
		c.that(m.prev == prev && m.key == k, "key %q: a broken link in the queue", k.name)
		c.that(prev == nil || prev.w.before(m.w.place), "key %q: the queue is not in the order of arrival", k.name)
		c.that(m.w.req.wait == m.w, "key %q: a waiter that waits no more is queued", k.name)
		c.that(slices.ContainsFunc(m.w.nodes, func(x node) bool { return x.key == k }), "key %q: a waiter does not know that it is queued", k.name)
		if m.w.req.flags&prefers != 0 {
			prefer++
		}
		if m.w.active() && first == nil {
			first = m
		}
		if m.w.active() && writes(m) && writer == nil {
			writer = m
		}
		n++
		c.waiters[m.w] = true
	}
	c.that(q.first == first && q.writer == writer, "key %q: the first that somebody asks for, or the first such writer, is another", k.name)
	c.that(q.tail == prev, "key %q: the tail of the queue is another", k.name)
	c.that(q.n == n && q.prefer == prefer, "key %q: %d waiters of which %d prefer readers, %d and %d counted", k.name, n, prefer, q.n, q.prefer)
}

func (c *checker) requests() {
	e := c.e
	n := 0
	for r := range e.ids.all {
		n++
		c.that(r.sess.ended || e.own(r.sess, r.id) == r, "request %q is in the wrong bucket or there twice", r.id)
		if h := e.ids.heads.first(r.id); r.flags&namesake == 0 {
			c.that(h == r, "request %q is not the first with its id, and takes itself for it", r.id)
		} else {
			next := following(r)
			c.that(h != r && (next == nil || next.twin == r), "request %q: a broken link among those with its id", r.id)
		}
		live := uint8(0)
		for i := range r.holds {
			if h := &r.holds[i]; h.live() {
				live++
				c.that(c.holds[h] && h.req == r, "request %q: its hold is not among the holders of its key", r.id)
				delete(c.holds, h)
			}
		}
		c.that(live == r.live, "request %q: %d live holds, %d counted", r.id, live, r.live)
		c.that((r.wait != nil) != (live > 0), "request %q waits: %v, and has %d holds", r.id, r.wait != nil, live)
		if r.wait != nil {
			c.that(c.waiters[r.wait], "request %q waits and is in no queue", r.id)
			c.that(r.wait.mark == nil, "request %q keeps a mark of a search", r.id)
			for i := range r.wait.nodes {
				k := r.wait.nodes[i].key
				c.that(e.keys.first(k.name) == k, "request %q waits for a key that is forgotten", r.id)
			}
		}
		_, there := e.sessions[r.sess.id]
		c.that(there == !r.sess.ended && r.sess.ended == (r.flags&sessionEnded != 0), "request %q: its session is there: %v, ended: %v, and it says %v",
			r.id, there, r.sess.ended, r.flags&sessionEnded != 0)
	}
	c.that(n == e.ids.n, "%d requests, %d counted", n, e.ids.n)
	c.that(len(c.holds) == 0, "%d holds belong to no request", len(c.holds))
}

func (c *checker) allSessions() {
	listed := 0
	for id, s := range c.e.sessions {
		n := 0
		var prev *request
		for r := s.first; r != nil; prev, r = r, r.snext {
			c.that(r.sprev == prev && r.sess == s && c.e.own(s, r.id) == r, "session %q: a broken link or a stray request", id)
			n++
		}
		c.that(n == s.requests && s.id == id && !s.ended, "session %q: %d requests, %d counted, ended %v", id, n, s.requests, s.ended)
		listed += n
		c.sessions[s] = true
	}
	ghosts := 0
	for r := range c.e.ids.all {
		if r.flags&sessionEnded != 0 {
			ghosts++
		}
	}
	c.that(listed+ghosts == c.e.ids.n, "%d requests of sessions and %d without one, of %d", listed, ghosts, c.e.ids.n)
}

func (c *checker) wheels() {
	e := c.e
	holds, waiters := map[*hold]bool{}, map[*waiter]bool{}
	for r := range e.ids.all {
		for i := range r.holds {
			if h := &r.holds[i]; h.live() && h.end != never {
				holds[h] = true
			}
		}
		if r.wait != nil && r.wait.until != never {
			waiters[r.wait] = true
		}
	}
	for s := range c.sessions {
		if s.due() == never {
			delete(c.sessions, s)
		}
	}
	checkWheel(c, "ends of holds", &e.holdEnds, holds)
	checkWheel(c, "ends of waits", &e.waitEnds, waiters)
	checkWheel(c, "ends of graces", &e.graceEnds, c.sessions)
	checkWheel(c, "ends of delays", &e.delayEnds, c.delays)
}

// checkWheel compares a wheel with the entries that it should have, and each
// entry's slot with its deadline.
func checkWheel[T linked[T]](c *checker, what string, w *wheel[T], want map[T]bool) {
	var none T
	n := 0
	for level := range w.heads {
		for slot, head := range w.heads[level] {
			if (w.occupied[level]>>slot&1 == 1) != (head != none) {
				c.that(false, "%s: level %d slot %d is marked wrongly", what, level, slot)
			}
			prev := none
			for x := head; x != none; prev, x = x, x.links().next {
				n++
				l := x.links()
				c.that(want[x], "%s: an entry that should not be there", what)
				c.that(l.prev == prev && int(l.place) == 1+level*wheelSlots+slot, "%s: level %d slot %d: a broken link", what, level, slot)
				turn := w.elapsed >> ((level + 1) * wheelBits) << ((level + 1) * wheelBits)
				at := turn | int64(slot)<<(level*wheelBits)
				c.that((w.late || at > w.elapsed) && at <= max(ticksUp(x.due()), w.elapsed+1), "%s: due at tick %d, looked at in %d, now is %d",
					what, ticksUp(x.due()), at, w.elapsed)
			}
		}
	}
	c.that(n == w.n && n == len(want), "%s: %d entries, %d counted, %d wanted", what, n, w.n, len(want))
}

func (c *checker) declared() {
	edges := 0
	for w := range c.waiters {
		edges += len(w.declared)
		for _, r := range w.declared {
			c.that(slices.Contains(c.e.search.declaring[r], w), "request %q declares a hold that does not know it", w.req.id)
		}
	}
	for _, ws := range c.e.search.declaring {
		edges -= len(ws)
	}
	c.that(edges == 0, "%d edges of declared holds too few", edges)
}

func (c *checker) stats() {
	e := c.e
	holds, shared, many := 0, 0, 0
	for r := range e.ids.all {
		holds += int(r.live)
		if r.live > 0 && len(r.holds) > 1 {
			many++
		}
		for i := range r.holds {
			if r.holds[i].live() && r.limit == 0 {
				shared++
			}
		}
	}
	s := e.Stats()
	c.that(s.Holds == holds && s.SharedHolds == shared && s.ManyHolds == many, "gauges: %d holds, %d shared, %d of many keys; counted %d, %d, %d",
		holds, shared, many, s.Holds, s.SharedHolds, s.ManyHolds)
	c.that(s.Waiters == len(c.waiters), "gauges: %d waiters, %d counted", len(c.waiters), s.Waiters)
	if e.cfg.Durable {
		c.that(e.mark >= e.token, "token %d is above the mark %d", e.token, e.mark)
	}
}
