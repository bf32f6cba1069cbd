package lease

import (
	"context"
	"sync"
	"time"
)

// Held is a lease that is kept: renewed each third of its ttl, and watched. Its
// Context ends, with the cause, before another holder can be granted the key.
//
// There is no goroutine behind it: one timer and the service's callbacks. The
// loss of one key of a lease on many keys is the loss of the whole Held, since
// what it protects needed all of them; Release gives back the others.
type Held struct {
	c      *Client
	id     string
	key    string // the first, for errors
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu       sync.Mutex // guards the fields below; never held while calling the service's verbs
	phase    phase
	lease    Lease
	link     *link  // the session that granted it
	session  string // its id: a session that was replaced under the same value is another one
	timer    *time.Timer
	renewAt  time.Time     // next renewal; zero when there is none to come
	slept    time.Duration // by the machine under this lease, as far as renewAt knows
	sentAt   time.Time     // of the renewal in flight; zero when there is none
	overdue  bool          // the renewal in flight was reported as late
	failures int           // renewals failed since the last good one
	trouble  error         // why the last one failed
	cause    error         // of the loss
	given    bool          // a release was confirmed, or nothing is left to release
}

type phase uint8

const (
	phaseWaiting phase = iota
	phaseHeld
	phaseLost
	phaseReleased // by Release, or the request came to nothing
)

// Hold waits for a lease, as Acquire does, and keeps it until Release, a loss or
// Close. The context bounds the waiting only and lends its values to
// Held.Context. Each Held must be released.
//
// An id given in r must not be one that this client holds or waits under.
func (c *Client) Hold(ctx context.Context, r Request) (*Held, error) {
	return c.hold(ctx, context.WithoutCancel(ctx), r)
}

// hold acquires within ctx and derives the context of the hold from base.
func (c *Client) hold(ctx, base context.Context, r Request) (*Held, error) {
	r, err := c.prepare(ctx, r)
	if err != nil {
		return nil, err
	}
	h := &Held{c: c, id: r.ID, key: r.Keys[0]}
	inner, cancel := context.WithCancelCause(declare(base, declaration{held: h}))
	h.ctx, h.cancel = heldContext{inner, h}, cancel
	if err := c.adopt(h); err != nil {
		return nil, err
	}
	if _, err := c.acquire(ctx, r, h); err != nil {
		h.drop()
		return nil, err
	}
	if err := h.Err(); err != nil { // lost between the grant and now
		h.c.giveBack(h)
		return nil, err
	}
	return h, nil
}

// Context ends when the lease is lost, released, or its client closed. The cause
// matches ErrExpired, ErrForced, ErrSessionLost, ErrServiceGone or ErrClosed
// after a loss, and context.Canceled after Release. Requests made with it, or
// with one derived from it, declare this hold, so that a deadlock is found.
func (h *Held) Context() context.Context { return h.ctx }

// Lease returns the lease as of the last renewal.
func (h *Held) Lease() Lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lease
}

// Token returns the fencing token of the first key.
func (h *Held) Token() Token { return h.Lease().Token() }

// Deadline is the instant up to which it is safe to act, unless it moves ahead;
// see SafeUntil. It is zero when neither lease nor session ends by itself.
func (h *Held) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == phaseWaiting {
		return time.Time{}
	}
	return SafeUntil(h.lease, h.link.session)
}

// Err is nil while it is safe to act and the cause of the loss after that;
// context.Canceled after Release. It looks at the clock, so that it is right
// even in a process that was frozen and whose timers have not run yet; on Linux
// also after a sleep of the machine.
func (h *Held) Err() error {
	h.mu.Lock()
	var loss error
	switch h.phase {
	case phaseHeld:
		loss = h.passedLocked(time.Now())
	case phaseLost:
		loss = h.cause
	case phaseReleased:
		loss = context.Canceled
	}
	ended := h.phase == phaseHeld && loss != nil
	h.mu.Unlock()
	if ended {
		h.lose(loss)
	}
	return loss
}

