package engine

import (
	"github.com/latchkey-go/latchkey/lease"
)

// queue is the line of requests that wait for a key, in order of arrival.
type queue struct {
	head, tail *node
	n          int
	prefer     int // those that pass waiting writers

	// The first one that somebody asks for, and the first such writer: who is not
	// behind one of them is behind nobody, however long the queue.
	first, writer *node
}

// node is a waiter's place in the queue of one of its keys.
type node struct {
	w          *waiter
	key        *key
	next, prev *node
}

// enqueue gives w its place on each of its keys: at the end, unless it brings an
// age from before a restart.
func (e *Engine) enqueue(w *waiter) {
	for i := range w.nodes {
		n := &w.nodes[i]
		q := &n.key.more().queue
		e.contended[n.key] = struct{}{}
		at := q.tail
		for at != nil && w.before(at.w.place) {
			at = at.prev
		}
		q.insert(n, at)
		q.asked(n)
		if w.req.flags&prefers != 0 {
			q.prefer++
		}
	}
	w.req.sess.link(w.req)
	e.ids.add(w.req)
	if w.until != never {
		e.waitEnds.add(w)
	}
	e.declare(w)
	e.stats.Waiters++
}

// insert puts n behind at, or first when at is nil.
func (q *queue) insert(n, at *node) {
	n.prev = at
	if at != nil {
		n.next, at.next = at.next, n
	} else {
		n.next, q.head = q.head, n
	}
	if n.next != nil {
		n.next.prev = n
	} else {
		q.tail = n
	}
	q.n++
}

// asked counts n among those that somebody asks for.
func (q *queue) asked(n *node) {
	if q.first == nil || n.w.before(q.first.w.place) {
		q.first = n
	}
	if writes(n) && (q.writer == nil || n.w.before(q.writer.w.place)) {
		q.writer = n
	}
}

// unasked is the opposite, for a node that is still in the queue. It reports
// whether somebody else may have become the first.
func (q *queue) unasked(n *node) (matters bool) {
	if n == q.first {
		matters = true
		for q.first = n.next; q.first != nil && !q.first.w.active(); {
			q.first = q.first.next
		}
	}
	if n == q.writer {
		matters = true
		for q.writer = n.next; q.writer != nil && !(q.writer.w.active() && writes(q.writer)); {
			q.writer = q.writer.next
		}
	}
	return matters
}

func writes(n *node) bool { return n.w.req.mode != lease.Shared }

func (q *queue) remove(n *node) {
	if n.prev != nil {
		n.prev.next = n.next
	} else {
		q.head = n.next
	}
	if n.next != nil {
		n.next.prev = n.prev
	} else {
		q.tail = n.prev
	}
	n.next, n.prev = nil, nil
	q.n--
}

// dequeue takes w out of every queue; its request stays in the indexes.
func (e *Engine) dequeue(w *waiter) {
	for i := range w.nodes {
		n := &w.nodes[i]
		q := &n.key.busy.queue
		matters := q.unasked(n)
		q.remove(n)
		if w.req.flags&prefers != 0 {
			q.prefer--
		}
		if q.n == 0 {
			delete(e.contended, n.key)
		}
		if matters || q.n == 0 {
			e.touched(n.key)
		}
	}
	e.waitEnds.remove(w)
	e.undeclare(w)
	e.stats.Waiters--
}

// refuseWaiter ends a waiting request without a grant.
func (e *Engine) refuseWaiter(w *waiter, err error) {
	r := w.req
	code := lease.CodeOf(err)
	e.dequeue(w)
	e.forget(r, code)
	e.done(r.sess, w.callers, lease.Lease{}, never, err)
	for i := range w.nodes {
		e.event(lease.EventDequeued, r, w.nodes[i].key, 0, e.now-w.arrival, code)
	}
}

