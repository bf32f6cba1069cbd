// Package answers judges what lock services answered while they were measured.
// A service that grants a key twice, forgets a release or ends a lease early is
// not fast, it is wrong, and each judge here says so.
package answers

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// Rising judges the tokens of one key's holds, in the order of the holds. The
// zero value is ready. It is for one goroutine.
type Rising struct{ last uint64 }

// Next takes the token of the next hold, which must be above the one before.
func (r *Rising) Next(token uint64) error {
	if token <= r.last {
		return rounds.Wrong("token %d was granted after token %d", token, r.last)
	}
	r.last = token
	return nil
}

// Section judges a lock from inside: between Enter and Leave there must be one
// holder. The zero value is ready. Whoever is inside may use Rising and Left.
type Section struct {
	inside atomic.Int32
	Rising Rising
	Left   time.Time // when the last holder began to leave; zero before the first
}

// Enter is called with the lock just acquired.
func (s *Section) Enter() error {
	if n := s.inside.Add(1); n != 1 {
		return rounds.Wrong("%d holders of one key", n)
	}
	return nil
}

// Leave is called right before the lock is released.
func (s *Section) Leave() error {
	if n := s.inside.Add(-1); n != 0 {
		return rounds.Wrong("%d holders remain of a key held once", n)
	}
	return nil
}

// Tally is what a service counted by itself.
type Tally struct {
	Granted, Released uint64
	Held              int // now
}

// Since judges a tally against the one taken before a round of n holds, each of
// them released.
func (t Tally) Since(before Tally, n int) error {
	granted, released := t.Granted-before.Granted, t.Released-before.Released
	if granted != uint64(n) || released != uint64(n) {
		return rounds.Wrong("%d holds were acquired and released, the service counted %d grants and %d releases", n, granted, released)
	}
	if t.Held != before.Held {
		return rounds.Wrong("%d keys are held after the round, %d were before", t.Held, before.Held)
	}
	return nil
}

// Expiry is one lease that was left to run out.
type Expiry struct {
	Key string
	Due time.Time // the earliest instant at which it may end

	// Told is when its end was told; zero when it never was. Times is how often.
	Told  time.Time
	Times int
}

// Lateness returns how long after its due time each lease was told to have
// ended. One that was told early, never or twice is a wrong answer.
func Lateness(all []Expiry) ([]time.Duration, error) {
	late := make([]time.Duration, 0, len(all))
	for _, e := range all {
		if e.Times != 1 {
			return nil, rounds.Wrong("the end of the lease on %q was told %d times", e.Key, e.Times)
		}
		d := e.Told.Sub(e.Due)
		if d < 0 {
			return nil, rounds.Wrong("the lease on %q ended %v early", e.Key, -d)
		}
		late = append(late, d)
	}
	return late, nil
}

// Uneven is the difference between the most and the fewest grants of waiters
// that wanted the same, as a share of the mean.
func Uneven(grants []int) float64 {
	if len(grants) == 0 {
		return 0
	}
	low, high, sum := grants[0], grants[0], 0
	for _, n := range grants {
		low, high, sum = min(low, n), max(high, n), sum+n
	}
	if sum == 0 {
		return 0
	}
	return float64(high-low) * float64(len(grants)) / float64(sum)
}
