package lease

import (
	"fmt"
	"strings"
	"time"
)

// Code classifies an outcome. Codes are stable strings, the same on the wire, in
// HTTP answers and in errors.Is; the list only grows.
type Code string

// The codes. Each is an error; test with errors.Is(err, lease.ErrBusy).
const (
	// ErrBusy: a try found a holder, a lock-delay, or someone queued ahead.
	ErrBusy Code = "busy"
	// ErrTimeout: the request's own bound on waiting passed. Nothing is held.
	ErrTimeout Code = "timeout"
	// ErrCancelled: the request was cancelled while it waited. Nothing is held.
	ErrCancelled Code = "cancelled"
	// ErrRefused: the request breaks a rule or a limit; the reason names it.
	// Repeating it unchanged cannot succeed.
	ErrRefused Code = "refused"
	// ErrDeadlock: granting must wait for the requester itself; the cycle is
	// named. Nothing is held or queued.
	ErrDeadlock Code = "deadlock"
	// ErrUnknown: the outcome cannot be known, because the answer was lost or
	// the journal failed while it was on its way. The lease may be held until
	// its ttl.
	ErrUnknown Code = "unknown"
	// ErrOver: the request with this id has ended; the reason says how.
	ErrOver Code = "over"
	// ErrNotHeld: there is no such hold, or not any more, or the token is not
	// the holder's. Prefer it over ErrOver for renew, release, detach and force.
	ErrNotHeld Code = "not_held"

	// ErrExpired: a loss: the ttl or the cap on the total hold ran out.
	ErrExpired Code = "expired"
	// ErrForced: a loss: an administrator took the hold away.
	ErrForced Code = "forced"
	// ErrSessionLost: a loss: the session ended, and with it its holds and
	// waiters; also the answer to resuming a session that is not there.
	ErrSessionLost Code = "session_lost"
	// ErrServiceGone: a loss: the service could not be reached up to the
	// client's own deadline.
	ErrServiceGone Code = "service_gone"

	// ErrUnavailable: the service cannot serve this now: it recovers, its
	// journal failed, or it cannot be reached. Nothing was changed.
	ErrUnavailable Code = "unavailable"
	// ErrClosed: the service or session is shutting down or closed. Nothing was
	// changed.
	ErrClosed Code = "closed"
	// ErrProtocol: the peer sent what the protocol does not allow.
	ErrProtocol Code = "protocol"
	// ErrInternal: a defect in the service; details are in its log only.
	ErrInternal Code = "internal"
)

// Error returns the code as text.
func (c Code) Error() string { return string(c) }

// Error is the error of every call of this package and its services. It
// matches its Code and its Cause under errors.Is.
type Error struct {
	Code   Code
	Op     string // what was attempted: acquire, renew, release, …
	Key    string // the key it failed on, when there is one
	Reason string // for people: what is wrong and what to do

	// Holders says who is in the way, for ErrBusy, ErrTimeout and a queued
	// try; at most eight.
	Holders []Holder

	// Cycle names, for ErrDeadlock, who waits for whom; the last entry waits for
	// the first.
	Cycle []Wait

	Cause error
}

// Wait is one edge of a deadlock: Who holds something and waits for Key.
type Wait struct {
	Who string // session and label, as shown to people
	Key string
}

// Error renders the operation, key, code, reason and holders in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		if e.Key != "" {
			b.WriteString(" " + QuoteKey(e.Key))
		}
		b.WriteString(": ")
	} else if e.Key != "" {
		b.WriteString(QuoteKey(e.Key) + ": ")
	}
	b.WriteString(strings.ReplaceAll(string(e.Code), "_", " "))
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	for i, h := range e.Holders {
		sep := "; "
		if i == 0 {
			sep = ": held by "
		}
		b.WriteString(sep + h.String())
	}
	if len(e.Cycle) == 1 {
		fmt.Fprintf(&b, ": you already hold this key: %s, as %s", QuoteKey(e.Cycle[0].Key), e.Cycle[0].Who)
	} else {
		for i, w := range e.Cycle {
			sep := ", "
			if i == 0 {
				sep = ": "
			}
			fmt.Fprintf(&b, "%s%s waits for %s", sep, w.Who, QuoteKey(w.Key))
		}
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

// Unwrap makes the code and the cause match under errors.Is and errors.As.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Code}
	}
	return []error{e.Code, e.Cause}
}

// Refuse makes an ErrRefused with a formatted reason.
func Refuse(format string, args ...any) *Error {
	return &Error{Code: ErrRefused, Reason: fmt.Sprintf(format, args...)}
}

// CodeOf returns the code of an error: the first one in its tree, ErrInternal
// for an error without one, and "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if c, ok := findCode(err); ok {
		return c
	}
	return ErrInternal
}

func findCode(err error) (Code, bool) {
	switch x := err.(type) {
	case Code:
		return x, true
	case *Error:
		return x.Code, true
	case interface{ Unwrap() error }:
		if inner := x.Unwrap(); inner != nil {
			return findCode(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range x.Unwrap() {
			if c, ok := findCode(inner); ok {
				return c, true
			}
		}
	}
	return "", false
}

// String describes a holder for people: who, under which label, since when and
// until when.
func (h Holder) String() string {
	s := h.Who()
	if h.Since > 0 {
		s += " for " + h.Since.Round(time.Millisecond).String()
	}
	if h.Remaining == Forever {
		return s + " (never expires)"
	}
	return s + " (" + h.Remaining.Round(time.Millisecond).String() + " left)"
}
