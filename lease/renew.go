package lease

import (
	"context"
	"math/rand/v2"
	"time"
)

// passedLocked says why the hold is over by this side's own reckoning, or nil.
// The deadline is read before the session's id: a session that is replaced
// under the same value changes both, so that the new deadline never vouches for
// a hold of the old session.
func (h *Held) passedLocked(now time.Time) error {
	until := SafeUntil(h.lease, h.link.session)
	if !h.lease.Detached && h.link.session.ID() != h.session {
		return &Error{Code: ErrSessionLost, Op: "hold", Key: h.key, Reason: "the service ended the session"}
	}
	if until.IsZero() || now.Before(until) {
		return nil
	}
	own := h.lease.safe()
	if h.failures > 0 || !h.sentAt.IsZero() || own.IsZero() || now.Before(own) {
		return &Error{Code: ErrServiceGone, Op: "hold", Key: h.key,
			Reason: "not confirmed by the service up to its deadline", Cause: h.trouble}
	}
	return &Error{Code: ErrExpired, Op: "hold", Key: h.key,
		Reason: "its deadline passed; it reached its longest hold, or this process or machine stood still"}
}

func (h *Held) stopLocked() {
	if h.timer != nil {
		h.timer.Stop()
	}
}

// armLocked sets the timer to the next thing to do: the lease's own deadline, the
// next renewal, or the moment from which the one in flight is late. The session's
// deadline moves with every ping and is watched once for all holds; see pulse.
func (h *Held) armLocked(now time.Time) {
	next := h.lease.safe()
	consider := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	if h.sentAt.IsZero() {
		consider(h.renewAt)
	} else if !h.overdue {
		consider(h.sentAt.Add(patience(h.lease.TTL)))
	}
	if next.IsZero() {
		h.stopLocked()
		return
	}
	if d := max(next.Sub(now), 0); h.timer == nil {
		h.timer = time.AfterFunc(d, h.tick)
	} else {
		h.timer.Reset(d)
	}
}

// tick runs on the timer's goroutine.
func (h *Held) tick() {
	if h.Err() != nil {
		return
	}
	now := time.Now()
	h.mu.Lock()
	if h.phase != phaseHeld {
		h.mu.Unlock()
		return
	}
	due := h.sentAt.IsZero() && !h.renewAt.IsZero() && !now.Before(h.renewAt)
	late := !h.sentAt.IsZero() && !h.overdue && now.Sub(h.sentAt) >= patience(h.lease.TTL)
	if due {
		h.sentAt, h.overdue = now, false
	}
	if late {
		h.overdue = true
		h.trouble = &Error{Code: ErrUnavailable, Op: "renew", Key: h.key, Reason: "no answer yet"}
	}
	trouble := h.trouble
	h.armLocked(now)
	h.mu.Unlock()
	if late {
		h.tell(trouble)
	}
	if due {
		h.renew(now)
	}
}

// renew sends one renewal. A detached hold outlives its session, so the one of
// the moment is asked; opening one anew is bounded by the lease's own deadline.
func (h *Held) renew(sent time.Time) {
	ctx, stop := context.WithDeadline(h.ctx, h.Deadline())
	defer stop()
	k, err := h.c.session(ctx)
	if err != nil {
		h.renewed(sent, Lease{}, err)
		return
	}
	k.session.Do(Command{Verb: Renew, ID: h.id}, func(l Lease, err error) { h.renewed(sent, l, err) })
}

// renewed takes the answer to a renewal. It runs in the service's loop.
func (h *Held) renewed(sent time.Time, l Lease, err error) {
	h.mu.Lock()
	if h.phase != phaseHeld || h.sentAt != sent {
		h.mu.Unlock()
		return
	}
	now := time.Now()
	h.sentAt = time.Time{}
	if err == nil {
		h.freshLocked(sent, l)
		h.mu.Unlock()
		return
	}
	if code := lossBy(err); code != "" {
		h.mu.Unlock()
		h.lose(&Error{Code: code, Op: "hold", Key: h.key, Reason: "the service does not know the hold any more", Cause: err})
		return
	}
	left := SafeUntil(h.lease, h.link.session).Sub(now)
	h.renewAt = now.Add(pause(h.lease.TTL, left, h.failures))
	h.failures++
	h.trouble = err
	h.armLocked(now)
	h.mu.Unlock()
	h.tell(err)
}

// extended takes the answer to a renewal that the caller asked for.
func (h *Held) extended(sent time.Time, l Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == phaseHeld {
		h.freshLocked(sent, l)
	}
}

// freshLocked starts the watch anew after a renewal sent at that time. The next
// one follows after a third of the ttl, never sooner, also when a cap on the
// total hold keeps the deadline where it is.
func (h *Held) freshLocked(sent time.Time, l Lease) {
	h.failures, h.trouble = 0, nil
	l.Waited = h.lease.Waited
	h.lease, h.slept = l, 0
	h.renewAt = time.Time{}
	now := time.Now()
	if l.TTL != Forever {
		h.renewAt = sent.Add(l.TTL / 3)
		if soonest := now.Add(leastPause); h.renewAt.Before(soonest) {
			h.renewAt = soonest // a service that grants no time is not asked without a pause
		}
	}
	h.armLocked(now)
}

// wake makes up for what the machine has slept since it was last looked at:
// timers stood still meanwhile, and what is left of the lease has become less.
func (h *Held) wake() {
	if h.Err() != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	slept := h.lease.asked.Slept()
	if h.phase != phaseHeld || slept <= h.slept {
		return
	}
	if !h.renewAt.IsZero() {
		h.renewAt = h.renewAt.Add(h.slept - slept)
	}
	h.slept = slept
	h.armLocked(time.Now())
}

// lossBy is the loss that an answer about a hold proves, or "" when it proves
// none and asking again can help.
func lossBy(err error) Code {
	switch code := CodeOf(err); code {
	case ErrNotHeld, ErrOver:
		return ErrExpired // a force or the session's end would have been told before
	case ErrExpired, ErrForced, ErrSessionLost:
		return code
	}
	return ""
}

func (h *Held) tell(err error) {
	h.c.log.Warn("lease: renewal failed, trying again until the deadline", "key", h.key, "error", err)
	if f := h.c.opts.OnRenewFailure; f != nil {
		f(h, err)
	}
}

// leastPause is the shortest time between an answer to a renewal and the next one.
const leastPause = 10 * time.Millisecond

// patience is how long a renewal may stay unanswered before that is reported.
func patience(ttl time.Duration) time.Duration { return min(ttl/6, 5*time.Second) }

// pause is the time before the next try of a failed renewal: doubling from a
// thirtieth of the ttl to a sixth, at most 5 s and half of what is left, so that
// a service that comes back shortly before the deadline is still in time, and at
// least 10 ms. Half of it is random, so that many holders do not come back at
// one moment.
func pause(ttl, left time.Duration, failures int) time.Duration {
	d := min(ttl/30, time.Second) << min(failures, 10)
	d = max(min(d, ttl/6, 5*time.Second, left/2), leastPause)
	return d/2 + rand.N(d/2+1)
}
