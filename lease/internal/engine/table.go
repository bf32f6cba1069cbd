package engine

import "hash/maphash"

// A table is a hash table over intrusive entries that grows and shrinks by one
// bucket at a time (Litwin, "Linear hashing", 1980): no operation ever pays for
// a rehash, and a million entries cost eight bytes each beyond their link, where
// Go's map takes about fifty for a string key and a pointer. Several entries may
// have the same name; first finds one of them.
//
// Its order depends on a random seed, so nothing that can be seen from outside
// may depend on it.
type table[T entry[T]] struct {
	seed   maphash.Seed
	chunks [][]T // buckets, in chunks so that growing copies nothing
	n      int
	level  int // buckets below split and from 1<<level on use one bit more
	split  int
	walked bool // some walk is between two buckets: nothing may move to a lower one
}

// entry is what a table asks of its entries.
type entry[T any] interface {
	comparable
	hashed() string
	chain() *T // the next entry of the bucket
}

const chunkSize = 512

func newTable[T entry[T]](seed maphash.Seed) table[T] {
	return table[T]{seed: seed, chunks: [][]T{make([]T, chunkSize)}}
}

func (t *table[T]) buckets() int { return 1<<t.level + t.split }

func (t *table[T]) slot(i int) *T { return &t.chunks[i/chunkSize][i%chunkSize] }

func (t *table[T]) index(name string) int {
	h := maphash.String(t.seed, name)
	i := int(h & (1<<t.level - 1))
	if i < t.split {
		i = int(h & (2<<t.level - 1))
	}
	return i
}

// first returns the newest entry of that name, or nil.
func (t *table[T]) first(name string) T {
	var none T
	x := *t.slot(t.index(name))
	for x != none && x.hashed() != name {
		x = *x.chain()
	}
	return x
}

func (t *table[T]) add(x T) {
	s := t.slot(t.index(x.hashed()))
	*x.chain(), *s = *s, x
	t.n++
	if t.n > t.buckets() {
		t.grow()
	}
}

// remove takes x out; it is harmless when x is not in.
func (t *table[T]) remove(x T) {
	var none T
	for s := t.slot(t.index(x.hashed())); *s != none; s = (*s).chain() {
		if *s == x {
			*s = *x.chain()
			*x.chain() = none
			t.n--
			// Two at a time, so that emptying a table gives its memory back.
			for i := 0; i < 2 && !t.walked && t.n < t.buckets()/2 && t.buckets() > chunkSize; i++ {
				t.shrink()
			}
			return
		}
	}
}

// grow splits the next bucket in turn.
func (t *table[T]) grow() {
	var none T
	from, to := t.split, t.buckets()
	if to/chunkSize == len(t.chunks) {
		t.chunks = append(t.chunks, make([]T, chunkSize))
	}
	t.split++
	if t.split == 1<<t.level {
		t.level, t.split = t.level+1, 0
	}
	x := *t.slot(from)
	*t.slot(from), *t.slot(to) = none, none
	for x != none {
		next := *x.chain()
		s := t.slot(t.index(x.hashed()))
		*x.chain(), *s = *s, x
		x = next
	}
}

// shrink joins the last bucket with the one it was split from.
func (t *table[T]) shrink() {
	var none T
	if t.split == 0 {
		t.level, t.split = t.level-1, 1<<(t.level-1)
	}
	t.split--
	last := t.buckets()
	x := *t.slot(last)
	*t.slot(last) = none
	for x != none {
		next := *x.chain()
		s := t.slot(t.split)
		*x.chain(), *s = *s, x
		x = next
	}
	if need := (last + chunkSize - 1) / chunkSize; len(t.chunks) > need+1 {
		t.chunks[len(t.chunks)-1] = nil
		t.chunks = t.chunks[:len(t.chunks)-1]
	}
}

// all calls yield with every entry; the table must not change meanwhile.
func (t *table[T]) all(yield func(T) bool) {
	var none T
	for i := range t.buckets() {
		for x := *t.slot(i); x != none; x = *x.chain() {
			if !yield(x) {
				return
			}
		}
	}
}
