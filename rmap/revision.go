package rmap

import (
	"fmt"
	"strconv"
	"strings"
)

// A Revision names one change of a map, for good. Every write returns the revision that it made; it is comparable, and
// it travels as text, so that a request can carry it from the process that wrote to the one that reads: see
// [Map.WaitFor]. The zero Revision stands for a map with nothing in it: never written, expired, or removed.
type Revision struct {
	Generation uint64 // random name of the map's life: a new one begins when a write finds nothing in the store
	Number     uint64 // rises by one with each change of a life
	Nonce      uint64 // random name of the change: tells it from another of the same number after a rollback
}

// IsZero tells whether r names no change at all.
func (r Revision) IsZero() bool { return r == Revision{} }

// String returns the revision as text: the generation and the nonce in hexadecimal around the number in decimal, as in
// "9f3c1a77e01b54d2-42-03bd9e6a1f00c7aa", or "none" for the zero Revision. [ParseRevision] reads it back.
func (r Revision) String() string {
	if r.IsZero() {
		return "none"
	}
	return fmt.Sprintf("%016x-%d-%016x", r.Generation, r.Number, r.Nonce)
}

// ParseRevision reads what [Revision.String] wrote.
func ParseRevision(s string) (Revision, error) {
	if s == "none" {
		return Revision{}, nil
	}
	parts := strings.Split(s, "-")
	if len(parts) != 3 || len(parts[0]) != 16 || len(parts[2]) != 16 {
		return Revision{}, badRevision(s)
	}
	var r Revision
	var errs [3]error
	r.Generation, errs[0] = strconv.ParseUint(parts[0], 16, 64)
	r.Number, errs[1] = strconv.ParseUint(parts[1], 10, 64)
	r.Nonce, errs[2] = strconv.ParseUint(parts[2], 16, 64)
	// What is written back differently (signs, capitals, leading zeros) is not what String wrote.
	if errs != [3]error{} || r.IsZero() || r.String() != s {
		return Revision{}, badRevision(s)
	}
	return r, nil
}

func badRevision(s string) error {
	if len(s) > 64 {
		s = s[:64] + "..."
	}
	return fmt.Errorf("rmap: %q is not a revision: it looks like 9f3c1a77e01b54d2-42-03bd9e6a1f00c7aa, or none", s)
}

// MarshalText implements [encoding.TextMarshaler].
func (r Revision) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Revision) UnmarshalText(text []byte) error {
	p, err := ParseRevision(string(text))
	if err != nil {
		return err
	}
	*r = p
	return nil
}
