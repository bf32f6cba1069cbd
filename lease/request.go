package lease

import (
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Mode says which holds of one key may coexist.
//
// One rule covers all: a request is granted when the holders plus itself number
// no more than the smallest limit among the holders and itself, where an
// exclusive request has limit 1; shared holders do not count against one another,
// and shared excludes exclusive and counted. Nothing sticks to an idle key: the
// limit is a property of requests, not of keys.
type Mode uint8

// The modes.
const (
	Exclusive Mode = iota // one holder
	Shared                // any number of shared holders
	Counted               // up to Request.Limit holders
)

// String returns the name used on the wire.
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Counted:
		return "counted"
	}
	return fmt.Sprintf("mode(%d)", uint8(m))
}

// Request asks for a lease on one or more keys, all or none.
//
// A request is granted when it fits the holders of all its keys and no earlier
// request that conflicts with it waits on any of them; two waiting requests
// conflict unless both are shared. It holds nothing while it waits, so a free
// key may idle behind a request that waits for another key too.
type Request struct {
	// ID names the request within its session and, once granted, the hold.
	// Repeating an ID joins the waiting request or returns the same grant;
	// after the end it fails with ErrOver (but see NoGrace), and with other
	// content it is refused. Empty asks for a random one. Up to MaxIDLength bytes; anyone who
	// knows it can release the hold, so it should not be guessable.
	ID string

	// Keys are 1 to MaxKeys distinct, non-empty UTF-8 strings of up to
	// MaxKeyLength bytes, in any order.
	Keys []string

	Mode  Mode
	Limit int // Counted only: most holders that may coexist, 1 to MaxHolders

	// TTL is the time to live of the hold from its grant and from each renewal,
	// MinTTL to MaxTTL with a grain of 1 ms, or Forever. Zero means DefaultTTL.
	TTL time.Duration

	// MaxHold caps the total time of the hold, renewals included. Zero means no
	// cap.
	MaxHold time.Duration

	// Try answers ErrBusy at once instead of waiting.
	Try bool

	// Wait bounds the time in the queue; the request then fails with ErrTimeout.
	// Zero means no bound.
	Wait time.Duration

	// Waited is the time that a request, sent again after the service
	// restarted, had already waited: it gets back its place by age. A service
	// honours it only while it recovers.
	Waited time.Duration

	// PreferReaders lets this shared request pass writers that wait. Enough such
	// readers starve the writers.
	PreferReaders bool

	// LockDelay keeps the keys unavailable for that long after an involuntary
	// loss: expiry, force or the end of the session. It gives the old holder's
	// last writes time to drain where the resource cannot check tokens
	// (Chubby's lock-delay). Up to MaxLockDelay.
	LockDelay time.Duration

	// Detach lets the hold outlive its session, until its ttl.
	Detach bool

	// Label is free text shown to people, up to MaxLabelLength bytes.
	Label string

	// Declared lists the IDs of holds that will not be released before this
	// request is answered. Only these make edges in the search for deadlocks;
	// Client fills it from the context.
	Declared []string
}

// Normalize fills defaults, sorts the keys and checks every field against the
// limits. The error is ErrRefused with a reason that names the field. Services
// call it on a copy; it does not modify the caller's slices.
func (r *Request) Normalize() error {
	if err := r.normalizeKeys(); err != nil {
		return err
	}
	if err := r.checkMode(); err != nil {
		return err
	}
	ttl, err := NormalizeTTL(r.TTL)
	if err != nil {
		return err
	}
	r.TTL = ttl
	return r.checkRest()
}

func (r *Request) normalizeKeys() error {
	if len(r.Keys) == 0 {
		return Refuse("keys: a request needs at least one key")
	}
	if len(r.Keys) > MaxKeys {
		return Refuse("keys: %d keys in one request, at most %d are allowed (MaxKeys)", len(r.Keys), MaxKeys)
	}
	for _, k := range r.Keys {
		if err := CheckKey(k); err != nil {
			return err
		}
	}
	if len(r.Keys) == 1 {
		return nil
	}
	keys := slices.Sorted(slices.Values(r.Keys))
	for i := 1; i < len(keys); i++ {
		if keys[i] == keys[i-1] {
			return Refuse("keys: %s appears twice", QuoteKey(keys[i]))
		}
	}
	r.Keys = keys
	return nil
}

