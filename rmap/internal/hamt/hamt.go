// Package hamt is a persistent map: an update returns a new map that shares most of its nodes with the old one, which
// stays as it was. So a reader that holds one needs no lock, a snapshot of any size is a pointer, and a write into
// a hundred thousand entries copies about three small nodes.
//
// It is a hash array mapped trie (Bagwell, "Ideal Hash Trees", 2001) in the compressed form of Steindorff and Vinju
// (OOPSLA 2015: entries and children in separate arrays, canonical after deletions), with 64 branches a node, because
// most of its nodes then hold two dozen entries and their headers cost little. Entries are
// made by the caller, one allocation each.
package hamt

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"slices"
)

const (
	branchBits = 6 // 64 branches: what one bitmap word holds
	branchMask = 1<<branchBits - 1
	// lastShift is that of the deepest level that the hash can tell apart; below it, entries form a list.
	lastShift = 60
)

// An Item is an entry of a map, made by the caller and never changed after. Maps that share nodes share items.
type Item[K comparable, V any] struct {
	Key   K
	Value V
}

// A Map holds entries by key. It is immutable, and copied by value. The zero Map is not usable: see [New].
type Map[K comparable, V any] struct {
	root *node[K, V]
	seed maphash.Seed
	size int
}

// A node has, for each value of its six bits of the hash, nothing, one entry, or a child.
type node[K comparable, V any] struct {
	here    uint64        // bit set: an entry
	below   uint64        // bit set: a child; never both
	entries []*Item[K, V] // in the order of the bits of here; at the list level below lastShift, in any order
	kids    []*node[K, V]
}

// New returns an empty map.
func New[K comparable, V any]() Map[K, V] {
	return Map[K, V]{root: new(node[K, V]), seed: maphash.MakeSeed()}
}

// Len returns the number of entries.
func (m Map[K, V]) Len() int { return m.size }

// Get returns the entry under a key, nil for none.
func (m *Map[K, V]) Get(key K) *Item[K, V] {
	h := maphash.Comparable(m.seed, key)
	n := m.root
	for shift := uint(0); shift <= lastShift; shift += branchBits {
		bit := uint64(1) << (h >> shift & branchMask)
		if n.below&bit != 0 {
			n = n.kids[bits.OnesCount64(n.below&(bit-1))]
			continue
		}
		if n.here&bit != 0 {
			if e := n.entries[bits.OnesCount64(n.here&(bit-1))]; e.Key == key {
				return e
			}
		}
		return nil
	}
	if i := n.find(key); i >= 0 {
		return n.entries[i]
	}
	return nil
}

// find is for the list level, where only collisions of whole hashes live.
func (n *node[K, V]) find(key K) int {
	return slices.IndexFunc(n.entries, func(e *Item[K, V]) bool { return e.Key == key })
}

// With returns a map that has e under its key, and the entry that was there before, nil for none.
func (m Map[K, V]) With(e *Item[K, V]) (next Map[K, V], old *Item[K, V]) {
	key := e.Key
	root, old := m.with(m.root, e, key, maphash.Comparable(m.seed, key), 0)
	m.root = root
	if old == nil {
		m.size++
	}
	return m, old
}

func (m Map[K, V]) with(n *node[K, V], e *Item[K, V], key K, h uint64, shift uint) (next *node[K, V], old *Item[K, V]) {
	c := *n
	if shift > lastShift {
		if i := n.find(key); i >= 0 {
			c.entries = slices.Clone(n.entries)
			old, c.entries[i] = c.entries[i], e
			return &c, old
		}
		c.entries = insert(n.entries, len(n.entries), e)
		return &c, nil
	}
	bit := uint64(1) << (h >> shift & branchMask)
	at, kid := bits.OnesCount64(n.here&(bit-1)), bits.OnesCount64(n.below&(bit-1))
	switch {
	case n.below&bit != 0:
		c.kids = slices.Clone(n.kids)
		c.kids[kid], old = m.with(n.kids[kid], e, key, h, shift+branchBits)
	case n.here&bit == 0:
		c.here |= bit
		c.entries = insert(n.entries, at, e)
	case n.entries[at].Key == key:
		c.entries = slices.Clone(n.entries)
		old, c.entries[at] = c.entries[at], e
		return &c, old
	default: // two keys share the branch: both move one level down
		other := n.entries[at]
		c.here &^= bit
		c.below |= bit
		c.entries = remove(n.entries, at)
		c.kids = insert(n.kids, kid, m.pair(other, e, h, shift+branchBits))
	}
	return &c, old
}

