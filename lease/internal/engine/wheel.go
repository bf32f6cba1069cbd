package engine

import (
	"math/bits"
	"time"
)

// A wheel is a hierarchical timing wheel (Varghese and Lauck, 1987) over
// intrusive entries: seven levels of 64 slots, the lowest one millisecond wide.
// Adding and removing cost O(1) and no allocation; an entry moves down at most
// once per level.
//
// An entry whose deadline moves later stays where it is and is put in its place
// when its slot comes up, so that a renewal costs nothing here.
type wheel[T linked[T]] struct {
	elapsed  int64 // ticks; every entry that was due by then has been handed out
	occupied [wheelLevels]uint64
	heads    [wheelLevels][wheelSlots]T
	n        int
	late     bool // the last advance left some that are due, or not put in their place:
	level    int  // here; nothing else is added there before they are gone
	slot     int
}

const (
	wheelTick   = time.Millisecond
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 7                 // 64^7 ms is 139 years
	wheelMoves  = 5                 // moving an entry costs about a fifth of its end
	never       = time.Duration(-1) // a deadline that never comes: not in a wheel
)

// linked is what a wheel asks of its entries.
type linked[T any] interface {
	comparable
	links() *links[T]
	due() time.Duration
}

type links[T any] struct {
	next, prev T
	place      int16 // 1 + level*64 + slot, 0 when not in the wheel
}

// add puts x into the slot of its deadline. A deadline that has passed is handed
// out by the next advance that moves the wheel.
func (w *wheel[T]) add(x T) {
	at := ticksUp(x.due())
	if at <= w.elapsed {
		at = w.elapsed + 1
	}
	level := (63 - bits.LeadingZeros64(uint64(at^w.elapsed)|(wheelSlots-1))) / wheelBits
	level = min(level, wheelLevels-1)
	slot := int(at>>(level*wheelBits)) & (wheelSlots - 1)
	l := x.links()
	var none T
	l.prev, l.next = none, w.heads[level][slot]
	if l.next != none {
		l.next.links().prev = x
	}
	w.heads[level][slot] = x
	w.occupied[level] |= 1 << slot
	l.place = int16(1 + level*wheelSlots + slot)
	w.n++
}

// remove takes x out; it is harmless when x is not in.
func (w *wheel[T]) remove(x T) {
	l := x.links()
	if l.place == 0 {
		return
	}
	var none T
	level, slot := int(l.place-1)/wheelSlots, int(l.place-1)%wheelSlots
	if l.prev != none {
		l.prev.links().next = l.next
	} else {
		w.heads[level][slot] = l.next
		if l.next == none {
			w.occupied[level] &^= 1 << slot
		}
	}
	if l.next != none {
		l.next.links().prev = l.prev
	}
	*l = links[T]{}
	w.n--
}

// moved tells the wheel that x's deadline changed. Only an earlier one needs
// work.
func (w *wheel[T]) moved(x T, earlier bool) {
	switch {
	case x.due() == never:
		w.remove(x)
	case earlier || x.links().place == 0:
		w.remove(x)
		w.add(x)
	}
}

// next returns the start of the earliest occupied slot: no entry is due before
// it, and an advance to it makes progress.
func (w *wheel[T]) next() (time.Duration, bool) {
	if w.late && w.n > 0 {
		return time.Duration(w.elapsed) * wheelTick, true
	}
	_, _, at, ok := w.earliest()
	return time.Duration(at) * wheelTick, ok
}

func (w *wheel[T]) earliest() (level, slot int, at int64, ok bool) {
	for level, occ := range w.occupied {
		if occ == 0 {
			continue
		}
		// An entry sits on the lowest level whose turn it shares with elapsed,
		// so every occupied slot lies ahead in the present turn of its level,
		// and lower levels come first.
		slot := bits.TrailingZeros64(occ)
		shift := level * wheelBits
		turn := w.elapsed >> (shift + wheelBits) << (shift + wheelBits)
		return level, slot, turn | int64(slot)<<shift, true
	}
	return 0, 0, 0, false
}

// advance hands out the entries that are due at now, in slot order, but no more
// than most, and puts no more than some times as many in their place: then it
// stops where it is and goes on with the next advance.
func (w *wheel[T]) advance(now time.Duration, most int, expire func(T)) {
	target := int64(now / wheelTick)
	moves := most * wheelMoves
	var none T
	for {
		level, slot, at, ok := w.earliest()
		if w.late {
			level, slot, at, ok = w.level, w.slot, w.elapsed, true
		}
		if !ok || at > target {
			break
		}
		w.late = false
		w.elapsed = max(w.elapsed, at)
		// One at a time, because expire may remove others of this slot. Nothing
		// is put back into it: what is not due yet lies in a later slot or on a
		// lower level.
		for x := w.heads[level][slot]; x != none; x = w.heads[level][slot] {
			due := ticksUp(x.due()) <= w.elapsed
			if due && most == 0 || moves == 0 {
				w.late, w.level, w.slot = true, level, slot
				return
			}
			w.remove(x)
			if due {
				most--
				expire(x)
			} else {
				moves--
				w.add(x)
			}
		}
	}
	w.elapsed = max(w.elapsed, target)
}

// all calls yield with every entry; the wheel must not change meanwhile.
func (w *wheel[T]) all(yield func(T) bool) {
	var none T
	for level, occupied := range w.occupied {
		for ; occupied != 0; occupied &= occupied - 1 {
			for x := w.heads[level][bits.TrailingZeros64(occupied)]; x != none; x = x.links().next {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// ticksUp rounds up, so that nothing is handed out early.
func ticksUp(d time.Duration) int64 {
	return int64((d + wheelTick - 1) / wheelTick)
}