func (r *Request) checkMode() error {
	switch r.Mode {
	case Exclusive, Shared:
		if r.Limit != 0 {
			return Refuse("limit: only a counted request has a limit, this one is %s", r.Mode)
		}
	case Counted:
		if r.Limit < 1 {
			return Refuse("max must be a positive integer, got %d", r.Limit)
		}
		if r.Limit > MaxHolders {
			return Refuse("max is %d, at most %d is allowed (MaxHolders)", r.Limit, MaxHolders)
		}
	default:
		return Refuse("mode: %d is not a mode", r.Mode)
	}
	if r.PreferReaders && r.Mode != Shared {
		return Refuse("prefer readers: only a shared request can, this one is %s", r.Mode)
	}
	return nil
}

func (r *Request) checkRest() error {
	switch {
	case len(r.ID) > MaxIDLength:
		return Refuse("id is %d bytes, at most %d are allowed (MaxIDLength)", len(r.ID), MaxIDLength)
	case !utf8.ValidString(r.ID):
		return Refuse("id is not valid UTF-8")
	case len(r.Label) > MaxLabelLength:
		return Refuse("label is %d bytes, at most %d are allowed (MaxLabelLength)", len(r.Label), MaxLabelLength)
	case !utf8.ValidString(r.Label):
		return Refuse("label is not valid UTF-8")
	case r.Wait < 0:
		return Refuse("wait: %v is negative; leave it out to wait without a bound, or set try", r.Wait)
	case r.Wait > MaxWait:
		return Refuse("wait: %v is over %v (MaxWait); leave it out to wait without a bound", r.Wait, MaxWait)
	case r.Try && r.Wait > 0:
		return Refuse("wait: a try does not wait")
	case r.Waited < 0 || r.Waited > MaxWait:
		return Refuse("waited: %v is not between 0 and %v (MaxWait)", r.Waited, MaxWait)
	case r.MaxHold < 0 || r.MaxHold > MaxTTL:
		return Refuse("max hold: %v is not between 0 and %v (MaxTTL)", r.MaxHold, MaxTTL)
	case r.LockDelay < 0 || r.LockDelay > MaxLockDelay:
		return Refuse("lock delay: %v is not between 0 and %v (MaxLockDelay)", r.LockDelay, MaxLockDelay)
	case len(r.Declared) > MaxDeclared:
		return Refuse("%d holds declared, at most %d are allowed (MaxDeclared)", len(r.Declared), MaxDeclared)
	}
	for _, id := range r.Declared {
		if id == "" || len(id) > MaxIDLength {
			return Refuse("declared hold %s is not an id of 1 to %d bytes (MaxIDLength)", QuoteKey(id), MaxIDLength)
		}
	}
	return nil
}

// CheckKey reports, as ErrRefused, why k cannot be a key.
func CheckKey(k string) error {
	switch {
	case k == "":
		return Refuse("key is empty")
	case len(k) > MaxKeyLength:
		return Refuse("key is %d bytes, at most %d are allowed (MaxKeyLength): %s", len(k), MaxKeyLength, QuoteKey(k))
	case !utf8.ValidString(k):
		return Refuse("key is not valid UTF-8: %s", QuoteKey(k))
	}
	return nil
}

// NormalizeTTL replaces zero by DefaultTTL, rounds up to the grain of 1 ms and
// checks the bounds.
func NormalizeTTL(ttl time.Duration) (time.Duration, error) {
	switch {
	case ttl == 0:
		return DefaultTTL, nil
	case ttl == Forever:
		return Forever, nil
	case ttl < 0:
		return 0, Refuse("ttl: %v is negative", ttl)
	case ttl > MaxTTL:
		return 0, Refuse("ttl: %v is over %v (MaxTTL); ask for Forever if that is meant", ttl, MaxTTL)
	}
	return (ttl + time.Millisecond - 1).Truncate(time.Millisecond), nil
}

// QuoteKey renders a key for an error message: quoted, and cut when long.
func QuoteKey(k string) string {
	if len(k) > 64 {
		return fmt.Sprintf("%q…", k[:64])
	}
	return fmt.Sprintf("%q", k)
}
