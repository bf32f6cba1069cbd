// Package asleep tells how long the machine has slept. The clock of Go's time
// package stands still on Linux while the machine is suspended (CLOCK_MONOTONIC,
// clock_gettime(2)), and so does every deadline on it; a broker's clock goes on.
//
// What is needed is a [Mark], made before something is asked for, and what the
// machine has slept since, [Mark.Slept]: as much nearer is a deadline that was
// reckoned from then.
//
// Only Linux tells it, as CLOCK_BOOTTIME less CLOCK_MONOTONIC. On Windows there is
// nothing to tell: the interrupt time that Go reads there goes on in sleep. On
// macOS Go's clock stands still too, and the one that does not is behind a
// library for which the standard library has no call, so that nothing is counted
// there. Nor does any clock count while a virtual machine is paused from outside.
//
// A Clock and a Mark may be used by many goroutines.
package asleep

import "time"

// noise is what the difference of two clocks may be off: they are read one after
// the other. A machine that slept less has not slept.
const noise = time.Millisecond

// Clock knows how long the machine has slept since it was started. The zero
// value asks the system.
type Clock struct {
	told func() time.Duration // nil asks the system
}

// Told makes a clock of which a test decides.
func Told(slept func() time.Duration) *Clock { return &Clock{told: slept} }

// Mark is a moment, from which on sleep is counted. The zero value counts none.
type Mark struct {
	of *Clock
	at time.Duration // slept up to then, and rather less
}

// Mark makes a mark of this moment. A nil Clock makes one that counts nothing.
func (c *Clock) Mark() Mark {
	if c == nil {
		return Mark{}
	}
	least, _ := c.between()
	return Mark{of: c, at: least}
}

// Counts reports whether m counts sleep at all.
func (m Mark) Counts() bool { return m.of != nil }

// Again makes a mark of this moment on the clock of m.
func (m Mark) Again() Mark { return m.of.Mark() }

// Slept is how long the machine has slept since m, and rather more: less than a
// millisecond is none.
func (m Mark) Slept() time.Duration {
	if m.of == nil || m.of.most()-m.at < noise {
		return 0
	}
	// It has slept, or this thread was interrupted between the two clocks.
	_, most := m.of.between()
	return above(most - m.at)
}

// After is how long the machine slept between an earlier mark of the same clock
// and m.
func (m Mark) After(earlier Mark) time.Duration { return above(m.at - earlier.at) }

func above(d time.Duration) time.Duration {
	if d < noise {
		return 0
	}
	return d
}

// between encloses the time slept.
func (c *Clock) between() (least, most time.Duration) {
	if c.told != nil {
		d := c.told()
		return d, d
	}
	return between()
}

// most is its upper bound, found with less care.
func (c *Clock) most() time.Duration {
	if c.told != nil {
		return c.told()
	}
	return most()
}
