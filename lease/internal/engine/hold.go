package engine

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// released is how a request ended that was not lost; it is an outcome only.
const released lease.Code = "released"

// maxTokenScan bounds the search for a hold by its token, newest first. A
// session with more holds names them by id.
const maxTokenScan = 10_000

// grant gives r its keys: it takes tokens, starts the ttl and writes the record.
func (e *Engine) grant(r *request, keys []*key, waited time.Duration) {
	if len(keys) == 1 {
		r.holds = r.one[:]
	} else {
		r.holds = make([]hold, len(keys))
		e.stats.ManyHolds++
	}
	end := e.lifetime(r)
	for i, k := range keys {
		h := &r.holds[i]
		*h = hold{key: k, req: r, token: e.nextToken(), end: end, since: e.now}
		e.hang(h)
		e.event(lease.EventGranted, r, k, h.token, waited, "")
	}
	e.stats.Granted++
	e.recordGrant(r)
}

// lifetime computes when r ends if it is granted or renewed now.
func (e *Engine) lifetime(r *request) time.Duration {
	end := never
	if r.ttl != lease.Forever {
		end = e.now + r.ttl
	}
	if r.extra != nil && r.extra.maxHold > 0 {
		if r.extra.maxEnd == 0 {
			r.extra.maxEnd = e.now + r.extra.maxHold
		}
		if end == never || end > r.extra.maxEnd {
			end = r.extra.maxEnd
		}
	}
	return end
}

// hang makes h a holder of its key.
func (e *Engine) hang(h *hold) {
	k := h.key
	h.prev = k.last
	if k.last != nil {
		k.last.next = h
	} else {
		k.first = h
	}
	k.last = h
	k.n++
	if k.n == 1 || h.req.limit < k.limit {
		k.limit = h.req.limit
	}
	h.req.live++
	if h.end != never {
		e.holdEnds.add(h)
	}
	e.stats.Holds++
	if h.req.mode == lease.Shared {
		e.stats.SharedHolds++
	}
}

// drop ends h: the key loses a holder, and the request with its last hold is
// forgotten. how is released or the code of the loss.
func (e *Engine) drop(h *hold, kind lease.EventKind, how lease.Code) {
	k, r := h.key, h.req
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		k.first = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	} else {
		k.last = h.prev
	}
	h.next, h.prev = nil, nil
	k.n--
	if k.n > 0 && h.req.limit == k.limit && k.limit > 1 {
		k.limit = smallestLimit(k)
	}
	e.holdEnds.remove(h)
	e.stats.Holds--
	if r.mode == lease.Shared {
		e.stats.SharedHolds--
	}
	e.stats.Hold.Observe(e.now - h.since)
	var wait time.Duration
	if how != released && r.extra != nil && r.extra.lockDelay > 0 {
		wait = r.extra.lockDelay
		e.delay(k, wait)
	}
	e.record(Record{Kind: recEnd, Token: h.token, TTL: wait, Key: delayedKey(k, wait)}, r.flags&synced != 0)
	e.event(kind, r, k, h.token, e.now-h.since, "")
	h.token = 0
	r.live--
	if r.live == 0 {
		e.forget(r, how)
		if len(r.holds) > 1 {
			e.stats.ManyHolds--
		}
	}
	e.touched(k)
}

func smallestLimit(k *key) int32 {
	limit := k.first.req.limit
	for h := k.first.next; h != nil; h = h.next {
		limit = min(limit, h.req.limit)
	}
	return limit
}

// delay keeps k unavailable.
func (e *Engine) delay(k *key, d time.Duration) {
	until := e.now + d
	switch d := k.delayed(); {
	case d == nil:
		d = &delay{key: k, until: until}
		k.more().delay = d
		e.delayEnds.add(d)
	case until > d.until:
		d.until = until
	}
}

// lose ends h against its holder's will and tells the session.
func (e *Engine) lose(h *hold, kind lease.EventKind, how lease.Code, by string) {
	n := lease.Notice{ID: h.req.id, Key: h.key.name, Token: lease.Token(h.token), Code: how, By: by}
	s := h.req.sess
	e.drop(h, kind, how)
	switch how {
	case lease.ErrExpired:
		e.stats.Expired++
	case lease.ErrForced:
		e.stats.Forced++
	case lease.ErrSessionLost:
		e.stats.Ended++
	}
	if !s.ended {
		e.notice(s, n)
	}
}

