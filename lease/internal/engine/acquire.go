package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// maxJoined bounds how many repeats of one waiting request are answered.
const maxJoined = 16

// Acquire decides a request, which must be normalized and have an id: it is
// answered, or queued and answered later.
func (e *Engine) Acquire(s *Session, epoch uint32, q *lease.Request, c lease.Caller) {
	if err := e.alive(s, epoch); err != nil {
		e.done(s, []lease.Caller{c}, lease.Lease{}, never, err.on("acquire", q.Keys[0]))
		return
	}
	if r := e.own(s, q.ID); r != nil {
		e.repeat(r, q, c)
		e.pass()
		return
	}
	l, end, err := e.decide(s, q, c)
	if err != nil {
		err.Op = "acquire"
		e.count(err.Code)
		e.done(s, []lease.Caller{c}, lease.Lease{}, never, err)
	} else if l.ID != "" {
		e.done(s, []lease.Caller{c}, l, end, nil)
	}
	e.pass()
}

// decide grants q, queues it (then the lease is empty), or says why not.
func (e *Engine) decide(s *Session, q *lease.Request, c lease.Caller) (lease.Lease, time.Duration, *lease.Error) {
	none := lease.Lease{}
	if how, known := e.outcomes.find(s, q.ID); known {
		e.stats.Repeats++
		if how == lease.ErrUnknown {
			return none, never, &lease.Error{Code: lease.ErrUnknown, Key: q.Keys[0], Reason: e.failed}
		}
		return none, never, &lease.Error{Code: lease.ErrOver, Key: q.Keys[0],
			Reason: "the request with this id has ended: " + ended(how)}
	}
	if err := e.unready(); err != nil {
		err.Key = q.Keys[0]
		return none, never, err
	}
	if err := e.admit(q); err != nil {
		return none, never, err
	}
	r := newRequest(s, q)
	e.seq++
	at := place{arrival: e.now, seq: e.seq}
	if e.recovering() && !q.Try {
		at.arrival -= q.Waited
	}
	free := e.quietUntil == 0
	var where string // the first key in the way
	for _, name := range q.Keys {
		k := e.keys.first(name)
		if !room(r, k) || behind(r, k, at) {
			free, where = false, name
			break
		}
	}
	switch {
	case free:
		keys := make([]*key, len(q.Keys))
		for i, name := range q.Keys {
			keys[i] = e.key(name)
		}
		s.link(r)
		e.ids.add(r)
		e.grant(r, keys, 0)
		l, end := e.leaseOf(r)
		return l, end, nil
	case q.Try:
		return none, never, e.busy(q, where)
	}
	return none, never, e.wait(r, q, c, at, where)
}

// admit checks the limits that depend on the state.
func (e *Engine) admit(q *lease.Request) *lease.Error {
	if e.stats.Holds+len(q.Keys) > lease.MaxHolds {
		return lease.Refuse("%d keys are held, no more are allowed (MaxHolds)", e.stats.Holds)
	}
	if e.stats.Waiters >= lease.MaxWaiters {
		return lease.Refuse("%d requests wait, no more are allowed (MaxWaiters)", e.stats.Waiters)
	}
	if !e.tokensLeft(len(q.Keys)) {
		return tokensUsedUp()
	}
	if q.Mode == lease.Shared {
		for _, name := range q.Keys {
			if k := e.keys.first(name); k != nil && k.limit == 0 && k.n >= lease.MaxSharedHolders {
				return atKey(name, lease.Refuse("%d shared holders, no more are allowed (MaxSharedHolders)", k.n))
			}
		}
	}
	return nil
}

func tokensUsedUp() *lease.Error {
	return lease.Refuse("fencing tokens are used up (MaxToken); start a new data directory")
}

func atKey(key string, err *lease.Error) *lease.Error {
	err.Key = key
	return err
}

