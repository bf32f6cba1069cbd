package core

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// A TopK counts a stream of keys in a fixed number of counters, and knows the frequent ones: the Space-Saving algorithm
// on its stream summary (Metwally, Agrawal and El Abbadi, "Efficient computation of frequent and top-k elements in data
// streams", ICDT 2005). With m counters and n counted, for every key that it holds the true count lies in
// [Count-Err, Count], and it holds every key whose true count is above n/m.
//
// Counters with the same count hang on one bucket, and buckets stand in the order of their counts, so an Add moves a
// counter to a neighbour: constant time when the weights are alike, and otherwise a step for each bucket that is passed.
type TopK struct {
	index    map[string]int32
	counters []counter
	buckets  []bucket // 0 is the sentinel of the ring of buckets, which begins with the least count
	free     int32    // first of the unused buckets, linked by next; 0 for none
	total    uint64
}

type counter struct {
	key        string
	err        uint64
	bucket     int32
	prev, next int32 // in the bucket; -1 ends it
}

type bucket struct {
	count      uint64
	first      int32
	prev, next int32
}

// NewTopK returns a sketch with m counters, one at least.
func NewTopK(m int) *TopK {
	m = max(m, 1)
	t := &TopK{index: make(map[string]int32, m), counters: make([]counter, 0, m), buckets: make([]bucket, 1, m+2)}
	return t
}

// Reset forgets everything that was counted.
func (t *TopK) Reset() {
	clear(t.index)
	clear(t.counters) // let go of the keys
	t.counters, t.buckets = t.counters[:0], t.buckets[:1]
	t.buckets[0] = bucket{}
	t.free, t.total = 0, 0
}

// Total returns the sum of all weights.
func (t *TopK) Total() uint64 { return t.total }

// Len returns how many keys are held.
func (t *TopK) Len() int { return len(t.counters) }

// Missing returns what a key that is not held was counted at most.
func (t *TopK) Missing() uint64 {
	if len(t.counters) < cap(t.counters) {
		return 0
	}
	return t.buckets[t.buckets[0].next].count
}

// Add counts a key. A weight is how many it stands for.
func (t *TopK) Add(key string, weight uint64) {
	if weight == 0 {
		return
	}
	t.total += weight
	if c, ok := t.index[key]; ok {
		t.raise(c, weight)
		return
	}
	if n := len(t.counters); n < cap(t.counters) {
		t.counters = append(t.counters, counter{key: key, prev: -1, next: -1})
		t.index[key] = int32(n)
		t.hang(int32(n), 0, weight)
		return
	}
	// The key takes over a counter with the least count. It may have been counted that often before, unseen.
	b := &t.buckets[t.buckets[0].next]
	c := b.first
	delete(t.index, t.counters[c].key)
	t.counters[c].key, t.counters[c].err = key, b.count
	t.index[key] = c
	t.raise(c, weight)
}

// raise moves a counter to the bucket of its new count.
func (t *TopK) raise(c int32, weight uint64) {
	old := t.counters[c].bucket
	count := t.buckets[old].count + weight
	cn := &t.counters[c]
	if cn.prev < 0 && cn.next < 0 && (t.buckets[old].next == 0 || t.buckets[t.buckets[old].next].count > count) {
		t.buckets[old].count = count // alone, and in order as it is
		return
	}
	if cn.prev >= 0 {
		t.counters[cn.prev].next = cn.next
	} else {
		t.buckets[old].first = cn.next
	}
	if cn.next >= 0 {
		t.counters[cn.next].prev = cn.prev
	}
	t.hang(c, old, count)
	if t.buckets[old].first < 0 {
		t.drop(old)
	}
}

// hang puts a counter on the bucket of a count, which is looked for behind a bucket that has less.
func (t *TopK) hang(c, behind int32, count uint64) {
	at := behind
	for next := t.buckets[at].next; next != 0 && t.buckets[next].count <= count; next = t.buckets[at].next {
		at = next
	}
	if at == 0 || t.buckets[at].count != count {
		at = t.bucketBehind(at, count)
	}
	first := t.buckets[at].first
	t.counters[c].bucket, t.counters[c].prev, t.counters[c].next = at, -1, first
	if first >= 0 {
		t.counters[first].prev = c
	}
	t.buckets[at].first = c
}