// Release ends the context, then the hold, and waits for the answer within ctx.
// After a loss it gives back the keys that are left and returns the loss, so
// that nil means: held without a gap until now. When ctx ends before the answer
// the error is ErrUnknown, and Release may be called again. Once it succeeded,
// further calls return nil. What could not be given back because the service was
// out of reach is given back by the client when it answers again, within about a
// second, unless a new hold has the same id by then.
func (h *Held) Release(ctx context.Context) error {
	loss := h.Err()
	h.mu.Lock()
	if h.phase == phaseHeld {
		h.phase = phaseReleased
		h.stopLocked()
	}
	given := h.given
	wasLost := h.phase == phaseLost
	if wasLost {
		loss = h.cause
	}
	h.mu.Unlock()
	h.cancel(nil) // the holder stops before the next one starts
	h.c.forget(h)
	if given {
		if wasLost {
			return loss
		}
		return nil
	}
	_, err := h.c.command(ctx, Command{Verb: Release, ID: h.id})
	h.c.answered(h, err)
	if wasLost {
		return loss
	}
	return err
}

// Detach lets the hold outlive the session, so that it lasts until its ttl when
// this process goes. It is still renewed until Release or Close.
func (h *Held) Detach(ctx context.Context) error {
	if err := h.Err(); err != nil {
		return err
	}
	l, err := h.c.command(ctx, Command{Verb: Detach, ID: h.id})
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == phaseHeld {
		h.lease.Detached = l.Detached
		h.armLocked(time.Now())
	}
	return nil
}

// bind notes the session that the request goes to.
func (h *Held) bind(k *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.link = k
}

// granted starts the watch over the lease. It runs in the service's loop.
func (h *Held) granted(l Lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase != phaseWaiting {
		return // given up meanwhile; the attempt gives the grant back
	}
	now := time.Now()
	h.phase = phaseHeld
	h.lease = l
	h.session = h.link.session.ID()
	if l.TTL != Forever {
		// From the deadline, not from now: the answer may be late.
		h.renewAt = l.Deadline.Add(-2 * l.TTL / 3)
	}
	if h.c.awake.Load() == nil && l.asked.Counts() {
		h.c.awake.Store(&l.asked) // any of them: one service, one clock
	}
	h.armLocked(now)
}

// noticed handles a notice of the service about this id.
func (h *Held) noticed(k *link, n Notice) {
	h.mu.Lock()
	if t, ok := h.lease.TokenOf(n.Key); h.phase != phaseHeld || n.Key != "" && (!ok || n.Token != 0 && t != n.Token) {
		h.mu.Unlock()
		return
	}
	if n.Code == ErrSessionLost && h.lease.Detached || h.link != k && !h.lease.Detached {
		h.mu.Unlock()
		return
	}
	h.mu.Unlock()
	reason := map[Code]string{
		ErrExpired:     "its time ran out",
		ErrForced:      "an administrator took it away",
		ErrNotHeld:     "it was released by its id from elsewhere",
		ErrSessionLost: "the service ended the session",
	}[n.Code]
	if n.By != "" {
		reason += ": " + n.By
	}
	key := n.Key
	if key == "" {
		key = h.key
	}
	h.lose(&Error{Code: n.Code, Op: "hold", Key: key, Reason: reason})
}

// dependsOn reports whether the end of a session ends this hold.
func (h *Held) dependsOn(k *link) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.phase == phaseHeld && h.link == k && !h.lease.Detached
}

// lose ends the hold from this side, once.
func (h *Held) lose(cause error) {
	h.mu.Lock()
	if h.phase != phaseHeld {
		h.mu.Unlock()
		return
	}
	h.phase = phaseLost
	h.cause = cause
	// The session's end released what it held, a closed client cannot ask.
	code := CodeOf(cause)
	h.given = code == ErrSessionLost || code == ErrClosed
	h.stopLocked()
	h.mu.Unlock()
	h.cancel(cause)
	h.c.forget(h)
}

// lossOf returns how the hold was lost, nil when it was not.
func (h *Held) lossOf() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.cause
}

// drop ends a hold whose request came to nothing.
func (h *Held) drop() {
	h.mu.Lock()
	h.phase = phaseReleased
	h.given = true
	h.stopLocked()
	h.mu.Unlock()
	h.cancel(nil)
	h.c.forget(h)
}

// giveBack asks for the release of a hold without waiting for it.
func (c *Client) giveBack(h *Held) {
	h.mu.Lock()
	k, given := h.link, h.given
	h.given = true
	h.mu.Unlock()
	if !given {
		k.session.Do(Command{Verb: Release, ID: h.id}, func(_ Lease, err error) { c.answered(h, err) })
	}
}

// heldContext looks at the clock when asked whether it ended: after a freeze the
// right answer must not depend on which timer runs first.
type heldContext struct {
	context.Context
	h *Held
}

func (c heldContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if c.h.Err() != nil { // this ended the inner context
		return context.Canceled
	}
	return nil
}
