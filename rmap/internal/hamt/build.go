package hamt

import (
	"hash/maphash"
	"math/bits"
)

// A Builder collects entries and makes a map of all at once, which costs a fraction of adding them one by one: no node
// is made twice.
type Builder[K comparable, V any] struct {
	entries []hashed[K, V]
	seed    maphash.Seed
}

type hashed[K comparable, V any] struct {
	hash  uint64
	entry *Item[K, V]
}

// NewBuilder returns an empty builder.
func NewBuilder[K comparable, V any]() *Builder[K, V] {
	return &Builder[K, V]{seed: maphash.MakeSeed()}
}

// Add adds an entry. Of several with one key the last counts.
func (b *Builder[K, V]) Add(e *Item[K, V]) {
	b.entries = append(b.entries, hashed[K, V]{maphash.Comparable(b.seed, e.Key), e})
}

// Map returns the map of what was added. The builder must not be used any more.
func (b *Builder[K, V]) Map() Map[K, V] {
	m := Map[K, V]{seed: b.seed}
	spare := make([]hashed[K, V], len(b.entries))
	m.root = m.build(b.entries, spare, 0)
	b.entries = nil
	m.size = m.root.count()
	return m
}

// build makes a node of all entries, using spare, of the same length, to sort them by branch. Both are overwritten.
func (m Map[K, V]) build(all, spare []hashed[K, V], shift uint) *node[K, V] {
	n := new(node[K, V])
	if shift > lastShift {
		for _, h := range all {
			if i := n.find(h.entry.Key); i >= 0 {
				n.entries[i] = h.entry
			} else {
				n.entries = append(n.entries, h.entry)
			}
		}
		return n
	}
	var starts [1<<branchBits + 1]int // a counting sort keeps the order of equals, so the last added stays last
	for _, h := range all {
		starts[h.hash>>shift&branchMask+1]++
	}
	for i := range 1 << branchBits {
		starts[i+1] += starts[i]
	}
	next := starts
	for _, h := range all {
		b := h.hash >> shift & branchMask
		spare[next[b]] = h
		next[b]++
	}
	for i := range 1 << branchBits {
		m.buildBranch(n, i, spare[starts[i]:starts[i+1]], all[starts[i]:starts[i+1]], shift)
	}
	n.entries, n.kids = trimmed(n.entries, bits.OnesCount64(n.here)), trimmed(n.kids, bits.OnesCount64(n.below))
	return n
}

func (m Map[K, V]) buildBranch(n *node[K, V], i int, group, spare []hashed[K, V], shift uint) {
	if len(group) == 0 {
		return
	}
	if sameKey(group) {
		n.here |= 1 << i
		n.entries = append(n.entries, group[len(group)-1].entry)
		return
	}
	n.below |= 1 << i
	n.kids = append(n.kids, m.build(group, spare, shift+branchBits))
}

// sameKey tells whether a group is one entry, perhaps added several times.
func sameKey[K comparable, V any](group []hashed[K, V]) bool {
	for _, h := range group[1:] {
		if h.hash != group[0].hash || h.entry.Key != group[0].entry.Key {
			return false
		}
	}
	return true
}

func trimmed[T any](s []T, n int) []T {
	if cap(s) == n {
		return s
	}
	out := make([]T, n)
	copy(out, s)
	return out
}

func (n *node[K, V]) count() int {
	sum := len(n.entries)
	for _, kid := range n.kids {
		sum += kid.count()
	}
	return sum
}
