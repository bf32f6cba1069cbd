package engine

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// shownHolders is how many holders an error or a queued notice names.
const shownHolders = 8

// shownWaiters is how many waiters of a key a listing shows; a query for one
// key shows more.
const (
	shownWaiters    = 100
	shownWaitersOne = 1000
)

// recoverWindow is how long after its start the service lets requests bring the
// age they had before: long enough for every client to have reconnected.
const recoverWindow = 30 * time.Second

func (e *Engine) recovering() bool { return e.now < recoverWindow }

func (e *Engine) holdersOf(k *key, most int) []lease.Holder {
	if k == nil || k.n == 0 {
		return nil
	}
	out := make([]lease.Holder, 0, min(int(k.n), most))
	for h := k.first; h != nil && len(out) < most; h = h.next {
		p := h.req.sess.party
		p.Label = h.req.label()
		left := lease.Forever
		if h.end != never {
			left = max(h.end-e.now, 0)
		}
		out = append(out, lease.Holder{
			Party: p, Mode: h.req.mode, Limit: shownLimit(h.req), Token: lease.Token(h.token),
			Since: e.now - h.since, TTL: h.req.ttl, Remaining: left,
			Detached: h.req.flags&detached != 0, Broken: h.req.sess.broken,
		})
	}
	return out
}

func (e *Engine) waitersOf(k *key, most int) []lease.Waiter {
	q := k.waiting()
	if q == nil || most == 0 {
		return nil
	}
	out := make([]lease.Waiter, 0, min(q.n, most))
	for n := q.head; n != nil && len(out) < most; n = n.next {
		w := n.w
		p := w.req.sess.party
		p.Label = w.req.label()
		left := lease.Forever
		if w.until != never {
			left = max(w.until-e.now, 0)
		}
		out = append(out, lease.Waiter{
			Party: p, Mode: w.req.mode, Limit: shownLimit(w.req), Keys: len(w.nodes),
			Age: e.now - w.arrival, Left: left, Broken: !w.active(),
		})
	}
	return out
}

func (e *Engine) info(k *key, waiters int) lease.KeyInfo {
	i := lease.KeyInfo{Key: k.name, Holders: e.holdersOf(k, lease.MaxHolders), Waiters: e.waitersOf(k, waiters)}
	if q := k.waiting(); q != nil {
		i.Waiting = q.n
	}
	if d := k.delayed(); d != nil {
		i.Delay = max(d.until-e.now, 0)
	}
	return i
}

// List answers a query. A listing of many keys costs a walk over all of them.
func (e *Engine) List(q lease.Query) (lease.Listing, error) {
	limit := q.Limit
	switch {
	case limit == 0:
		limit = 1000
	case limit < 0 || limit > lease.MaxListed:
		err := lease.Refuse("limit is %d, it must be 1 to %d (MaxListed)", q.Limit, lease.MaxListed)
		return lease.Listing{}, failed(err).on("list", "")
	}
	var l lease.Listing
	switch {
	case q.Key != "":
		if k := e.keys.first(q.Key); k != nil {
			l.Keys = append(l.Keys, e.info(k, shown(q, shownWaitersOne)))
		}
		return l, nil
	case q.Contended:
		ks := smallest(maps.Keys(e.contended), func(k *key) bool { return q.Matches(k.name) }, limit+1, func(a, b *key) int {
			return cmp.Or(cmp.Compare(b.waiting().n, a.waiting().n), cmp.Compare(a.name, b.name))
		})
		return e.page(ks, limit, shown(q, shownWaiters)), nil
	}
	ks := smallest(e.keys.all, func(k *key) bool { return (q.After == "" || k.name > q.After) && q.Matches(k.name) }, limit+1,
		func(a, b *key) int { return cmp.Compare(a.name, b.name) })
	return e.page(ks, limit, shown(q, shownWaiters)), nil
}

// shown is how many waiters of a key a query is answered with.
func shown(q lease.Query, most int) int {
	if q.Brief {
		return 0
	}
	return most
}

func (e *Engine) page(ks []*key, limit, waiters int) lease.Listing {
	var l lease.Listing
	if len(ks) > limit {
		ks, l.More = ks[:limit], true
	}
	for _, k := range ks {
		l.Keys = append(l.Keys, e.info(k, waiters))
	}
	return l
}

// smallest returns the n first keys in an order, of those that match, with memory
// for n only: it sorts and cuts whenever it has gathered twice as many.
func smallest(all iter.Seq[*key], match func(*key) bool, n int, order func(a, b *key) int) []*key {
	var ks []*key
	var last *key // once n are known, those after the last of them need not be kept
	for k := range all {
		if !match(k) || last != nil && order(k, last) >= 0 {
			continue
		}
		ks = append(ks, k)
		if len(ks) == 2*n {
			slices.SortFunc(ks, order)
			ks = ks[:n]
			last = ks[n-1]
		}
	}
	slices.SortFunc(ks, order)
	return ks[:min(n, len(ks))]
}

// Stats returns the counters and gauges that the engine knows.
func (e *Engine) Stats() lease.Stats {
	s := e.stats
	s.Keys = e.keys.n
	s.ContendedKeys = len(e.contended)
	s.Sessions = len(e.sessions)
	s.Timers = e.holdEnds.n + e.waitEnds.n + e.graceEnds.n + e.delayEnds.n
	s.LastToken = lease.Token(e.token)
	s.Recovering = max(e.quietUntil-e.now, 0)
	s.Uptime = e.now
	for _, x := range e.sessions {
		if x.broken {
			s.Broken++
		}
	}
	return s
}