// Do runs a command of a session.
func (e *Engine) Do(s *Session, epoch uint32, c lease.Command, done func(lease.Lease, error)) {
	l, end, err := e.command(s, epoch, c)
	if err != nil {
		e.reply(s, done, lease.Lease{}, never, err.on(c.Verb.String(), ""))
	} else {
		e.reply(s, done, l, end, nil)
	}
	e.pass()
}

func (e *Engine) command(s *Session, epoch uint32, c lease.Command) (lease.Lease, time.Duration, *failure) {
	if err := e.alive(s, epoch); err != nil {
		return lease.Lease{}, never, err
	}
	switch c.Verb {
	case lease.Ping:
		return lease.Lease{}, never, nil
	case lease.Cancel:
		return e.cancel(s, c.ID)
	}
	r, h, err := e.find(s, c)
	if err != nil {
		return lease.Lease{}, never, err
	}
	switch c.Verb {
	case lease.Renew:
		return e.renew(r, h, c.TTL)
	case lease.Release:
		return e.release(s, r, h)
	case lease.Detach:
		return e.detach(r)
	}
	return lease.Lease{}, never, failed(lease.Refuse("%d is not a verb", c.Verb))
}

// find returns the request, and its one hold when the command names a token.
func (e *Engine) find(s *Session, c lease.Command) (*request, *hold, *failure) {
	if c.ID == "" {
		for r, i := s.first, 0; r != nil && i < maxTokenScan && c.Token != 0; r, i = r.snext, i+1 {
			for j := range r.holds {
				if r.holds[j].token == uint64(c.Token) {
					return r, &r.holds[j], nil
				}
			}
		}
		if c.Token == 0 {
			return nil, nil, failed(lease.Refuse("name the hold by its id or by its token"))
		}
		return nil, nil, failed(&lease.Error{Code: lease.ErrNotHeld, Reason: "this session holds nothing with this token"})
	}
	r := e.anyones(s, c.ID)
	switch {
	case r == nil:
		if how, known := e.outcomes.find(s, c.ID); known {
			return nil, nil, failed(&lease.Error{Code: lease.ErrNotHeld, Reason: "it has ended: " + ended(how)})
		}
		return nil, nil, failed(&lease.Error{Code: lease.ErrNotHeld, Reason: "there is no hold with this id"})
	case r.sess != s && e.ambiguous(r):
		return nil, nil, failed(lease.Refuse("several sessions have a hold with this id; ask from one of them"))
	case r.wait != nil && c.Verb != lease.Detach:
		return nil, nil, failed(&lease.Error{Code: lease.ErrNotHeld, Reason: "it still waits; cancel it instead"})
	case c.Key == "":
		return r, nil, nil
	}
	for i := range r.holds {
		if h := &r.holds[i]; h.live() && h.key.name == c.Key {
			return r, h, nil
		}
	}
	return nil, nil, failed(&lease.Error{Code: lease.ErrNotHeld, Key: c.Key, Reason: "the lease with this id does not hold this key, or not any more"})
}

func (e *Engine) renew(r *request, only *hold, ttl time.Duration) (lease.Lease, time.Duration, *failure) {
	if ttl != 0 {
		var err error
		if ttl, err = lease.NormalizeTTL(ttl); err != nil {
			return lease.Lease{}, never, failed(err)
		}
	}
	if ttl != 0 && ttl != r.ttl {
		if err := e.unready(); err != nil {
			return lease.Lease{}, never, failed(err)
		}
		r.ttl = ttl
		r.flags |= ttlChanged
		e.markSynced(r)
		for i := range r.holds {
			if h := &r.holds[i]; h.live() {
				e.record(Record{Kind: recRenew, Token: h.token, TTL: ttl}, r.flags&synced != 0)
			}
		}
	}
	end := e.lifetime(r)
	for i := range r.holds {
		h := &r.holds[i]
		if !h.live() || only != nil && only != h {
			continue
		}
		earlier := h.end == never || end != never && end < h.end
		h.end = end
		e.holdEnds.moved(h, earlier)
	}
	e.stats.Renewals++
	l, at := e.leaseOf(r)
	return l, at, nil
}

