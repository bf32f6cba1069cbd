package core

import (
	"math"
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A Version orders the states of one row: it rises with each write. 0 is a row whose loader knows no versions.
type Version uint64

// Fresh as the least version asks for the row as it is now: from the primary, never from a replica that may lag.
const Fresh Version = math.MaxUint64

// named is the version as one that a row can have: Fresh names none.
func (v Version) named() Version {
	if v == Fresh {
		return 0
	}
	return v
}

// An Item is what is known of a row: a state of it, or that there is none.
type Item struct {
	Version Version
	Absent  bool   // the row does not exist; Data is empty
	Data    []byte // encoded; the core does not look into it
}

// Times say how long an item is good, from the moment at which they are given. They count from when the load that made
// the item began, since the row may have changed right after. A negative one has passed.
type Times struct {
	Soft time.Duration // until then it is served, and afterwards served and refreshed
	Hard time.Duration // until then it is served without a load; afterwards only as a stale one, by the reader's rules
	Keep time.Duration // until then it is kept for those rules
}

// Minus returns the times as they are after d has passed.
func (t Times) Minus(d time.Duration) Times { return Times{t.Soft - d, t.Hard - d, t.Keep - d} }

// Spread returns a soft time less a random part of its last tenth, so that what was loaded together is not refreshed
// together. below draws a time from zero to its argument.
func Spread(soft time.Duration, below func(time.Duration) time.Duration) time.Duration {
	if tenth := soft / 10; tenth > 0 {
		soft -= below(tenth)
	}
	return soft
}

// A Stamp is where an item was read: the node's feed position when it gave it. It tells whether an invalidation that
// is known came before or after.
type Stamp struct {
	Generation uint64
	Number     uint64
}

// StampOf returns the stamp of a position.
func StampOf(p feed.Position) Stamp { return Stamp{p.Generation, p.Number} }

// A Token names a fill lease. It is random, so that a holder that was paused cannot be taken for its successor. Zero is
// no lease.
type Token uint64
