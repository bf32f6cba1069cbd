package hotcache

import (
	"sync"
	"testing"
)

// TestSamplerStandsForAll reads far more than is sampled: what the samples stand for is about what was read, whatever
// the density, and what is lost is counted.
func TestSamplerStandsForAll(t *testing.T) {
	s := newSampler[int]()
	for round := range 6 {
		const reads = 1 << 20
		for i := range reads {
			s.count(i % 4)
		}
		missed, mask := s.missed.Load(), s.mask.Load()
		var sum [4]float64
		total := 0.0
		kept := s.collect(nil)
		for _, one := range kept {
			sum[one.key] += float64(one.weight)
			total += float64(one.weight)
		}
		t.Logf("round %d: %d samples, %d missed, one in %d, for %.0f reads", round, len(kept), missed, mask+1, total)
		if round < 2 {
			continue // the density is found
		}
		if total < 0.8*reads || total > 1.2*reads || len(kept) < samplesWanted/4 {
			t.Errorf("round %d: %d samples stand for %.0f of %d reads", round, len(kept), total, reads)
		}
		for key, n := range sum {
			if n < 0.15*reads || n > 0.35*reads {
				t.Errorf("round %d: samples of key %d stand for %.0f of %d reads", round, key, n, reads/4)
			}
		}
	}
	for range 3 {
		s.collect(nil)
	}
	s.count(1)
	if got := s.collect(nil); len(got) != 1 || got[0] != (sample[int]{1, 1}) {
		t.Errorf("one read after a quiet time is sampled as %v", got)
	}
}

func TestSamplerIsShared(t *testing.T) {
	s := newSampler[int]()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 100_000 {
				s.count(i)
			}
		})
	}
	for range 100 {
		s.collect(nil)
	}
	all.Wait()
}

func BenchmarkSampler(b *testing.B) {
	s := newSampler[int]()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s.count(7)
		if n++; n == 1<<20 { // as often as it would be by time
			s.collect(nil)
			n = 0
		}
	}
}
