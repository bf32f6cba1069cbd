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
// holders of a shared key, the requests ahead in the queue, and the requests that
// declared a hold are needed all.
//
// Nobody is stuck before a request comes, so a search when one is queued, or asked
// for again after it was passed over, is enough: a grant adds a hold that nobody
// has declared, and whoever else leaves takes edges away.

// mark is a waiter's place in one search.
type mark struct {
	stuck bool
	from  *waiter // on the way to it, while the cycle is looked for
	key   string  // of from, that it waits for
}

// deadlockSearch is what the engine keeps for searches.
type deadlockSearch struct {
	declaring map[*request][]*waiter // who waits while holding this
	steps     int
	found     []*waiter
}

// maxReduction bounds the work of one reduction, in looks at a holder or a
// waiter: some milliseconds. Beyond it no deadlock is reported.
const maxReduction = 20 * lease.MaxDeadlockSearch

// resolve finds the declared holds. Those that are gone make no edge, nor does an
// id that several other sessions use: it cannot be told whose is meant.
func (e *Engine) resolve(s *Session, ids []string) []*request {
	var held []*request
	for _, id := range ids {
		r := e.anyones(s, id)
		if r == nil || r.wait != nil || r.sess != s && e.ambiguous(r) || slices.Contains(held, r) {
			continue
		}
		held = append(held, r)
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
	if len(w.declared) == 0 && w.last() {
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
	if !s.reduce() || !w.mark.stuck {
		return nil
	}
	return s.cycle(w)
}

// last reports whether nobody queues behind w.
func (w *waiter) last() bool {
	return !slices.ContainsFunc(w.nodes, func(n node) bool { return n.next != nil })
}

// reduce takes the stuck marks off those that can go on. It sweeps to and fro,
// because what was found first mostly depends on what was found later, and in a
// queue it is the other way round.
func (s *deadlockSearch) reduce() bool {
	s.steps = 0
	for sweep := 0; ; sweep++ {
		changed := false
		for i := range s.found {
			x := s.found[i]
			if sweep%2 == 0 {
				x = s.found[len(s.found)-1-i]
			}
			if x.mark.stuck && s.grantable(x) {
				x.mark.stuck = false
				changed = true
			}
			if s.steps > maxReduction {
				return false
			}
		}
		if !changed {
			return true
		}
	}
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
		if s.steps++; m.w.active() && m.w.mark.stuck && conflicts(m.w.req, x.req) {
			return m.w
		}
	}
	return nil
}

// stuckHolder returns a stuck waiter that declared a hold of k which x needs gone,
// or nil when the holders that can go leave room for x.
func (s *deadlockSearch) stuckHolder(x *waiter, k *key) *waiter {
	var blocker *waiter
	stuck, limit := int32(0), x.req.limit
	for h := k.first; h != nil; h = h.next {
		s.steps++
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

// keeper returns a stuck waiter that declared the hold: the hold stands until all
// that declared it are answered.
func (s *deadlockSearch) keeper(r *request) *waiter {
	for _, w := range s.declaring[r] {
		if s.steps++; w.mark.stuck {
			return w
		}
	}
	return nil
}

// cycle finds a shortest way from w, over what each is stuck on, back to w. There
// is one: without w nothing here would be stuck.
func (s *deadlockSearch) cycle(w *waiter) []lease.Wait {
	for queue := []*waiter{w}; len(queue) > 0; queue = queue[1:] {
		x := queue[0]
		closed := s.reasons(x, func(y *waiter, key string) bool {
			if y.mark.from == nil {
				y.mark.from, y.mark.key = x, key
				queue = append(queue, y)
			}
			return y == w
		})
		if closed {
			break
		}
	}
	var cycle []lease.Wait
	for x := w; x.mark.from != nil; {
		key := x.mark.key
		x = x.mark.from
		p := x.req.sess.party
		p.Label = x.req.label()
		cycle = append(cycle, lease.Wait{Who: p.Who(), Key: key})
		if x == w {
			break
		}
	}
	slices.Reverse(cycle)
	return cycle
}

// reasons calls yield with each stuck waiter that keeps x from a key, until it
// returns true.
func (s *deadlockSearch) reasons(x *waiter, yield func(y *waiter, key string) bool) bool {
	for i := range x.nodes {
		n := &x.nodes[i]
		name := n.key.name
		if s.stuckHolder(x, n.key) != nil {
			for h := n.key.first; h != nil; h = h.next {
				for _, y := range s.declaring[h.req] {
					if y.mark.stuck && yield(y, name) {
						return true
					}
				}
			}
		}
		if x.req.flags&prefers != 0 {
			continue
		}
		for m := n.key.busy.queue.head; m != n; m = m.next {
			if m.w.active() && m.w.mark.stuck && conflicts(m.w.req, x.req) && yield(m.w, name) {
				return true
			}
		}
	}
	return false
}

func (e *Engine) refuseDeadlocked(w *waiter, cycle []lease.Wait) {
	e.stats.Deadlocks++
	e.refuseWaiter(w, &lease.Error{Code: lease.ErrDeadlock, Op: "acquire", Key: cycle[0].Key, Cycle: cycle,
		Reason: "granting this must wait for the requester itself; take the keys in one request, or in one order everywhere"})
}
