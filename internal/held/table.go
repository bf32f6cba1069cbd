package held

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Frame is one thing that a goroutine is inside of.
type Frame struct {
	Kind Kind
	Of   unsafe.Pointer // the lock, transaction or actor itself
}

// slot is the place of one goroutine that is inside of something. Its owner alone
// touches what is behind the id; others look at that only. It fills a cache line, so
// that neighbours do not slow one another down.
type slot struct {
	id     atomic.Uint64 // of the goroutine, 0 when free
	depth  int
	frames [inline]Frame // the outermost ones
	more   *[]Frame      // the rest
	_      [8]byte
}

const (
	inline = 2    // deeper nesting is rare: a message of an actor that updates a lock that reads in a transaction
	slots  = 4096 // a power of two; at 64 bytes 256 KiB
	probes = 2
)

// table holds the goroutines that found a free slot; the few that did not are in
// overflow, while crowded counts them.
var (
	table    [slots]slot
	crowded  atomic.Int64
	overflow sync.Map // id → *slot
)

// at is the first of the places where a goroutine's slot may be. Ids are given out
// one after another, so spreading them needs no hash.
func at(id, probe uint64) *slot { return &table[(id^probe*(slots/2+1))%slots] }

// place returns the slot of a goroutine, nil if it is inside of nothing.
func place(id uint64) *slot {
	for i := range uint64(probes) {
		if s := at(id, i); s.id.Load() == id {
			return s
		}
	}
	if crowded.Load() == 0 {
		return nil
	}
	if s, ok := overflow.Load(id); ok {
		return s.(*slot)
	}
	return nil
}

// claim takes a slot for a goroutine that has none.
func claim(id uint64) *slot {
	for i := range uint64(probes) {
		if s := at(id, i); s.id.Load() == 0 && s.id.CompareAndSwap(0, id) {
			return s
		}
	}
	s := new(slot)
	s.id.Store(id)
	overflow.Store(id, s)
	crowded.Add(1)
	return s
}

// Me is a goroutine and what it is inside of. It is of use to that goroutine only,
// and until that enters or leaves something through another Me.
type Me struct {
	id   uint64
	slot *slot
}

// Who looks the goroutine up.
func Who() Me {
	me := Me{id: id()}
	if me.id != 0 {
		me.slot = place(me.id)
	}
	return me
}

// Top is the innermost thing that the goroutine is inside of; its Kind is 0 when
// that is nothing, or when nothing is detected.
func (m Me) Top() Frame {
	if m.slot == nil {
		return Frame{}
	}
	return m.slot.frame(m.slot.depth - 1)
}

// Depth is how many things the goroutine is inside of.
func (m Me) Depth() int {
	if m.slot == nil {
		return 0
	}
	return m.slot.depth
}

// Frame is the i-th of them, from outside.
func (m Me) Frame(i int) Frame { return m.slot.frame(i) }

func (s *slot) frame(i int) Frame {
	if i < inline {
		return s.frames[i]
	}
	return (*s.more)[i-inline]
}

// Enter notes that the goroutine is inside of something. Leave of what it returns
// must follow on the same goroutine, however the function between them ends.
func (m Me) Enter(f Frame) Me {
	if m.id == 0 {
		return m
	}
	if m.slot == nil {
		m.slot = claim(m.id)
	}
	s := m.slot
	if s.depth < inline {
		s.frames[s.depth] = f
	} else {
		if s.more == nil {
			s.more = new([]Frame)
		}
		*s.more = append(*s.more, f)
	}
	s.depth++
	return m
}

// Leave takes the innermost thing off.
func (m Me) Leave() {
	s := m.slot
	if s == nil {
		return
	}
	s.depth--
	if s.depth < inline {
		s.frames[s.depth] = Frame{}
	} else {
		*s.more = (*s.more)[:s.depth-inline]
	}
	if s.depth > 0 {
		return
	}
	s.more = nil
	if crowded.Load() > 0 {
		if o, ok := overflow.Load(m.id); ok && o == s {
			overflow.Delete(m.id)
			crowded.Add(-1)
			return
		}
	}
	s.id.Store(0)
}
