package history

import (
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Kind says what an Op is.
type Kind uint8

// The kinds of operations.
const (
	Acquire Kind = iota
	Renew
	Release
	Detach
	Cancel
	Force
	Resume // a session was taken over; Held is what it held
	Close  // the goodbye of a session
	Leave  // a session was suspended
	Lost   // the service told that a hold had ended
)

// String returns the name of the kind.
func (k Kind) String() string {
	names := [...]string{"acquire", "renew", "release", "detach", "cancel", "force", "resume", "close", "leave", "lost"}
	if int(k) >= len(names) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return names[k]
}

// Stamp orders what happened: a later stamp was taken later. Zero is never.
type Stamp int64

// Op is one thing that a caller did, or was told, with what it saw.
type Op struct {
	Kind    Kind
	Session int    // which session did it, from 1; 0 is the administrator
	ID      string // the hold's id; unique within its session
	Owner   int    // the session whose hold it is, when that is known
	Token   lease.Token

	// Call is when it was asked and Return when it was answered; a Return of
	// zero was never answered. A Lost has only a Return.
	Call, Return Stamp

	// Queued is when an Acquire was told that it waits, zero if it was not.
	Queued Stamp

	Request lease.Request // Acquire
	TTL     time.Duration // Renew: the new one, zero for the old
	Code    lease.Code    // how it failed; empty for success
	Held    []lease.Hold  // what the answer says is held, or was ended
	Leases  []lease.Lease // Resume
	Fence   lease.Token   // Force

	// Until is the instant up to which the answer promises the holds, as time
	// since the start of the history; zero when they do not end by themselves.
	Until time.Duration
}

// failed reports that the answer was no success.
func (o *Op) failed() bool { return o.Code != "" }

// settled reports that the answer says what happened.
func (o *Op) settled() bool { return o.Return != 0 && o.Code != lease.ErrUnknown }

// String shows an operation on one line.
func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d-%d] session %d %s", o.Call, o.Return, o.Session, o.Kind)
	if o.ID != "" {
		fmt.Fprintf(&b, " %d/%s", o.Owner, o.ID)
	}
	if o.Kind == Acquire {
		fmt.Fprintf(&b, " %s %q", o.Request.Mode, o.Request.Keys)
	}
	if o.Token != 0 {
		fmt.Fprintf(&b, " token %d", o.Token)
	}
	switch {
	case o.Return == 0:
		b.WriteString(": no answer")
	case o.failed():
		fmt.Fprintf(&b, ": %s", o.Code)
	default:
		fmt.Fprintf(&b, ": %v", o.Held)
	}
	if o.Until != 0 {
		fmt.Fprintf(&b, " until %v", o.Until)
	}
	return b.String()
}

// History is what was recorded.
type History struct {
	Ops []Op // in order of Call

	// Times gives, for each stamp, when it was taken since the start. Times[0]
	// is unused.
	Times []time.Duration

	// Faults are answers that no service may give at all, such as a second one.
	Faults []string

	// Broken says that connections were cut underneath: waiters were then passed
	// over while they were cut off, so order of arrival is not checked.
	Broken bool
}

// from returns the first stamp taken at or after an instant.
func (h *History) from(t time.Duration) Stamp {
	lo, hi := 1, len(h.Times)
	for lo < hi {
		mid := (lo + hi) / 2
		if h.Times[mid] < t {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return Stamp(lo)
}
