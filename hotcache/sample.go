package hotcache

import (
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
)

// A sampler collects the keys that are read, without costing a read more than a few nanoseconds: of many reads it takes
// one in so many at random, into one of several buffers. A buffer that is full or in use is not waited for; what does
// not fit is lost, and the density falls until the next collection, which sets it by what came.
type sampler[K comparable] struct {
	mask    atomic.Uint32 // one read in mask+1 is taken, a power of two
	buffers []sampleBuffer[K]
	lost    atomic.Uint64 // reads that lost samples stood for, since the last collection
	taken   atomic.Uint64 // samples that were counted
	missed  atomic.Uint64 // samples that were lost
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
	maxThin       = 1<<10 - 1
	maxBuffers    = 16
)

func newSampler[K comparable]() *sampler[K] {
	n := min(1<<bits.Len(uint(runtime.GOMAXPROCS(0)-1)), maxBuffers)
	s := &sampler[K]{buffers: make([]sampleBuffer[K], n)}
	for i := range s.buffers {
		s.buffers[i].kept = make([]sample[K], 2*samplesWanted/n)
	}
	return s
}

// count notes a read, perhaps.
func (s *sampler[K]) count(key K) {
	r := rand.Uint64()
	if mask := s.mask.Load(); uint32(r)&mask == 0 {
		s.take(key, mask, r>>32)
	}
}

func (s *sampler[K]) take(key K, mask uint32, r uint64) {
	b := &s.buffers[r&uint64(len(s.buffers)-1)]
	if !b.mu.TryLock() {
		s.lost.Add(uint64(mask) + 1)
		s.missed.Add(1)
		return
	}
	defer b.mu.Unlock()
	if b.n < len(b.kept) {
		b.kept[b.n] = sample[K]{key, mask + 1}
		b.n++
		return
	}
	s.lost.Add(uint64(mask) + 1)
	s.missed.Add(1)
	if !b.full && mask < maxThin {
		b.full = true
		s.mask.CompareAndSwap(mask, 2*mask+1)
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
	mask := uint32(0)
	for mask < maxThin && reads/uint64(mask+1) > samplesWanted {
		mask = 2*mask + 1
	}
	s.mask.Store(mask)
	s.taken.Add(uint64(len(samples)))
	return samples
}
