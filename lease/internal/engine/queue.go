package engine

import (
	"github.com/latchkey-go/latchkey/lease"
)

// queue is the line of requests that wait for a key, in order of arrival.
type queue struct {
	head, tail *node
	n          int
	prefer     int // those that pass waiting writers
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
		for at != nil && w.before(at.w) {
			at = at.prev
		}
		q.insert(n, at)
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
		q.remove(n)
		if w.req.flags&prefers != 0 {
			q.prefer--
		}
		if q.n == 0 {
			delete(e.contended, n.key)
		}
		e.touched(n.key)
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
	e.done(w.callers, lease.Lease{}, never, err)
	for i := range w.nodes {
		e.event(lease.EventDequeued, r, w.nodes[i].key, 0, e.now-w.arrival, code)
	}
	if e.unready() == nil {
		e.recheck(w)
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

// ahead returns the first waiter on k that r has to wait for, looking no further
// than self. One whose session has no connection is passed over, and a reader
// that prefers readers waits for nobody.
func ahead(r *request, k *key, self *node) *waiter {
	q := k.waiting()
	if q == nil || r.flags&prefers != 0 {
		return nil
	}
	for n := q.head; n != nil && n != self; n = n.next {
		if n.w.active() && conflicts(n.w.req, r) {
			return n.w
		}
	}
	return nil
}

// fits reports whether a waiter can be granted now: room on all its keys and
// nobody ahead on any.
func (e *Engine) fits(w *waiter) bool {
	for i := range w.nodes {
		n := &w.nodes[i]
		if !room(w.req, n.key) || ahead(w.req, n.key, n) != nil {
			return false
		}
	}
	return e.tokensLeft(len(w.nodes))
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
// waiters share a key the earlier one has precedence there.
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

func (e *Engine) passKey(k *key) {
	if e.quietUntil > 0 || e.unready() != nil {
		return
	}
	var writer, reader bool // an active one waits ahead
	var next *node
	q := k.waiting()
	for n := q.head; n != nil; n = next {
		next = n.next
		w := n.w
		if !w.active() {
			continue
		}
		writes := w.req.mode != lease.Shared
		behind := writes && (writer || reader) || !writes && writer && w.req.flags&prefers == 0
		if !behind && e.fits(w) {
			e.grantWaiter(w)
			continue
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
	e.done(w.callers, l, end, nil)
	e.recheck(w)
}
