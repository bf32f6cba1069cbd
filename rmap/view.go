package rmap

import (
	"iter"
	"time"

	"github.com/latchkey-go/latchkey/rmap/internal/hamt"
)

// A cell is what the copy holds under a key.
type cell[V any] struct {
	value         V
	number, nonce uint64 // of the change that wrote it
	deadline      int64  // milliseconds of Unix time by the store's clock; 0 is never
	err           *flaw  // why there is no value: it did not decode
}

// A flaw is an error that is kept. As a pointer it is a word shorter than the interface, with which an item of texts
// has 64 bytes, and not 72, for which the allocator takes 80.
type flaw struct{ error }

// Unwrap returns the error.
func (f *flaw) Unwrap() error { return f.error }

type (
	item[K comparable, V any] = hamt.Item[K, cell[V]]
	tree[K comparable, V any] = hamt.Map[K, cell[V]]
)

// A view is what readers see: one state of the map. It is immutable but for being replaced as a whole.
type view[K comparable, V any] struct {
	tree     tree[K, V]
	broken   int // entries that have no value because it did not decode
	revision Revision
	expires  int64 // when all of it ends, by the store's clock; 0 is never
	clock    clock // as it was estimated then
	ends     int64 // when, on the map's own clock, the first entry in it, or all of it, is past its deadline; 0 is never
}

// past tells whether an entry is past its deadline, or all of the view past its own, at a time on the map's clock.
func (v *view[K, V]) past(e *item[K, V], now int64) bool {
	return v.expires != 0 && v.clock.local(v.expires) <= now ||
		e.Value.deadline != 0 && v.clock.local(e.Value.deadline) <= now
}

// A Snapshot is one state of a map, as it was when it was taken: entries of one revision, that stay whatever happens to
// the map. Taking and copying it costs the same at any size. The zero Snapshot is empty.
type Snapshot[K comparable, V any] struct{ v *view[K, V] }

// Revision returns the revision that the snapshot shows.
func (s Snapshot[K, V]) Revision() Revision {
	if s.v == nil {
		return Revision{}
	}
	return s.v.revision
}

// Get returns the value under a key.
func (s Snapshot[K, V]) Get(key K) (value V, ok bool) {
	if s.v != nil {
		if e := s.v.tree.Get(key); e != nil && e.Value.err == nil {
			return e.Value.value, true
		}
	}
	return value, false
}

// RevisionOf returns the revision that wrote the value under a key, for [Map.SetAtRevision].
func (s Snapshot[K, V]) RevisionOf(key K) (r Revision, ok bool) {
	if s.v != nil {
		if e := s.v.tree.Get(key); e != nil {
			return Revision{s.v.revision.Generation, e.Value.number, e.Value.nonce}, true
		}
	}
	return r, false
}

// A Held is an entry as a snapshot shows it, with what its value does not say.
type Held[V any] struct {
	// Value is the zero value when Err is not nil.
	Value V
	// Revision is that of the change that wrote the value, for [Map.SetAtRevision].
	Revision Revision
	// Deadline is when the entry ends, by the store's clock; the zero time is never. The whole map may end before.
	Deadline time.Time
	// Err is why there is no value: it did not decode. It wraps [ErrDecode].
	Err error
}

// Entry returns everything about a key, and whether there is an entry. Unlike Get it has those without a value too.
func (s Snapshot[K, V]) Entry(key K) (h Held[V], ok bool) {
	if s.v == nil {
		return h, false
	}
	e := s.v.tree.Get(key)
	if e == nil {
		return h, false
	}
	c := &e.Value
	h = Held[V]{Value: c.value, Revision: Revision{s.v.revision.Generation, c.number, c.nonce}}
	if c.err != nil {
		h.Err = c.err // a nil pointer in it would be an error
	}
	if c.deadline != 0 {
		h.Deadline = time.UnixMilli(c.deadline)
	}
	return h, true
}

// Len returns the number of entries.
func (s Snapshot[K, V]) Len() int {
	if s.v == nil {
		return 0
	}
	return s.v.tree.Len() - s.v.broken
}

// All yields the entries in no particular order.
func (s Snapshot[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if s.v == nil {
			return
		}
		for e := range s.v.tree.All() {
			if e.Value.err == nil && !yield(e.Key, e.Value.value) {
				return
			}
		}
	}
}

// Broken yields the keys of entries whose values did not decode, with the errors.
func (s Snapshot[K, V]) Broken() iter.Seq2[K, error] {
	return func(yield func(K, error) bool) {
		if s.v == nil || s.v.broken == 0 {
			return
		}
		for e := range s.v.tree.All() {
			if e.Value.err != nil && !yield(e.Key, e.Value.err) {
				return
			}
		}
	}
}