func (t *TopK) bucketBehind(at int32, count uint64) int32 {
	b := t.free
	if b != 0 {
		t.free = t.buckets[b].next
	} else {
		b = int32(len(t.buckets))
		t.buckets = append(t.buckets, bucket{})
	}
	next := t.buckets[at].next
	t.buckets[b] = bucket{count: count, first: -1, prev: at, next: next}
	t.buckets[at].next, t.buckets[next].prev = b, b
	return b
}

func (t *TopK) drop(b int32) {
	prev, next := t.buckets[b].prev, t.buckets[b].next
	t.buckets[prev].next, t.buckets[next].prev = next, prev
	t.buckets[b] = bucket{next: t.free}
	t.free = b
}

// Top returns the n keys that were counted most, the most frequent first, and what all others were counted at most.
func (t *TopK) Top(n int) Summary {
	s := Summary{Total: t.total, Missing: t.Missing()}
	for b := t.buckets[0].prev; b != 0; b = t.buckets[b].prev {
		for c := t.buckets[b].first; c >= 0; c = t.counters[c].next {
			s.Keys = append(s.Keys, Counted{t.counters[c].key, t.buckets[b].count, t.counters[c].err})
		}
		if len(s.Keys) > n {
			break
		}
	}
	s.sort()
	return s.Cut(n)
}

// A Counted is a key and how often it was counted: Count at most, and Count-Err at least.
type Counted struct {
	Key        string
	Count, Err uint64
}

// Least returns how often the key was counted at least.
func (c Counted) Least() uint64 { return c.Count - c.Err }

// A Summary is what was counted of a stream, in a form that can be sent, scaled and merged.
type Summary struct {
	Total   uint64    // of all keys
	Missing uint64    // what a key that is not among Keys was counted at most
	Keys    []Counted // by falling count
}

func (s *Summary) sort() {
	slices.SortFunc(s.Keys, func(a, b Counted) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Err, b.Err), cmp.Compare(a.Key, b.Key))
	})
}

// Cut returns the summary with no more than the n first of its keys.
func (s Summary) Cut(n int) Summary {
	if len(s.Keys) > n {
		s.Missing = max(s.Missing, s.Keys[n].Count)
		s.Keys = s.Keys[:n:n]
	}
	return s
}

// Scale returns the summary of a stream that is num/den as dense. Bounds are rounded away from each other.
func (s Summary) Scale(num, den uint64) Summary {
	out := Summary{Total: scale(s.Total, num, den), Missing: scaleUp(s.Missing, num, den), Keys: make([]Counted, len(s.Keys))}
	for i, c := range s.Keys {
		count := scaleUp(c.Count, num, den)
		out.Keys[i] = Counted{c.Key, count, count - scale(c.Least(), num, den)}
	}
	return out
}

// scale returns x*num/den, or the largest number if that is larger.
func scale(x, num, den uint64) uint64 {
	hi, lo := bits.Mul64(x, num)
	if den == 0 || hi >= den {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, den)
	return q
}

func scaleUp(x, num, den uint64) uint64 {
	q := scale(x, num, den)
	if q < math.MaxUint64 && q*den != x*num { // the low halves differ when there is a remainder
		q++
	}
	return q
}

// add returns a+b, or the largest number if that is larger.
func add(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// Merge returns the summary of several streams together, with m keys at most. A key that one of them does not hold may
// have been counted there up to its Missing. With m counters in each and n counted in all, no bound is wider than n/m:
// Space-Saving is mergeable (Agarwal, Cormode, Huang, Phillips, Wei and Yi, "Mergeable summaries", PODS 2012).
func Merge(m int, parts ...Summary) Summary {
	var out Summary
	type merged struct {
		least, most uint64 // most: above out.Missing, which counts for all parts
	}
	sums := map[string]merged{}
	for _, p := range parts {
		out.Total, out.Missing = add(out.Total, p.Total), add(out.Missing, p.Missing)
		for _, c := range p.Keys {
			k := sums[c.Key]
			sums[c.Key] = merged{add(k.least, c.Least()), add(k.most, c.Count-min(c.Count, p.Missing))}
		}
	}
	for key, k := range sums {
		most := max(add(out.Missing, k.most), k.least)
		out.Keys = append(out.Keys, Counted{key, most, most - k.least})
	}
	out.sort()
	return out.Cut(max(m, 0))
}
