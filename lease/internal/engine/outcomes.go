package engine

import (
	"hash/maphash"

	"github.com/latchkey-go/latchkey/lease"
)

// outcomes remembers how the last ended requests ended, so that a repeat that
// comes late is told so instead of being granted anew. It is a ring over a map
// of 64-bit hashes: what is remembered is bounded, and two ids that collide, one
// chance in 2^48 with a full ring, cost the later one an error.
type outcomes struct {
	seed  maphash.Seed
	how   map[uint64]lease.Code
	ring  []uint64
	next  int
	limit int
}

func newOutcomes(limit int, seed maphash.Seed) outcomes {
	return outcomes{seed: seed, how: make(map[uint64]lease.Code), limit: limit}
}

func (o *outcomes) hash(s *Session, id string) uint64 {
	// Each alone, then mixed by an odd constant, so that the pair is told from
	// its mirror image without joining the strings.
	return maphash.String(o.seed, s.id)*0x9e3779b97f4a7c15 ^ maphash.String(o.seed, id)
}

func (o *outcomes) add(s *Session, id string, code lease.Code) {
	h := o.hash(s, id)
	if _, known := o.how[h]; !known {
		if len(o.ring) < o.limit {
			o.ring = append(o.ring, h)
		} else {
			delete(o.how, o.ring[o.next])
			o.ring[o.next] = h
			o.next = (o.next + 1) % o.limit
		}
	}
	o.how[h] = code
}

func (o *outcomes) find(s *Session, id string) (lease.Code, bool) {
	c, ok := o.how[o.hash(s, id)]
	return c, ok
}
