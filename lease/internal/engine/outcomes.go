package engine

import (
	"hash/maphash"

	"github.com/latchkey-go/latchkey/lease"
)

// outcomes remembers how the last ended requests ended, so that a repeat that
// comes late is told so instead of being granted anew. It is a cache of 64-bit
// hashes in sets of eight, a cache line each: the oldest of a set makes room, so
// about MaxOutcomes are remembered and no more. Two ids that collide, one chance
// in 2^61 for each look-up, cost the later one an error.
type outcomes struct {
	seed maphash.Seed
	sets []outcomeSet // allocated with the first outcome
}

type outcomeSet struct {
	hashes [outcomeWays]uint64 // zero: empty
	how    [outcomeWays]outcome
	oldest uint8
}

const (
	outcomeWays = 8
	outcomeSets = lease.MaxOutcomes / outcomeWays
)

// outcome is a Code in a byte.
type outcome uint8

// outcomeCodes lists what a request can end with; the numbers are not kept
// anywhere else.
var outcomeCodes = [...]lease.Code{
	released, lease.ErrTimeout, lease.ErrCancelled, lease.ErrDeadlock, lease.ErrUnknown, lease.ErrExpired,
	lease.ErrForced, lease.ErrSessionLost, lease.ErrClosed, lease.ErrUnavailable, lease.ErrRefused, lease.ErrInternal,
}

func newOutcomes(seed maphash.Seed) outcomes { return outcomes{seed: seed} }

func (o *outcomes) hash(s *Session, id string) uint64 {
	// Each alone, then mixed by an odd constant, so that the pair is told from
	// its mirror image without joining the strings.
	h := maphash.String(o.seed, s.id)*0x9e3779b97f4a7c15 ^ maphash.String(o.seed, id)
	return max(h, 1)
}

// add remembers an outcome, unless the session cannot be resumed: no answer of
// it can be lost and asked for again, so a repeat is meant and starts anew.
func (o *outcomes) add(s *Session, id string, code lease.Code) {
	if s.grace == lease.NoGrace {
		return
	}
	if o.sets == nil {
		o.sets = make([]outcomeSet, outcomeSets)
	}
	h := o.hash(s, id)
	set := &o.sets[h%outcomeSets]
	way := int(set.oldest)
	for i, known := range set.hashes {
		if known == h {
			way = i
			break
		}
	}
	if way == int(set.oldest) {
		set.oldest = (set.oldest + 1) % outcomeWays
	}
	set.hashes[way] = h
	set.how[way] = outcomeOf(code)
}

func (o *outcomes) find(s *Session, id string) (lease.Code, bool) {
	if o.sets == nil {
		return "", false
	}
	h := o.hash(s, id)
	set := &o.sets[h%outcomeSets]
	for i, known := range set.hashes {
		if known == h {
			return outcomeCodes[set.how[i]], true
		}
	}
	return "", false
}

func outcomeOf(code lease.Code) outcome {
	for i, c := range outcomeCodes {
		if c == code {
			return outcome(i)
		}
	}
	return outcome(len(outcomeCodes) - 1)
}