// pair returns a node with two entries of different keys; h is the hash of the second.
func (m Map[K, V]) pair(a, b *Item[K, V], h uint64, shift uint) *node[K, V] {
	if shift > lastShift {
		return &node[K, V]{entries: []*Item[K, V]{a, b}}
	}
	i, j := maphash.Comparable(m.seed, a.Key)>>shift&branchMask, h>>shift&branchMask
	switch {
	case i == j:
		return &node[K, V]{below: 1 << i, kids: []*node[K, V]{m.pair(a, b, h, shift+branchBits)}}
	case i > j:
		a, b = b, a
	}
	return &node[K, V]{here: 1<<i | 1<<j, entries: []*Item[K, V]{a, b}}
}

// Without returns a map that has nothing under the key, and the entry that was there, nil for none.
func (m Map[K, V]) Without(key K) (next Map[K, V], old *Item[K, V]) {
	root, old := m.root.without(key, maphash.Comparable(m.seed, key), 0)
	if old != nil {
		m.root, m.size = root, m.size-1
	}
	return m, old
}

func (n *node[K, V]) without(key K, h uint64, shift uint) (next *node[K, V], old *Item[K, V]) {
	c := *n
	if shift > lastShift {
		i := n.find(key)
		if i < 0 {
			return n, nil
		}
		c.entries = remove(n.entries, i)
		return &c, n.entries[i]
	}
	bit := uint64(1) << (h >> shift & branchMask)
	at, kid := bits.OnesCount64(n.here&(bit-1)), bits.OnesCount64(n.below&(bit-1))
	switch {
	case n.below&bit != 0:
		child, old := n.kids[kid].without(key, h, shift+branchBits)
		if old == nil {
			return n, nil
		}
		if last, single := child.single(); single { // the canonical form has no node for one entry
			c.below &^= bit
			c.here |= bit
			c.kids = remove(n.kids, kid)
			c.entries = insert(n.entries, at, last)
		} else {
			c.kids = slices.Clone(n.kids)
			c.kids[kid] = child
		}
		return &c, old
	case n.here&bit != 0 && n.entries[at].Key == key:
		c.here &^= bit
		c.entries = remove(n.entries, at)
		return &c, n.entries[at]
	}
	return n, nil
}

func (n *node[K, V]) single() (e *Item[K, V], ok bool) {
	if len(n.kids) == 0 && len(n.entries) == 1 {
		return n.entries[0], true
	}
	return e, false
}

// All yields the entries in no particular order.
func (m Map[K, V]) All() iter.Seq[*Item[K, V]] {
	return func(yield func(*Item[K, V]) bool) { m.root.all(yield) }
}

func (n *node[K, V]) all(yield func(*Item[K, V]) bool) bool {
	for _, e := range n.entries {
		if !yield(e) {
			return false
		}
	}
	for _, kid := range n.kids {
		if !kid.all(yield) {
			return false
		}
	}
	return true
}

// insert and remove leave their argument alone, and make slices without room to grow: nodes live long.
func insert[T any](s []T, at int, v T) []T {
	out := make([]T, len(s)+1)
	copy(out, s[:at])
	out[at] = v
	copy(out[at+1:], s[at:])
	return out
}

func remove[T any](s []T, at int) []T {
	out := make([]T, len(s)-1)
	copy(out, s[:at])
	copy(out[at:], s[at+1:])
	return out
}
