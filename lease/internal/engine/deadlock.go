package engine

import (
	"slices"

	"github.com/latchkey-go/latchkey/lease"
)

// A request may declare holds that will not be released before it is answered.
// Declared holds are the only edges of the waits-for graph: many goroutines of
// one session that wait innocently are never taken for a deadlock.
//
// A request is refused only when reduction of the graph proves it stuck: take
// away, again and again, every waiting request that could be granted once all
// holds that nobody stuck has declared were released. What remains waits for
// itself (Holt, "Some deadlock properties of computer systems", 1972). Holders
// of a counted key are alternatives, since any one of them may make room; the
// holders of a shared key, and the requests ahead in the queue, are needed all.

// mark is a waiter's place in one search.
type mark struct {
	stuck bool
}

// deadlockSearch is what the engine keeps for searches.
type deadlockSearch struct {
	declaring map[*request][]*waiter // who waits while holding this
	steps     int
	found     []*waiter
}

// resolve finds the declared holds; those that are gone make no edge.
func (e *Engine) resolve(s *Session, ids []string) []*request {
	var held []*request
	for _, id := range ids {
		if r := e.anyones(s, id); r != nil && r.wait == nil && !slices.Contains(held, r) {
			held = append(held, r)
		}
	}
	return held
}

func (e *Engine) declare(w *waiter) {
	for _, r := range w.declared {
		if e.search.declaring == nil {
			e.search.declaring = make(map[*request][]*waiter)
		}
		e.search.declaring[r] = append(e.search.declaring[r], w)
	}
}

func (e *Engine) undeclare(w *waiter) {
	for _, r := range w.declared {
		rest := slices.DeleteFunc(e.search.declaring[r], func(x *waiter) bool { return x == w })
		if len(rest) == 0 {
			delete(e.search.declaring, r)
		} else {
			e.search.declaring[r] = rest
		}
	}
}

// deadlock returns the cycle that w is stuck in, or nil.
func (e *Engine) deadlock(w *waiter) []lease.Wait {
	if len(w.declared) == 0 {
		return nil // nothing depends on w, so it closes no cycle
	}
	s := &e.search
	s.steps, s.found = 0, s.found[:0]
	defer func() {
		for _, x := range s.found {
			x.mark = nil
		}
		clear(s.found)
	}()
	if !s.explore(w) {
		return nil // too large to prove
	}
	for changed := true; changed; {
		changed = false
		for _, x := range s.found {
			if x.mark.stuck && s.grantable(x) {
				x.mark.stuck = false
				changed = true
			}
		}
	}
	if !w.mark.stuck {
		return nil
	}
	return s.cycle(w)
}

// explore marks everything that w's grant may depend on, and gives up beyond
// MaxDeadlockSearch.
func (s *deadlockSearch) explore(w *waiter) bool {
	w.mark = &mark{stuck: true}
	s.found = append(s.found, w)
	for i := 0; i < len(s.found); i++ {
		x := s.found[i]
		if !x.active() {
			x.mark.stuck = false // its session returns or ends: that will move it
			continue
		}
		for j := range x.nodes {
			n := &x.nodes[j]
			for m := n.key.busy.queue.head; m != n && x.req.flags&prefers == 0; m = m.next {
				if !s.visit(m.w) {
					return false
				}
			}
			for h := n.key.first; h != nil; h = h.next {
				if s.steps++; s.steps > lease.MaxDeadlockSearch {
					return false
				}
				for _, y := range s.declaring[h.req] {
					if !s.visit(y) {
						return false
					}
				}
			}
		}
	}
	return true
}

func (s *deadlockSearch) visit(w *waiter) bool {
	if s.steps++; s.steps > lease.MaxDeadlockSearch {
		return false
	}
	if w.mark == nil {
		w.mark = &mark{stuck: true}
		s.found = append(s.found, w)
	}
	return true
}

// grantable reports whether x would be granted once everything that is not
// stuck has run its course.
func (s *deadlockSearch) grantable(x *waiter) bool {
	for i := range x.nodes {
		n := &x.nodes[i]
		if s.stuckAhead(x, n) != nil || s.stuckHolder(x, n.key) != nil {
			return false
		}
	}
	return true
}

// stuckAhead returns a stuck request that x queues behind, or nil.
func (s *deadlockSearch) stuckAhead(x *waiter, n *node) *waiter {
	if x.req.flags&prefers != 0 {
		return nil
	}
	for m := n.key.busy.queue.head; m != n; m = m.next {
		if m.w.active() && m.w.mark.stuck && conflicts(m.w.req, x.req) {
			return m.w
		}
	}
	return nil
}

// stuckHolder returns a waiter that keeps a holder which x needs gone from ever
// releasing k, or nil when the holders that can go leave room for x.
func (s *deadlockSearch) stuckHolder(x *waiter, k *key) *waiter {
	var blocker *waiter
	stuck, limit := int32(0), x.req.limit
	for h := k.first; h != nil; h = h.next {
		y := s.keeper(h.req)
		if y == nil || x.req.mode == lease.Shared && h.req.mode == lease.Shared {
			continue
		}
		blocker = y
		stuck++
		limit = min(limit, h.req.limit)
	}
	if stuck == 0 || x.req.mode != lease.Shared && stuck+1 <= limit {
		return nil
	}
	return blocker
}

// keeper returns a stuck waiter that declared the hold, if all that declared it
// are stuck: while one of them can go on, the hold may yet be released.
func (s *deadlockSearch) keeper(r *request) *waiter {
	var y *waiter
	for _, w := range s.declaring[r] {
		if !w.mark.stuck {
			return nil
		}
		y = w
	}
	return y
}

// cycle walks from one stuck waiter to what it is stuck on until it meets
// itself.
func (s *deadlockSearch) cycle(w *waiter) []lease.Wait {
	var path []*waiter
	var keys []string
	for !slices.Contains(path, w) {
		path = append(path, w)
		next, key := s.reason(w)
		keys = append(keys, key)
		w = next
	}
	var cycle []lease.Wait
	for i := slices.Index(path, w); i < len(path); i++ {
		p := path[i].req.sess.party
		p.Label = path[i].req.label()
		cycle = append(cycle, lease.Wait{Who: p.Who(), Key: keys[i]})
	}
	return cycle
}

func (s *deadlockSearch) reason(w *waiter) (next *waiter, key string) {
	for i := range w.nodes {
		n := &w.nodes[i]
		if y := s.stuckHolder(w, n.key); y != nil {
			return y, n.key.name
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if y := s.stuckAhead(w, n); y != nil {
			return y, n.key.name
		}
	}
	return w, w.nodes[0].key.name // unreachable: a stuck waiter has a reason
}

// recheck looks for a deadlock that became certain because w waits no more: a
// hold that it had declared may now depend on stuck requests only.
func (e *Engine) recheck(w *waiter) {
	for _, r := range w.declared {
		for _, y := range slices.Clone(e.search.declaring[r]) {
			if !y.active() || y.req.wait != y {
				continue
			}
			if cycle := e.deadlock(y); cycle != nil {
				e.refuseDeadlocked(y, cycle)
			}
		}
	}
}

func (e *Engine) refuseDeadlocked(w *waiter, cycle []lease.Wait) {
	e.stats.Deadlocks++
	e.refuseWaiter(w, &lease.Error{Code: lease.ErrDeadlock, Op: "acquire", Key: cycle[0].Key, Cycle: cycle,
		Reason: "granting this must wait for the requester itself; take the keys in one request, or in one order everywhere"})
}
