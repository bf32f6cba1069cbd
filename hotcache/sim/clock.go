package sim

import "time"

// A clock is the virtual time and what is to happen. Events of the same moment happen in the order in which they were
// planned.
type clock struct {
	now    time.Duration
	seq    uint64
	events []event // a heap
}

type event struct {
	at  time.Duration
	seq uint64
	fn  func()
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// after plans something.
func (c *clock) after(d time.Duration, fn func()) {
	c.seq++
	c.events = append(c.events, event{c.now + max(d, 0), c.seq, fn})
	h, i := c.events, len(c.events)-1
	for i > 0 {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// step lets the next event happen. It tells whether there was one.
func (c *clock) step() bool {
	if len(c.events) == 0 {
		return false
	}
	h := c.events
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h[last] = event{}
	h = h[:last]
	c.events = h
	for i := 0; ; {
		down := 2*i + 1
		if down >= last {
			break
		}
		if down+1 < last && h[down+1].before(&h[down]) {
			down++
		}
		if !h[down].before(&h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	c.now = first.at
	first.fn()
	return true
}