func newRequest(s *Session, q *lease.Request) *request {
	r := &request{id: q.ID, sess: s, mode: q.Mode, ttl: q.TTL}
	switch q.Mode {
	case lease.Exclusive:
		r.limit = 1
	case lease.Counted:
		r.limit = int32(q.Limit)
	}
	if q.Detach {
		r.flags |= detached
	}
	if q.PreferReaders {
		r.flags |= prefers
	}
	if q.Label != "" || q.MaxHold > 0 || q.LockDelay > 0 {
		r.extra = &extra{label: q.Label, maxHold: q.MaxHold, lockDelay: q.LockDelay}
	}
	return r
}

// key returns the record of a key, making it when needed.
func (e *Engine) key(name string) *key {
	k := e.keys.first(name)
	if k == nil {
		k = &key{name: name}
		e.keys.add(k)
	}
	return k
}

// wait queues r, unless it would wait for itself.
func (e *Engine) wait(r *request, q *lease.Request, c lease.Caller, at place, where string) *lease.Error {
	for _, name := range q.Keys {
		if q := e.keys.first(name).waiting(); q != nil && q.n >= lease.MaxWaitersPerKey {
			return atKey(name, lease.Refuse("%d requests wait for this key, no more are allowed (MaxWaitersPerKey)", q.n))
		}
	}
	w := &waiter{req: r, callers: []lease.Caller{c}, place: at, until: never}
	if q.Wait > 0 {
		w.until = e.now + q.Wait
	}
	w.nodes = make([]node, len(q.Keys))
	for i, name := range q.Keys {
		w.nodes[i] = node{w: w, key: e.key(name)}
		if name == where {
			w.where = w.nodes[i].key
		}
	}
	w.declared = e.resolve(r.sess, q.Declared)
	r.wait = w
	e.enqueue(w)
	if cycle := e.deadlock(w); cycle != nil {
		e.dequeue(w)
		e.forget(r, lease.ErrDeadlock)
		return &lease.Error{Code: lease.ErrDeadlock, Key: cycle[0].Key, Cycle: cycle,
			Reason: "granting this must wait for the requester itself; take the keys in one request, or in one order everywhere"}
	}
	e.stats.Queued++
	for i := range w.nodes {
		e.event(lease.EventQueued, r, w.nodes[i].key, 0, 0, "")
	}
	e.tellQueued(w, c, w.where)
	return nil
}

// tellQueued says which key is in the way, or the first one when none is.
func (e *Engine) tellQueued(w *waiter, c lease.Caller, where *key) {
	n := &w.nodes[0]
	for i := range w.nodes {
		if w.nodes[i].key == where {
			n = &w.nodes[i]
		}
	}
	e.tells(w.req.sess)
	e.out.Effects = append(e.out.Effects, Effect{Kind: EffectQueued, Caller: c, More: lease.Queued{
		ID: w.req.id, Key: n.key.name, Position: position(n), Ahead: e.holdersOf(n.key, shownHolders),
	}})
}

// position counts the requests ahead. It walks from whichever end is the
// nearer for a newcomer: the tail.
func position(n *node) int {
	behind := 0
	for m := n.next; m != nil; m = m.next {
		behind++
	}
	return n.key.busy.queue.n - 1 - behind
}

// repeat answers a request whose id is known in its session: it joins the
// waiter, or gets the same grant.
func (e *Engine) repeat(r *request, q *lease.Request, c lease.Caller) {
	e.stats.Repeats++
	if why := differs(r, q); why != "" {
		err := lease.Refuse("the id is in use for another request: %s differs", why)
		err.Op, err.Key = "acquire", q.Keys[0]
		e.done(r.sess, []lease.Caller{c}, lease.Lease{}, never, err)
		return
	}
	w := r.wait
	if w == nil {
		l, end := e.leaseOf(r)
		e.done(r.sess, []lease.Caller{c}, l, end, nil)
		return
	}
	woken := !w.active()
	if len(w.callers) >= maxJoined {
		e.done(w.req.sess, w.callers[:1], lease.Lease{}, never, &lease.Error{Code: lease.ErrUnknown, Op: "acquire", Key: q.Keys[0],
			Reason: fmt.Sprintf("%d later repeats of the request wait for its outcome", maxJoined)})
		w.callers = slices.Delete(w.callers, 0, 1)
	}
	w.callers = append(w.callers, c)
	e.tellQueued(w, c, w.inTheWay())
	if woken {
		e.wake(w)
	}
}

