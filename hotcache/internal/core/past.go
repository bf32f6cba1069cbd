package core

import "time"

// This file is about nodes that are out: a breaker keeps reads from waiting for one, and a limit keeps the loads that
// go past it from pouring the whole traffic on the database.

// reachable tells whether a node may be asked. After BreakFor, one flight at a time finds out whether it is back.
func (f *Front) reachable(now time.Duration, node int) bool {
	n := &f.nodes[node]
	if n.failures < f.set.BreakAfter {
		return true
	}
	if now < n.outUntil || n.probing {
		return false
	}
	n.probing = true
	return true
}

// vouch is told that a node answered who asked for its head. That ends an outage, also in a process that has nothing to
// read, but not before its time, and not twice in a row: where heads come and answers do not, only an answer ends it.
func (f *Front) vouch(node int, sent time.Duration) {
	if n := &f.nodes[node]; f.Out(node) && sent >= n.outUntil && !n.vouched {
		n.failures, n.vouched = 0, true
	}
}

// Out tells whether a node is out.
func (f *Front) Out(node int) bool { return f.nodes[node].failures >= f.set.BreakAfter }

// judge counts the outcome of asking a node.
func (f *Front) judge(now time.Duration, node int, err error) {
	n := &f.nodes[node]
	n.probing = false
	if err == nil {
		n.failures, n.vouched = 0, false
		return
	}
	n.failures++
	if n.failures >= f.set.BreakAfter {
		n.outUntil = now + f.set.BreakFor
	}
}

// goPast loads without the node. What may be stored there is not known, so the row is asked for fresh, and what it
// brings is for this flight only.
//
// Nothing is heard of invalidations meanwhile, so a read must not join a load that has begun. It may join one that has
// not: so there is at most one load of a key under way, and one behind it that everybody joins.
func (f *Front) goPast(now time.Duration, fl *flight) {
	f.endTurn(now, fl)
	if len(fl.reads) == 0 {
		f.land(fl) // what it brings would be for nobody
		return
	}
	fl.past, fl.token, fl.min, fl.least, fl.stale = true, 0, Fresh, Fresh, nil
	fl.floor = 0
	if f.running[fl.key] != nil {
		f.behind(fl)
		return
	}
	switch {
	case f.direct < f.set.MaxDirect:
		f.loadPast(now, fl)
	case len(f.queue) < f.set.MaxWaiting:
		f.running[fl.key] = fl
		f.queue = append(f.queue, fl)
	default:
		f.fail(fl, Shed, ErrOverloaded)
		f.land(fl)
	}
}

// behind has a flight wait for the load of its key that is under way, or its reads join the one that does so already.
func (f *Front) behind(fl *flight) {
	first := f.running[fl.key]
	next := first.next
	if !first.loading {
		next = first
	}
	if next == nil {
		first.next = fl
		return
	}
	next.take(fl)
	f.land(fl)
}

func (f *Front) loadPast(now time.Duration, fl *flight) {
	f.direct++
	fl.loading = true
	f.running[fl.key] = fl
	f.load(fl)
}

// landed makes room for the next load that goes past a node. Those whose readers have all gone are not made.
func (f *Front) landed(now time.Duration, fl *flight) {
	f.direct--
	delete(f.running, fl.key)
	if next := fl.next; next != nil {
		fl.next = nil
		f.running[next.key] = next
		f.queue = append(f.queue, next)
	}
	for len(f.queue) > 0 && f.direct < f.set.MaxDirect {
		next := f.queue[0]
		f.queue[0] = nil
		f.queue = f.queue[1:]
		if len(next.reads) == 0 {
			delete(f.running, next.key)
			f.land(next)
			continue
		}
		f.loadPast(now, next)
	}
}
