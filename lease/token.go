package lease

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
)

// Token is a fencing token: it rises per key with every new hold, across
// release, expiry, force, restart and long idle times, and never repeats within
// one service. Tokens of different keys come from the same counter, so they can
// be compared too. Zero is no token.
//
// Tokens stay below [MaxToken] so that every language's numbers hold them
// exactly.
type Token uint64

// MaxToken is the bound that tokens stay below: 2^53, the first integer whose
// successor a JSON number (an IEEE 754 double) cannot represent.
const MaxToken Token = 1 << 53

// Forever as a TTL asks for a lease that only a release, a force or the end of
// its session ends.
const Forever time.Duration = 1<<63 - 1

// Hold is one key of a lease together with its fencing token.
type Hold struct {
	Key   string
	Token Token
}

// Lease is what was granted. It is a value: it does not change when the lease
// is renewed or lost. [Held] is the live counterpart.
type Lease struct {
	// ID names the hold: whoever knows it can renew, release or detach, from
	// any session. It is the request's ID.
	ID string

	// Holds has one entry per key still held, sorted by key. Each key is its own
	// hold: forcing or expiring one leaves the others.
	Holds []Hold

	// TTL is the time to live that the last grant or renewal asked for, or
	// Forever.
	TTL time.Duration

	// Deadline is an instant on this process's monotonic clock that is not later
	// than the earliest end of the holds, as far as the answer could tell: in
	// process the very instant, from remote the send time of the request +
	// the server's elapsed time + the remaining time it reported. It is zero
	// for Forever. That clock may stand still while the machine sleeps: End
	// counts this, and a holder should stop [Margin] before what it says.
	Deadline time.Time

	// Waited is how long the request stood in the queue by the service's clock.
	Waited time.Duration

	// Detached reports that the lease outlives its session.
	Detached bool

	asked asleep.Mark // when Deadline was reckoned from; see CountSleep
}

// CountSleep brings the lease's end nearer by what this machine sleeps after a
// mark that was made before the request was sent. A service whose clock goes on
// meanwhile calls it on what it grants and renews.
func (l *Lease) CountSleep(since asleep.Mark) { l.asked = since }

// End is Deadline as it must be seen now: nearer by what this machine has slept
// since the request was sent, where the service's clock went on meanwhile.
func (l Lease) End() time.Time {
	if l.Deadline.IsZero() {
		return l.Deadline
	}
	return l.Deadline.Add(-l.asked.Slept())
}

// Token returns the token of the first key: the only one of a single-key lease.
func (l Lease) Token() Token {
	if len(l.Holds) == 0 {
		return 0
	}
	return l.Holds[0].Token
}

// TokenOf returns the token of a key, and false when the lease does not hold it.
func (l Lease) TokenOf(key string) (Token, bool) {
	for _, h := range l.Holds {
		if h.Key == key {
			return h.Token, true
		}
	}
	return 0, false
}

// Margin is how long before its deadline a holder must have stopped: 2 % of the
// ttl for clocks that run at different rates, at least 10 ms for the scheduler,
// at most one second.
func Margin(ttl time.Duration) time.Duration {
	return min(max(ttl/50, 10*time.Millisecond), time.Second)
}

// SafeUntil is the instant up to which the holder may act on l through s: the
// lease's end less its margin, or the session's deadline where that is earlier.
// It is zero when neither ends by itself, and comes nearer when the machine
// sleeps.
func SafeUntil(l Lease, s Session) time.Time {
	d := l.safe()
	if l.Detached {
		return d
	}
	if sd := s.Deadline(); !sd.IsZero() && (d.IsZero() || sd.Before(d)) {
		return sd
	}
	return d
}

// safe is the lease's end less its margin.
func (l Lease) safe() time.Time {
	d := l.End()
	if !d.IsZero() {
		d = d.Add(-Margin(l.TTL))
	}
	return d
}
