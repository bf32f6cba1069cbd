package locked

import "sync/atomic"

// entry is a key with its value. An entry without a value is no part of its map: it is
// on its way in or out.
type entry[K comparable, V, X any] struct {
	key   K
	cell  cell[V]
	extra X // what the kind of map keeps besides
}

// index finds entries by key: a hash table with linear probing. Anybody may call find
// and all at any time; the other methods are for one goroutine at a time. The zero value
// is empty.
type index[K comparable, V, X any] struct {
	table atomic.Pointer[table[K, V, X]]
	live  int // entries in it
}

// table is the memory of an index. It only fills up: a slot gets a hash and an entry
// once, and the entry is replaced by the mark gone when it is removed. So the search for
// a key can stop at the first empty slot, whatever happens meanwhile, and a search in a
// table that was replaced sees what was there when it began.
type table[K comparable, V, X any] struct {
	slots []slot[K, V, X] // a power of two
	used  int             // slots that are not empty; of the index's writers
	gone  entry[K, V, X]
}

// slot has its hash before its entry can be seen.
type slot[K comparable, V, X any] struct {
	hash uint64
	e    atomic.Pointer[entry[K, V, X]]
}

// smallest is the number of slots of the smallest table.
const smallest = 8

// find returns the entry of a key, nil if there is none.
func (x *index[K, V, X]) find(hash uint64, key K) *entry[K, V, X] {
	t := x.table.Load()
	if t == nil {
		return nil
	}
	for i := hash; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		e := s.e.Load()
		if e == nil {
			return nil
		}
		if s.hash == hash && e.key == key && e != &t.gone {
			return e
		}
	}
}

// insert adds an entry whose key has none.
func (x *index[K, V, X]) insert(hash uint64, e *entry[K, V, X]) {
	t := x.table.Load()
	if t == nil || (t.used+1)*4 > len(t.slots)*3 {
		t = x.rebuild(2 * (x.live + 1))
	}
	t.put(hash, e)
	x.live++
}

// remove takes an entry out, if it is there.
func (x *index[K, V, X]) remove(hash uint64, e *entry[K, V, X]) {
	t := x.table.Load()
	if t == nil {
		return
	}
	for i := hash; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		switch s.e.Load() {
		case nil:
			return
		case e:
			s.e.Store(&t.gone)
			x.live--
			if len(t.slots) > smallest && x.live*8 < len(t.slots) {
				x.rebuild(2 * x.live)
			}
			return
		}
	}
}

// has reports whether an entry is in it. Its key alone would not tell: one that is not equal
// to itself is never found.
func (x *index[K, V, X]) has(hash uint64, e *entry[K, V, X]) bool {
	t := x.table.Load()
	if t == nil {
		return false
	}
	for i := hash; ; i++ {
		switch t.slots[i&uint64(len(t.slots)-1)].e.Load() {
		case nil:
			return false
		case e:
			return true
		}
	}
}

// rebuild moves the entries to a table with at least so many slots.
func (x *index[K, V, X]) rebuild(slots int) *table[K, V, X] {
	n := smallest
	for n < slots {
		n *= 2
	}
	t := &table[K, V, X]{slots: make([]slot[K, V, X], n)}
	if old := x.table.Load(); old != nil {
		for i := range old.slots {
			s := &old.slots[i]
			if e := s.e.Load(); e != nil && e != &old.gone {
				t.put(s.hash, e)
			}
		}
	}
	x.table.Store(t)
	return t
}

func (t *table[K, V, X]) put(hash uint64, e *entry[K, V, X]) {
	for i := hash; ; i++ {
		s := &t.slots[i&uint64(len(t.slots)-1)]
		if s.e.Load() == nil {
			s.hash = hash
			s.e.Store(e)
			t.used++
			return
		}
	}
}

// all yields the entries that are in the table when it comes to them.
func (x *index[K, V, X]) all(yield func(*entry[K, V, X]) bool) {
	t := x.table.Load()
	if t == nil {
		return
	}
	for i := range t.slots {
		if e := t.slots[i].e.Load(); e != nil && e != &t.gone && !yield(e) {
			return
		}
	}
}
