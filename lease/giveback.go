package lease

import "time"

const (
	// owedEvery is how often it is tried to make up for a release.
	owedEvery = time.Second
	// maxOwed bounds what is kept for that, and owedAtOnce what is sent at a time.
	maxOwed, owedAtOnce = MaxInFlight, 256
)

// owe keeps a hold that is over on this side, but whose release failed in a way
// that may leave it at the service: a session can go on after a hold was given up
// for want of a connection, and nobody could have the key until the ttl. It is
// released when the service answers again, at the latest with the client's
// goodbye.
func (c *Client) owe(h *Held, err error) {
	switch CodeOf(err) {
	case ErrUnavailable, ErrUnknown, ErrCancelled, ErrClosed:
	default:
		return // it is not there, or asking again does not help
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done || len(c.owed) >= maxOwed || c.holds[h.id] != nil {
		return
	}
	if len(c.owed) == 0 {
		if c.payer == nil {
			c.payer = time.AfterFunc(owedEvery, c.pay)
		} else {
			c.payer.Reset(owedEvery)
		}
	}
	c.owed[h.id] = h
}

// pay runs on the timer while something is owed. What is sent is not owed any
// more unless it fails, so that nothing is sent twice at a time.
func (c *Client) pay() {
	now := time.Now()
	var due []*Held
	c.mu.Lock()
	k := c.link
	for id, h := range c.owed {
		switch {
		case h.endedAlone(now):
			delete(c.owed, id)
		case k != nil && len(due) < owedAtOnce:
			delete(c.owed, id)
			due = append(due, h)
		}
	}
	if len(c.owed) > 0 && !c.done {
		c.payer.Reset(owedEvery)
	}
	c.mu.Unlock()
	for _, h := range due {
		k.session.Do(Command{Verb: Release, ID: h.id}, func(_ Lease, err error) { c.answered(h, err) })
	}
}

// answered takes the answer to a release.
func (c *Client) answered(h *Held, err error) {
	if err != nil && CodeOf(err) != ErrNotHeld && CodeOf(err) != ErrOver {
		c.owe(h, err)
		return
	}
	h.mu.Lock()
	h.given = true
	h.mu.Unlock()
}

// endedAlone reports whether the service has ended the hold without being asked,
// also if it renewed it last and the answer was lost. Client.mu is held.
func (h *Held) endedAlone(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link.lost && !h.lease.Detached {
		return true
	}
	return !h.lease.Deadline.IsZero() && now.After(h.lease.Deadline.Add(h.lease.TTL))
}
