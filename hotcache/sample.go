package hotcache

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// A sampler counts reads, and collects the keys of some, without costing a read more than a few nanoseconds: of many
// reads it takes one in so many at random, into one of several buffers. A buffer that is full or in use is not waited
// for; what does not fit is lost, and the density falls until the next collection, which sets it by what came.
//
// Which read is the next to be taken is drawn when one is, and not for each: the gap between two is geometric, so every
// read is taken with the same chance and independently of all others, whatever the order in which keys are read.
type sampler[K comparable] struct {
	thin    atomic.Uint32 // one read in 1<<thin is taken
	hits    tally         // reads that memory answered
	others  tally         // those that went the long way
	buffers []sampleBuffer[K]
	lost    atomic.Uint64 // reads that lost samples stood for, since the last collection
	taken   atomic.Uint64 // samples that were counted
	missed  atomic.Uint64 // samples that were lost
}

// A tally counts reads in stripes, so that readers on several processors do not share a line.
type tally []stripe // as many as a power of two

type stripe struct {
	reads atomic.Uint64
	next  atomic.Uint64 // the number of the read that is taken next, and in the lowest bits how thin it was chosen
	_     [112]byte
}

type sampleBuffer[K comparable] struct {
	mu   sync.Mutex // guards what follows
	n    int
	full bool // it was full, and the density was halved for it
	kept []sample[K]
	_    [64]byte // buffers of different processors do not share a line
}

type sample[K comparable] struct {
	key    K
	weight uint32 // how many reads it stands for
}

const (
	samplesWanted = 1024 // in each collection: more say hardly more, and take time
	maxThin       = 10
	thinBits      = 4 // hold maxThin
	maxBuffers    = 16
	maxStripes    = 128
)

func newSampler[K comparable]() *sampler[K] {
	n := min(processors(), maxBuffers)
	s := &sampler[K]{buffers: make([]sampleBuffer[K], n), hits: newTally(), others: newTally()}
	for i := range s.buffers {
		s.buffers[i].kept = make([]sample[K], 2*samplesWanted/n)
	}
	return s
}

// processors is how many there are, rounded up to a power of two.
func processors() int { return 1 << bits.Len(uint(runtime.GOMAXPROCS(0)-1)) }

// newTally has more stripes than there are processors, since it is by chance which one a reader gets.
func newTally() tally {
	t := make(tally, min(4*processors(), maxStripes))
	t.draw(0)
	return t
}

// sum is how many reads there were.
func (t tally) sum() (n uint64) {
	for i := range t {
		n += t[i].reads.Load()
	}
	return n
}

// add counts a read in the stripe of the goroutine: two that run at the same time have different stacks.
func (t tally) add() (st *stripe, n, next uint64) {
	var onStack byte
	const leastStack = 11 // bits
	at := uint64(uintptr(unsafe.Pointer(&onStack)) >> leastStack)
	st = &t[(at*0x9e3779b97f4a7c15>>32)&uint64(len(t)-1)]
	return st, st.reads.Add(1), st.next.Load()
}

// draw chooses anew which reads are taken next. Those that were chosen before are not: a read that has not come yet has
// the same chance as any other, so that none is favoured by it.
func (t tally) draw(thin uint32) {
	for i := range t {
		t[i].next.Store(after(t[i].reads.Load(), thin))
	}
}

// after returns which read is taken next after one: each of them with the chance of 1 in 1<<thin.
func after(read uint64, thin uint32) uint64 {
	gap := uint64(1)
	if thin > 0 {
		gap += uint64(rand.ExpFloat64() / -math.Log1p(-1/float64(uint64(1)<<thin)))
	}
	return (read+gap)<<thinBits | uint64(thin)
}

// count counts a read in one of the tallies, and notes its key, perhaps.
func (s *sampler[K]) count(t tally, key K) {
	if st, n, next := t.add(); n >= next>>thinBits {
		s.due(st, n, next, key)
	}
}

// due takes a read, unless another reader of the stripe is before this one.
func (s *sampler[K]) due(st *stripe, n, next uint64, key K) {
	if st.next.CompareAndSwap(next, after(n, s.thin.Load())) {
		s.take(key, uint32(next&(1<<thinBits-1)))
	}
}

func (s *sampler[K]) take(key K, thin uint32) {
	weight := uint32(1) << thin
	b := &s.buffers[rand.Uint64()&uint64(len(s.buffers)-1)]
	if !b.mu.TryLock() {
		s.lost.Add(uint64(weight))
		s.missed.Add(1)
		return
	}
	defer b.mu.Unlock()
	if b.n < len(b.kept) {
		b.kept[b.n] = sample[K]{key, weight}
		b.n++
		return
	}
	s.lost.Add(uint64(weight))
	s.missed.Add(1)
	if !b.full && thin < maxThin {
		b.full = true
		s.thin.CompareAndSwap(thin, thin+1)
	}
}

// collect empties the buffers, appending to samples, and sets the density so that the next time there are as many as
// are wanted.
func (s *sampler[K]) collect(samples []sample[K]) []sample[K] {
	var reads uint64
	for i := range s.buffers {
		b := &s.buffers[i]
		b.mu.Lock()
		samples = append(samples, b.kept[:b.n]...)
		clear(b.kept[:b.n]) // let go of the keys
		b.n, b.full = 0, false
		b.mu.Unlock()
	}
	for _, one := range samples {
		reads += uint64(one.weight)
	}
	reads += s.lost.Swap(0)
	thin := uint32(0)
	for thin < maxThin && reads>>thin > samplesWanted {
		thin++
	}
	if s.thin.Swap(thin) != thin { // what was drawn while it was another would come too often, or too late
		s.hits.draw(thin)
		s.others.draw(thin)
	}
	s.taken.Add(uint64(len(samples)))
	return samples
}
