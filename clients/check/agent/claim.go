package main

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// A claim is one acquire and the hold that comes of it.
type claim struct {
	a      *agent
	ref    string
	id     string
	cancel context.CancelFunc // takes the request back

	mu      sync.Mutex // guards what follows
	held    *lease.Held
	bare    *lease.Lease  // instead of held, when nobody renews it
	session lease.Session // of bare
	timer   *time.Timer   // of bare: its deadline
	over    bool          // bare was lost or released
}

// acquire asks for a lease and tells what comes of it.
func (a *agent) acquire(c command) {
	r := lease.Request{
		ID: rand.Text(), Keys: c.Keys, Limit: c.Max, TTL: milliseconds(c.TTL), Wait: milliseconds(c.Wait), Try: c.Try, Label: c.Label,
	}
	switch c.Mode {
	case "", "exclusive":
	case "shared":
		r.Mode = lease.Shared
	case "counted":
		r.Mode = lease.Counted
	default:
		a.failed(c.Ref, lease.ErrRefused)
		return
	}
	ctx, cancel := context.WithCancel(a.ctx)
	k := &claim{a: a, ref: c.Ref, id: r.ID, cancel: cancel}
	a.mu.Lock()
	a.refs[c.Ref], a.ids[r.ID] = k, k
	a.mu.Unlock()
	a.work.Go(func() {
		defer cancel()
		k.run(ctx, r, c.Renew == nil || *c.Renew)
	})
}

func (k *claim) run(ctx context.Context, r lease.Request, renew bool) {
	var err error
	if renew {
		err = k.hold(ctx, r)
	} else {
		err = k.take(ctx, r)
	}
	if err != nil {
		k.forget()
		k.a.failed(k.ref, lease.CodeOf(err))
	}
}

// hold has the client keep the lease, and waits for its end.
func (k *claim) hold(ctx context.Context, r lease.Request) error {
	h, err := k.a.client.Hold(ctx, r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.held = h
	k.mu.Unlock()
	k.tell("granted", h.Lease(), h.Deadline())
	<-h.Context().Done()
	if cause := context.Cause(h.Context()); !errors.Is(cause, context.Canceled) && !errors.Is(cause, lease.ErrClosed) {
		k.lost(lease.CodeOf(cause), h.Deadline())
	}
	return nil
}

// take acquires a lease that nobody renews, and watches its deadline.
func (k *claim) take(ctx context.Context, r lease.Request) error {
	l, err := k.a.client.Acquire(ctx, r)
	if err != nil {
		return err
	}
	k.mu.Lock()
	k.bare, k.session = &l, k.a.client.Session()
	until := k.untilLocked()
	k.armLocked(until)
	k.mu.Unlock()
	k.tell("granted", l, until)
	return nil
}

// untilLocked is the deadline of a bare lease; its session is nil when it was lost between the grant and now.
func (k *claim) untilLocked() time.Time {
	if k.session == nil {
		return time.Now()
	}
	return lease.SafeUntil(*k.bare, k.session)
}

func (k *claim) armLocked(until time.Time) {
	if !k.over && !until.IsZero() {
		k.timer = time.AfterFunc(time.Until(until), k.passed)
	}
}

// passed runs when a bare lease's deadline of some moment has passed; pings may have moved it ahead meanwhile.
func (k *claim) passed() {
	k.mu.Lock()
	until := k.untilLocked()
	if k.over || time.Now().Before(until) {
		k.armLocked(until)
		k.mu.Unlock()
		return
	}
	code := lease.ErrServiceGone
	if own := k.bare.Deadline; !own.IsZero() && !until.Before(own.Add(-lease.Margin(k.bare.TTL))) {
		code = lease.ErrExpired
	}
	k.over = true
	k.mu.Unlock()
	k.lost(code, until)
}

// noticed takes a notice for a bare lease; the client deals with those for leases that it keeps.
func (k *claim) noticed(n lease.Notice) {
	k.mu.Lock()
	if k.bare == nil || k.over {
		k.mu.Unlock()
		return
	}
	k.over = true
	if k.timer != nil {
		k.timer.Stop()
	}
	until := k.untilLocked()
	k.mu.Unlock()
	k.a.work.Go(func() { k.lost(n.Code, until) })
}

// safe looks at the clock.
func (k *claim) safe() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.held != nil:
		return k.held.Err() == nil
	case k.bare != nil:
		until := k.untilLocked()
		return !k.over && (until.IsZero() || time.Now().Before(until))
	}
	return false
}

func (k *claim) release() {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	k.mu.Lock()
	h := k.held
	k.over = k.over || k.bare != nil
	if k.timer != nil {
		k.timer.Stop()
	}
	k.mu.Unlock()
	var err error
	if h != nil {
		err = h.Release(ctx)
	} else {
		_, err = k.a.client.Release(ctx, k.id)
	}
	if err != nil {
		k.a.failed(k.ref, lease.CodeOf(err))
		return // it stays known: what could not be given back may be tried again
	}
	k.forget()
	k.a.say(event{"event": "released", "ref": k.ref})
}

func (k *claim) renew(ttl int64) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	l, err := k.a.client.Renew(ctx, k.id, milliseconds(ttl))
	if err != nil {
		k.a.failed(k.ref, lease.CodeOf(err))
		return
	}
	k.mu.Lock()
	var until time.Time
	if k.held != nil {
		until = k.held.Deadline()
	} else if k.bare != nil {
		k.bare = &l
		until = k.untilLocked()
	}
	k.mu.Unlock()
	k.tell("renewed", l, until)
}

// tell says what is held and how long that is safe.
func (k *claim) tell(what string, l lease.Lease, until time.Time) {
	e := event{"event": what, "ref": k.ref}
	if what == "granted" {
		tokens := make(map[string]uint64)
		for _, h := range l.Holds {
			tokens[h.Key] = uint64(h.Token)
		}
		e["tokens"] = tokens
	}
	if !until.IsZero() {
		e["safe_ms"] = time.Until(until).Milliseconds()
	}
	k.a.say(e)
}

func (k *claim) lost(code lease.Code, until time.Time) {
	late := int64(0)
	if !until.IsZero() {
		late = max(0, time.Since(until).Milliseconds())
	}
	k.a.say(event{"event": "lost", "ref": k.ref, "code": string(code), "late_ms": late, "safe": k.safe()})
}

// forget ends what is known of the request. A ref that was used again meanwhile stays.
func (k *claim) forget() {
	k.a.mu.Lock()
	defer k.a.mu.Unlock()
	delete(k.a.ids, k.id)
	if k.a.refs[k.ref] == k {
		delete(k.a.refs, k.ref)
	}
}