// room reports whether the holders of k leave room for r. A key that does not
// exist has room for anyone.
func room(r *request, k *key) bool {
	switch {
	case k == nil:
		return true
	case k.delayed() != nil:
		return false
	case k.n == 0:
		return true
	case r.mode == lease.Shared:
		return k.limit == 0 && k.n < lease.MaxSharedHolders
	}
	// Counted, with exclusive as limit 1: holders and itself are no more than
	// the smallest limit among them. A limit of 0 marks shared holders.
	return k.limit != 0 && k.n+1 <= min(k.limit, r.limit)
}

// conflicts is the order that queues keep: of two requests that conflict, the
// later one is not granted while the earlier one waits.
func conflicts(a, b *request) bool {
	return a.mode != lease.Shared || b.mode != lease.Shared
}

// behind reports whether r, at its place, has to wait for somebody who waits on
// k. One whose session has no connection is passed over, and a reader that
// prefers readers waits for nobody.
func behind(r *request, k *key, at place) bool {
	q := k.waiting()
	if q == nil || r.flags&prefers != 0 {
		return false
	}
	n := q.first
	if r.mode == lease.Shared {
		n = q.writer
	}
	return n != nil && n.w.before(at)
}

// inTheWay returns the first key that keeps a waiter from being granted: one
// without room, or with somebody ahead. It is nil when nothing does.
func (w *waiter) inTheWay() *key {
	for i := range w.nodes {
		if k := w.nodes[i].key; !room(w.req, k) || behind(w.req, k, w.place) {
			return k
		}
	}
	return nil
}

// touched notes that something about k changed: it may be free for a waiter, or
// for the garbage collector.
func (e *Engine) touched(k *key) {
	if !k.dirty {
		k.dirty = true
		e.dirty = append(e.dirty, k)
	}
}

// pass hands freed keys to their waiters, until nothing more can be granted. A
// grant touches its other keys again, because leaving their queues may let a
// later waiter through. The order of the keys does not matter: whenever two
// waiters share a key the earlier one has precedence there. (Readers that prefer
// readers are the exception; any order is right for those.)
func (e *Engine) pass() {
	for len(e.dirty) > 0 {
		k := e.dirty[len(e.dirty)-1]
		e.dirty = e.dirty[:len(e.dirty)-1]
		k.dirty = false
		switch {
		case k.waiting() != nil:
			e.passKey(k)
		case k.n == 0 && k.delayed() == nil:
			e.keys.remove(k)
		default:
			if k.delayed() == nil {
				k.busy = nil // nobody waits any more: one allocation less to keep
			}
		}
	}
}

// passKey grants k to those of its waiters that nothing keeps from it. A waiter
// that another key is in the way of is not looked at: only a change there can
// help it, so that many who wait for many keys cost one step each.
func (e *Engine) passKey(k *key) {
	if e.quietUntil > 0 || e.unready() != nil {
		return
	}
	var writer, reader bool // an active one waits ahead
	var next *node
	q := k.waiting()
	for n := q.first; n != nil; n = next {
		next = n.next
		w := n.w
		if !w.active() {
			continue
		}
		writes := writes(n)
		behind := writes && (writer || reader) || !writes && writer && w.req.flags&prefers == 0
		if !behind && (w.where == nil || w.where == k) && e.tokensLeft(len(w.nodes)) {
			if w.where = w.inTheWay(); w.where == nil {
				e.grantWaiter(w)
				continue
			}
		}
		writer, reader = writer || writes, reader || !writes
		full := k.n > 0 && k.limit == 1 || k.delayed() != nil
		if full || writer && q.prefer == 0 {
			return // nobody behind can get it: a long queue costs nothing here
		}
	}
}

func (e *Engine) grantWaiter(w *waiter) {
	r := w.req
	e.dequeue(w)
	r.wait = nil
	waited := e.now - w.arrival
	if waited > 0 {
		r.more().waited = waited
	}
	e.stats.Wait.Observe(waited)
	keys := make([]*key, len(w.nodes))
	for i := range w.nodes {
		keys[i] = w.nodes[i].key
	}
	e.grant(r, keys, waited)
	l, end := e.leaseOf(r)
	e.done(r.sess, w.callers, l, end, nil)
}
