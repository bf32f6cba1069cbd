package core

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// A Ring says which node owns a key: the one with the highest score of key and name, which is rendezvous hashing
// (Thaler and Ravishankar, 1998). Keys are spread as evenly as a hash can, without virtual nodes; a node that leaves
// hands its keys to all others, and no other key moves; and the nodes with the next scores are a key's natural other
// places. A look costs a multiplication a node, of which a cache has few.
//
// It is the same in every process and version: it depends on the names and the key alone.
type Ring struct {
	names []string
	seeds []uint64
}

// NewRing returns the ring of nodes with these names, which must differ. Indices are those of names.
func NewRing(names []string) *Ring {
	r := &Ring{names: names, seeds: make([]uint64, len(names))}
	for i, name := range names {
		r.seeds[i] = hash(name)
	}
	return r
}

// Len returns the number of nodes.
func (r *Ring) Len() int { return len(r.names) }

// Name returns the name of a node.
func (r *Ring) Name(node int) string { return r.names[node] }

// Owner returns the index of the node that owns a key.
func (r *Ring) Owner(key string) int {
	h, best, owner := hash(key), uint64(0), 0
	for i, seed := range r.seeds {
		if s := mix(h ^ seed); i == 0 || s > best {
			best, owner = s, i
		}
	}
	return owner
}

// Owners returns the n best nodes for a key, the owner first. There are no more than there are nodes.
func (r *Ring) Owners(key string, n int) []int {
	type scored struct {
		node  int
		score uint64
	}
	h := hash(key)
	all := make([]scored, len(r.seeds))
	for i, seed := range r.seeds {
		all[i] = scored{i, mix(h ^ seed)}
	}
	slices.SortStableFunc(all, func(a, b scored) int { return cmp.Compare(b.score, a.score) })
	out := make([]int, min(n, len(all)))
	for i := range out {
		out[i] = all[i].node
	}
	return out
}

func hash(text string) uint64 {
	f := fnv.New64a()
	f.Write([]byte(text))
	return mix(f.Sum64())
}

// mix spreads every bit over all others: the finalizer of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
