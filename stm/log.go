package stm

import "unsafe"

const (
	// small is up to how many variables a log is searched, and reads are checked, one
	// by one. Beyond, both would cost the square of their number.
	small = 16

	// pooled is how much room a log keeps for the next transaction.
	pooled = 1024
)

// entry is a variable in a log, with the value that was read or is to be published.
type entry struct {
	core  *core
	value unsafe.Pointer
}

// log is the variables that a transaction has read, or has set, in order.
type log struct {
	entries []entry
	// index finds the place of a variable in a long log: open addressing, place + 1
	// in a slot, 0 in a free one. Truncation leaves slots behind that lead to another
	// variable or to none; they are passed over, and count until it is built anew.
	index []uint32
	used  int
	buf   [small]entry
}

// find returns the place of a variable, -1 if it is not there.
func (l *log) find(c *core) int {
	if len(l.entries) > small {
		return l.lookup(c)
	}
	for i := range l.entries {
		if l.entries[i].core == c {
			return i
		}
	}
	return -1
}

func (l *log) lookup(c *core) int {
	for at := l.slot(c); ; at = (at + 1) & (len(l.index) - 1) {
		i := int(l.index[at]) - 1
		if i < 0 {
			return -1
		}
		if i < len(l.entries) && l.entries[i].core == c {
			return i
		}
	}
}

// slot is where to begin looking for a variable. Addresses differ in the middle.
func (l *log) slot(c *core) int {
	h := uint64(uintptr(unsafe.Pointer(c))>>4) * 0x9e3779b97f4a7c15
	return int(h>>32) & (len(l.index) - 1)
}

// add appends a variable that is not there yet.
func (l *log) add(c *core, p unsafe.Pointer) {
	l.entries = append(l.entries, entry{c, p})
	switch n := len(l.entries); {
	case n <= small:
	case n == small+1:
		l.buf = [small]entry{} // they have moved out
		l.reindex()
	case 2*l.used >= len(l.index):
		l.reindex()
	default:
		l.put(c, n)
	}
}

func (l *log) put(c *core, place int) {
	at := l.slot(c)
	for l.index[at] != 0 {
		at = (at + 1) & (len(l.index) - 1)
	}
	l.index[at] = uint32(place)
	l.used++
}

// reindex builds the index from the entries, with room for twice as many.
func (l *log) reindex() {
	size := 8 * small
	for size < 4*len(l.entries) {
		size *= 2
	}
	if size <= len(l.index) {
		clear(l.index)
	} else {
		l.index = make([]uint32, size)
	}
	l.used = 0
	for i := range l.entries {
		l.put(l.entries[i].core, i+1)
	}
}

// truncate forgets all but the first n.
func (l *log) truncate(n int) {
	clear(l.entries[n:])
	l.entries = l.entries[:n]
}

// reset forgets all, and more room than the next transaction may keep.
func (l *log) reset() {
	if n := len(l.entries); n <= small {
		for i := range n { // for a few, this takes half the time of clear
			e := &l.entries[i]
			e.core, e.value = nil, nil
		}
	} else {
		clear(l.entries)
	}
	if c := cap(l.entries); c == 0 || c > pooled {
		l.entries, l.index = l.buf[:0], nil
		return
	}
	l.entries = l.entries[:0]
}
