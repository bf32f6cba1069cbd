package lease

import (
	"context"
	"time"
)

// session returns the session in use, or opens one after a loss. One caller
// opens at a time; the others wait for it.
func (c *Client) session(ctx context.Context) (*link, error) {
	if k, err := c.current(); k != nil || err != nil {
		return k, err
	}
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-c.closed:
		return nil, errClientClosed()
	case <-ctx.Done():
		return nil, &Error{Code: ErrCancelled, Op: "open session", Cause: context.Cause(ctx)}
	}
	if k, err := c.current(); k != nil || err != nil {
		return k, err
	}
	return c.open(ctx)
}

func (c *Client) current() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return nil, errClientClosed()
	}
	return c.link, nil
}

func errClientClosed() error {
	return &Error{Code: ErrClosed, Op: "open session", Reason: "the client was closed"}
}

// open asks the service for a session. A notice of its end can overtake the
// answer, and Close can too.
func (c *Client) open(ctx context.Context) (*link, error) {
	k := &link{over: make(chan struct{})}
	o := c.opts.SessionOptions
	o.Notify = func(n Notice) { c.notice(k, n) }
	s, err := c.svc.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	k.session, k.id = s, s.ID()
	lost, done := k.lost, c.done
	if !lost && !done {
		c.link = k
		c.watchLocked(k)
	}
	c.mu.Unlock()
	switch {
	case done:
		s.Close(nil)
		return nil, errClientClosed()
	case lost:
		s.Close(nil)
		return nil, &Error{Code: ErrSessionLost, Op: "open session", Reason: "it ended as soon as it was opened"}
	}
	return k, nil
}

// watchLocked looks after a session that must show signs of life: one timer for
// all that is held through it.
func (c *Client) watchLocked(k *link) {
	deadline := k.session.Deadline()
	if deadline.IsZero() {
		return
	}
	span := max(time.Until(deadline), time.Millisecond)
	k.pulse = time.AfterFunc(min(span/3, lookEvery), func() { c.pulse(k, span) })
}

// lookEvery bounds the time between two looks at a session, and so how long after
// a sleep of the machine the holds learn of it that ended meanwhile.
const lookEvery = 5 * time.Second

// pulse pings a session when nobody else does, and ends its holds when the
// deadline passed. A remote session pings by itself, so that more than half of
// its time is left while the link is sound, and this timer then only looks.
func (c *Client) pulse(k *link, span time.Duration) {
	c.wake()
	left := time.Until(k.session.Deadline())
	switch {
	case left > span/2:
		c.again(k, min(left-span/2, span/3, lookEvery))
		return
	case left <= 0:
		c.mu.Lock()
		holds := c.holdsLocked(func(h *Held) bool { return h.dependsOn(k) })
		c.mu.Unlock()
		for _, h := range holds {
			_ = h.Err() // it sees the deadline, and ends
		}
		left = span
	}
	if !k.pinging.Swap(true) { // one at a time: a broken link owes no answers
		k.session.Do(Command{Verb: Ping}, func(Lease, error) { k.pinging.Store(false) })
	}
	c.again(k, max(min(left, span/6), time.Millisecond))
}

// wake tells all holds when the machine has slept.
func (c *Client) wake() {
	m := c.awake.Load()
	if m == nil || m.Slept() == 0 {
		return
	}
	now := m.Again()
	c.awake.Store(&now)
	c.mu.Lock()
	holds := c.holdsLocked(func(*Held) bool { return true })
	c.mu.Unlock()
	for _, h := range holds {
		h.wake()
	}
}

// again sets the pulse timer unless the session is over.
func (c *Client) again(k *link, d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == k {
		k.pulse.Reset(d)
	}
}

func (k *link) stop() {
	if k.pulse != nil {
		k.pulse.Stop()
	}
}

// notice is the service's word on a loss. It runs in the service's loop.
func (c *Client) notice(k *link, n Notice) {
	if n.ID == "" {
		c.lostLink(k)
	} else {
		c.mu.Lock()
		h := c.holds[n.ID]
		c.mu.Unlock()
		if h != nil {
			h.noticed(k, n)
		}
	}
	if f := c.opts.Notify; f != nil {
		f(n)
	}
}

// judge gives up a session that answered that it is lost. One that came back
// under the same value, with another id, is kept: the answer is about the old one.
func (c *Client) judge(k *link, err error) {
	if CodeOf(err) == ErrSessionLost && k.session.ID() == k.id {
		c.lostLink(k)
	}
}

// lostLink ends what depended on a session that the service ended.
func (c *Client) lostLink(k *link) {
	c.mu.Lock()
	if k.lost {
		c.mu.Unlock()
		return
	}
	k.lost = true
	close(k.over)
	if c.link == k {
		c.link = nil
	}
	holds := c.holdsLocked(func(h *Held) bool { return h.dependsOn(k) })
	s := k.session
	c.mu.Unlock()
	if s == nil {
		return // it is still being opened, and open looks
	}
	k.stop()
	s.Close(nil) // frees what a remote one keeps for it
	for _, h := range holds {
		h.lose(&Error{Code: ErrSessionLost, Op: "hold", Key: h.key, Reason: "the service ended the session"})
	}
}

// adopt makes a hold known to notices, before its request is sent.
func (c *Client) adopt(h *Held) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return errClientClosed()
	}
	if c.holds[h.id] != nil {
		return &Error{Code: ErrRefused, Op: "hold", Key: h.key,
			Reason: "this client already holds, or waits, under the same id; leave the id empty for one of its own"}
	}
	c.holds[h.id] = h
	delete(c.owed, h.id) // it may be granted what was to be released
	return nil
}

// forget is the reverse of adopt.
func (c *Client) forget(h *Held) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holds[h.id] == h {
		delete(c.holds, h.id)
	}
}