// wake puts a waiter that was passed over into its place again: that can close a
// cycle, or be a grant.
func (e *Engine) wake(w *waiter) {
	w.where = nil
	for i := range w.nodes {
		n := &w.nodes[i]
		n.key.busy.queue.asked(n)
		e.touched(n.key)
	}
	if cycle := e.deadlock(w); cycle != nil {
		e.refuseDeadlocked(w, cycle)
	}
}

// differs names the first field in which a repeat is not the same request.
func differs(r *request, q *lease.Request) string {
	if r.mode != q.Mode || q.Mode == lease.Counted && int(r.limit) != q.Limit {
		return "mode"
	}
	if r.wait != nil && len(r.wait.nodes) != len(q.Keys) || r.wait == nil && len(r.holds) != len(q.Keys) {
		return "keys"
	}
	for i, name := range q.Keys {
		if r.wait != nil && r.wait.nodes[i].key.name != name || r.wait == nil && r.holds[i].key.name != name {
			return "keys"
		}
	}
	var x extra
	if r.extra != nil {
		x = *r.extra
	}
	switch {
	case r.wait != nil && q.Try:
		return "try"
	case q.PreferReaders != (r.flags&prefers != 0):
		return "prefer readers"
	case x.maxHold != q.MaxHold:
		return "max hold"
	case x.lockDelay != q.LockDelay:
		return "lock delay"
	case x.label != q.Label:
		return "label"
	case r.ttl != q.TTL && r.flags&ttlChanged == 0:
		return "ttl"
	}
	return ""
}

// busy tells a try who is in the way.
func (e *Engine) busy(q *lease.Request, where string) *lease.Error {
	err := &lease.Error{Code: lease.ErrBusy, Key: where}
	if e.quietUntil > 0 {
		err.Key = q.Keys[0]
		err.Reason = fmt.Sprintf("the service recovers from an unclean end and grants nothing for %v",
			(e.quietUntil - e.now).Round(time.Millisecond))
		return err
	}
	k := e.keys.first(where)
	err.Holders = e.holdersOf(k, shownHolders)
	switch {
	case k.delayed() != nil:
		err.Reason = fmt.Sprintf("in lock-delay for another %v", (k.delayed().until - e.now).Round(time.Millisecond))
	case k.waiting() != nil:
		err.Reason = fmt.Sprintf("%d waiting ahead", k.waiting().n)
	}
	return err
}

// timeout tells a waiter whose time ran out who was in the way.
func (e *Engine) timeout(w *waiter) *lease.Error {
	k := w.inTheWay()
	if k == nil {
		k = w.nodes[0].key
	}
	return &lease.Error{Code: lease.ErrTimeout, Op: "acquire", Key: k.name,
		Reason:  fmt.Sprintf("waited %v", (e.now - w.arrival).Round(time.Millisecond)),
		Holders: e.holdersOf(k, shownHolders)}
}

func ended(how lease.Code) string {
	switch how {
	case released:
		return "released"
	case lease.ErrSessionLost:
		return "its session ended"
	}
	return string(how)
}

func (e *Engine) count(c lease.Code) {
	switch c {
	case lease.ErrBusy:
		e.stats.Busy++
	case lease.ErrDeadlock:
		e.stats.Deadlocks++
	case lease.ErrRefused:
		e.stats.Refused++
	}
}
