package rmap

import (
	"math"
	"time"
)

// A clock estimates the store's clock from this process's monotonic one. Deadlines are in the store's time, so that the
// wall clocks of the processes need not agree.
//
// Every reading of the store's clock that arrives here was made before it arrived, so reading minus arrival is at most
// the true difference of the two clocks; the largest of the latest ones is the best estimate, and never ahead. So an
// entry is never hidden before its deadline, and after it by no more than the quickest of those messages was under
// way.
type clock struct {
	start       time.Time
	last, older int64 // largest differences of the present and of the former window, in nanoseconds
	begun       int64 // when the present window began, on the map's clock
	known       bool
}

// window is how long a difference counts, at least; twice that, at most. It bounds how long a clock of the store that
// was set back deceives.
const window = 10 * time.Second

// farthest is beyond all deadlines that are given, and some years before nanoseconds of Unix time leave an int64.
// Something else may have written what is further away.
const farthest = math.MaxInt64/int64(time.Millisecond) - 1<<39

// now is the map's own clock: nanoseconds since the map was joined.
func (c *clock) now() int64 { return int64(time.Since(c.start)) }

// saw takes a reading of the store's clock, in milliseconds of Unix time, that arrived now. asked is when it was asked
// for, on the map's clock, or negative when it came unasked.
func (c *clock) saw(reading, asked int64) {
	if reading == 0 || reading > farthest {
		return
	}
	now := c.now()
	diff := reading*int64(time.Millisecond) - now
	// The reading was made after it was asked for, and cut off to a millisecond: the true difference is below this.
	if asked >= 0 && c.known && c.diff() > reading*int64(time.Millisecond)-asked+int64(time.Millisecond) {
		c.known = false // the store's clock was set back, or it is another store
	}
	if !c.known {
		c.last, c.older, c.begun, c.known = diff, diff, now, true
		return
	}
	if now-c.begun > int64(window) {
		c.older, c.last, c.begun = c.last, diff, now
		return
	}
	c.last = max(c.last, diff)
}

func (c *clock) diff() int64 { return max(c.last, c.older) }

// store returns the store's clock, in milliseconds of Unix time; the map's clock stands at now.
func (c *clock) store(now int64) int64 {
	if !c.known {
		return 0
	}
	return (now + c.diff()) / int64(time.Millisecond)
}

// local returns when, on the map's clock, the store's clock reaches a deadline.
func (c *clock) local(deadline int64) int64 {
	if deadline > farthest {
		return math.MaxInt64
	}
	return max(1, deadline*int64(time.Millisecond)-c.diff())
}