// release ends holds of r for s. When they are another session's, that one is told:
// its holder may be at work.
func (e *Engine) release(s *Session, r *request, only *hold) (lease.Lease, time.Duration, *failure) {
	if err := e.unready(); err != nil && e.cfg.Durable {
		err.Reason += "; the hold ends by its ttl after the restart"
		return lease.Lease{}, never, failed(err)
	}
	l, _ := e.leaseOf(r)
	if only != nil {
		l.Holds = []lease.Hold{{Key: only.key.name, Token: lease.Token(only.token)}}
	}
	for i := range r.holds {
		if h := &r.holds[i]; h.live() && (only == nil || only == h) {
			if s != r.sess && !r.sess.ended {
				e.notice(r.sess, lease.Notice{ID: r.id, Key: h.key.name, Token: lease.Token(h.token),
					Code: lease.ErrNotHeld, By: "released by " + s.party.Who()})
			}
			e.drop(h, lease.EventReleased, released)
			e.stats.Released++
		}
	}
	return l, never, nil
}

func (e *Engine) detach(r *request) (lease.Lease, time.Duration, *failure) {
	if r.flags&detached == 0 {
		if err := e.unready(); err != nil && r.wait == nil {
			return lease.Lease{}, never, failed(err)
		}
		r.flags |= detached
		for i := range r.holds {
			if h := &r.holds[i]; h.live() {
				e.record(Record{Kind: recDetach, Token: h.token}, r.flags&synced != 0)
				e.event(lease.EventDetached, r, h.key, h.token, e.now-h.since, "")
			}
		}
	}
	l, end := e.leaseOf(r)
	return l, end, nil
}

// cancel leaves nothing of the request behind, whatever became of it.
func (e *Engine) cancel(s *Session, id string) (lease.Lease, time.Duration, *failure) {
	r := e.own(s, id)
	switch {
	case id == "":
		return lease.Lease{}, never, failed(lease.Refuse("cancel needs the id of a request"))
	case r == nil:
		// A cancel that overtook its request must still win: remember it.
		if _, known := e.outcomes.find(s, id); !known {
			e.outcomes.add(s, id, lease.ErrCancelled)
		}
		return lease.Lease{}, never, nil
	case r.wait != nil:
		e.stats.Cancelled++
		e.refuseWaiter(r.wait, &lease.Error{Code: lease.ErrCancelled, Op: "acquire"})
		return lease.Lease{}, never, nil
	}
	e.stats.Cancelled++
	return e.release(s, r, nil)
}

// Force ends holds of a key on an administrator's word.
func (e *Engine) Force(f lease.ForceRequest) (lease.Forced, error) {
	if err := e.unready(); err != nil {
		return lease.Forced{}, failed(err).on("force", f.Key)
	}
	if !e.tokensLeft(1) {
		return lease.Forced{}, failed(tokensUsedUp()).on("force", f.Key)
	}
	k := e.keys.first(f.Key)
	var got lease.Forced
	for h := first(k); h != nil; {
		next := h.next
		if f.Token == 0 || uint64(f.Token) == h.token {
			got.Holds = append(got.Holds, lease.Hold{Key: k.name, Token: lease.Token(h.token)})
			e.lose(h, lease.EventForced, lease.ErrForced, forcedBy(f))
		}
		h = next
	}
	if got.Holds == nil {
		reason := "nobody holds it"
		if f.Token != 0 {
			reason = "nobody holds it with this token"
		}
		return lease.Forced{}, &lease.Error{Code: lease.ErrNotHeld, Op: "force", Key: f.Key, Reason: reason}
	}
	got.Token = lease.Token(e.nextToken())
	e.pass()
	return got, nil
}

func first(k *key) *hold {
	if k == nil {
		return nil
	}
	return k.first
}

func forcedBy(f lease.ForceRequest) string {
	switch {
	case f.By != "" && f.Reason != "":
		return f.By + ": " + f.Reason
	case f.By != "":
		return f.By
	}
	return f.Reason
}

// leaseOf describes what r still holds, and when the first of it ends.
func (e *Engine) leaseOf(r *request) (lease.Lease, time.Duration) {
	l := lease.Lease{ID: r.id, TTL: r.ttl, Detached: r.flags&detached != 0}
	if r.extra != nil {
		l.Waited = r.extra.waited
	}
	end := never
	l.Holds = make([]lease.Hold, 0, len(r.holds))
	for i := range r.holds {
		h := &r.holds[i]
		if !h.live() {
			continue
		}
		l.Holds = append(l.Holds, lease.Hold{Key: h.key.name, Token: lease.Token(h.token)})
		if h.end != never && (end == never || h.end < end) {
			end = h.end
		}
	}
	return l, end
}
