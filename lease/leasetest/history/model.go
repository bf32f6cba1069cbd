package history

import (
	"cmp"
	"slices"

	"github.com/anishathalye/porcupine"
)

// input is a step, or the part of it that one component is about, with its names
// turned into numbers.
type input struct {
	step                           *step
	grant, there, gone, must, drop []seat
	kill, free                     int32 // -1 for none
	turn                           int32 // of the grant's tokens, or of the fence; -1 for none
	tick                           Stamp // of the clock; zero for none
}

// seat is one hold of one key.
type seat struct {
	key, hold, limit int32
	may              Stamp // from when it may end unseen; zero for never
	shown            int32 // answers to come that show it held
}

// over reports whether the hold may have ended by then: nothing shows it later.
func (s seat) over(clock Stamp) bool { return s.may != 0 && s.may <= clock && s.shown == 0 }

// board is the state of the model: who holds what. It is never changed.
//
// Ends that nobody saw would be steps that fit anywhere, and the search would try
// them everywhere. Instead each such hold ends as soon as it may have: that can
// only make room, once nothing is to come that shows it held. The moments are
// steps, the ticks of a clock.
type board struct {
	seats []seat  // sorted
	dead  []int32 // holds that were cancelled, sorted
	next  int32   // whose turn it is to take tokens
	clock Stamp   // the last tick
}

func (b *board) clone() *board {
	return &board{slices.Clone(b.seats), slices.Clone(b.dead), b.next, b.clock}
}

func compareSeats(a, b seat) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.hold, b.hold))
}

func (b *board) find(key, hold int32) (int, bool) {
	return slices.BinarySearchFunc(b.seats, seat{key: key, hold: hold}, compareSeats)
}

// room is the one rule of modes, written once more: it reports whether a hold
// with this limit fits.
func (b *board) room(key, limit int32) bool {
	n := int32(0)
	for _, s := range b.seats {
		if s.key != key {
			continue
		}
		n++
		if (s.limit == 0) != (limit == 0) {
			return false
		}
		limit = min(limit, s.limit)
	}
	return limit == 0 || n+1 <= limit
}

// apply makes the step, or says that it cannot happen now.
func (from *board) apply(in *input) (*board, bool) {
	b := from.clone()
	if in.tick != 0 {
		b.clock = in.tick
		b.seats = slices.DeleteFunc(b.seats, func(s seat) bool { return s.over(b.clock) })
	}
	for _, s := range in.there {
		at, there := b.find(s.key, s.hold)
		if !there {
			return nil, false
		}
		if b.seats[at].shown--; b.seats[at].over(b.clock) {
			b.seats = slices.Delete(b.seats, at, at+1)
		}
	}
	for _, s := range in.must {
		if !b.remove(s) {
			return nil, false
		}
	}
	for _, s := range in.drop {
		b.remove(s)
	}
	for _, s := range in.gone {
		if _, there := b.find(s.key, s.hold); there {
			return nil, false
		}
	}
	if in.kill >= 0 {
		if at, dead := slices.BinarySearch(b.dead, in.kill); !dead {
			b.dead = slices.Insert(b.dead, at, in.kill)
		}
	}
	if in.free >= 0 && slices.ContainsFunc(b.seats, func(s seat) bool { return s.key == in.free }) {
		return nil, false
	}
	// Tokens come from one counter, so whoever takes some has a turn.
	if in.turn >= 0 {
		if b.next++; in.turn != from.next {
			return nil, false
		}
	}
	return b, b.begin(in)
}

func (b *board) remove(s seat) bool {
	at, there := b.find(s.key, s.hold)
	if there {
		b.seats = slices.Delete(b.seats, at, at+1)
	}
	return there
}

// begin makes a grant: there is room on each of its keys.
func (b *board) begin(in *input) bool {
	for _, s := range in.grant {
		if _, dead := slices.BinarySearch(b.dead, s.hold); dead {
			return false
		}
		if !b.room(s.key, s.limit) {
			return false
		}
	}
	for _, s := range in.grant {
		if !s.over(b.clock) {
			at, _ := b.find(s.key, s.hold)
			b.seats = slices.Insert(b.seats, at, s)
		}
	}
	return true
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return &board{} },
		Step: func(state, in, _ any) (bool, any) {
			b, ok := state.(*board).apply(in.(*input))
			return ok, b
		},
		Equal: func(x, y any) bool {
			a, b := x.(*board), y.(*board)
			return a.clock == b.clock && a.next == b.next && slices.Equal(a.seats, b.seats) && slices.Equal(a.dead, b.dead)
		},
		Hash: func(x any) uint64 {
			h := uint64(14695981039346656037)
			mix := func(v int32) { h = (h ^ uint64(uint32(v))) * 1099511628211 }
			b := x.(*board)
			for _, s := range b.seats {
				mix(s.key)
				mix(s.hold)
			}
			mix(b.next)
			for _, n := range b.dead {
				mix(n)
			}
			return h
		},
	}
}
