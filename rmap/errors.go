package rmap

import (
	"errors"
	"fmt"
)

// What can go wrong, to be matched with [errors.Is]. What a failed write means for the data is in [WriteError].
var (
	// ErrClosed: the map or the store has been closed. Reads of a closed map go on from its last copy.
	ErrClosed = errors.New("closed")
	// ErrConflict: a condition of the write did not hold. Nothing was written. See [ConflictError].
	ErrConflict = errors.New("conflict")
	// ErrTooLarge: a key, a value, a write or the map would exceed a limit. Nothing was written.
	ErrTooLarge = errors.New("too large")
	// ErrUnavailable: the store cannot be reached, or refuses for reasons of its own.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknown: the store did not answer, so the write may have been applied or not.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNotSeen: the write was applied, but this process's copy does not show it yet.
	ErrNotSeen = errors.New("applied, but not seen here yet")
	// ErrGone: the revision that was waited for is not part of the store's history any more: the map expired, was
	// removed, or the store went back to an older state.
	ErrGone = errors.New("revision is gone")
	// ErrStale: the copy is older than the options allow. See [StaleError].
	ErrStale = errors.New("copy is stale")
	// ErrAbsent: there is no entry under the key.
	ErrAbsent = errors.New("no such key")
	// ErrKind: the value in the store is of another kind than the operation works on. Nothing was written.
	ErrKind = errors.New("value is of another kind")
	// ErrRange: an integer would leave the range of an int64. Nothing was written.
	ErrRange = errors.New("integer out of range")
	// ErrLifetime: the map was created with another ttl than this process's options say. Nothing was written.
	ErrLifetime = errors.New("map has another ttl")
	// ErrFormat: the store holds, or sends, a format of a newer version than this process understands.
	ErrFormat = errors.New("newer format")
	// ErrForeign: what is stored under the map's name was not written by this package.
	ErrForeign = errors.New("foreign data")
	// ErrDecode: a value could not be decoded.
	ErrDecode = errors.New("undecodable value")
	// ErrInvalid: an argument is not valid. Nothing was written.
	ErrInvalid = errors.New("invalid argument")
)

// An Outcome says what became of a write.
type Outcome uint8

const (
	// NotApplied: the store is as if the write had never been asked for.
	NotApplied Outcome = iota + 1
	// Applied: the write is in the store. If there is an error all the same, it is about what the write returns, such as
	// a former value that does not decode.
	Applied
	// AppliedNotSeen: the write is in the store, but was not seen in this process's copy in time.
	AppliedNotSeen
	// Unknown: the connection or the context ended between the question and the answer.
	Unknown
)

// String returns the outcome in words.
func (o Outcome) String() string {
	switch o {
	case NotApplied:
		return "not applied"
	case Applied:
		return "applied"
	case AppliedNotSeen:
		return "applied, not seen here yet"
	case Unknown:
		return "outcome unknown"
	}
	return "no outcome"
}

// A WriteError is returned by every write that did not end well. No value is in its text but what an error of a codec
// may quote.
type WriteError struct {
	Op       string   // name of the method, such as "Set"
	Map      string   // name of the map
	Key      string   // the key, in quotes, empty when the write has none or several
	Outcome  Outcome  // what became of it
	Revision Revision // what the write made, if it is known to be applied
	Err      error    // why
}

// Error implements error.
func (e *WriteError) Error() string {
	key := ""
	if e.Key != "" {
		key = " " + e.Key
	}
	return fmt.Sprintf("rmap: %s%s in map %q: %v (%s)", e.Op, key, e.Map, e.Err, e.Outcome)
}

// Unwrap returns the reason.
func (e *WriteError) Unwrap() error { return e.Err }

// OutcomeOf returns what became of a write, given its error: Applied for nil, and Unknown for an error that is not of a
// write.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Applied
	}
	if w := (*WriteError)(nil); errors.As(err, &w) {
		return w.Outcome
	}
	return Unknown
}

// A ConflictError says which condition did not hold. It matches [ErrConflict].
type ConflictError struct {
	Key     string   // the key, in quotes
	Present bool     // whether there is an entry
	Current Revision // of that entry, or of the map when there is none
}

// Error implements error.
func (e *ConflictError) Error() string {
	if !e.Present {
		return fmt.Sprintf("conflict: %s is absent at revision %v", e.Key, e.Current)
	}
	return fmt.Sprintf("conflict: %s was written by revision %v", e.Key, e.Current)
}

// Is makes errors.Is(err, ErrConflict) true.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }
