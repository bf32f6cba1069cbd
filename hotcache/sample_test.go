package hotcache

import (
	"context"
	"fmt"
	"math"
	"strings"
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
			s.count(s.hits, i%4)
		}
		missed, thin := s.missed.Load(), s.thin.Load()
		var sum [4]float64
		total := 0.0
		kept := s.collect(nil)
		for _, one := range kept {
			sum[one.key] += float64(one.weight)
			total += float64(one.weight)
		}
		t.Logf("round %d: %d samples, %d missed, one in %d, for %.0f reads", round, len(kept), missed, 1<<thin, total)
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
	s.count(s.hits, 1)
	if got := s.collect(nil); len(got) != 1 || got[0] != (sample[int]{1, 1}) {
		t.Errorf("one read after a quiet time is sampled as %v", got)
	}
}

// TestSamplerIsUnbiased reads keys in a fixed order, whose periods are those that a sampler which counts off would fall
// in with, and both from memory and the long way: every key's share of the samples is its share of the reads.
func TestSamplerIsUnbiased(t *testing.T) {
	for _, period := range []int{2, 7, 64, 1024} {
		s := newSampler[int]()
		var sum [2]float64 // of the first key of a period, and of the others
		const rounds, reads = 20, 1 << 17
		for round := range rounds {
			for i := range reads {
				if key := i % period; i&(period<<1) == 0 {
					s.count(s.hits, key)
				} else {
					s.count(s.others, key)
				}
			}
			for _, one := range s.collect(nil) {
				if round >= 2 { // the density is found
					sum[min(one.key, 1)] += float64(one.weight)
				}
			}
		}
		total := float64((rounds - 2) * reads)
		want := 1 / float64(period)
		share := sum[0] / (sum[0] + sum[1])
		taken := total / float64(uint64(1)<<s.thin.Load())
		if off := 6 * math.Sqrt(want*(1-want)/taken); math.Abs(share-want) > off {
			t.Errorf("a key of %d has a share of %.5f in the samples, want %.5f within %.5f", period, share, want, off)
		}
		if got := sum[0] + sum[1] + float64(s.lost.Load()); got < 0.95*total || got > 1.05*total {
			t.Errorf("with a period of %d the samples stand for %.0f of %.0f reads", period, got, total)
		}
		if n := s.hits.sum() + s.others.sum(); n != rounds*reads {
			t.Errorf("%d reads are counted, want %d", n, rounds*reads)
		}
	}
}

func TestSamplerIsShared(t *testing.T) {
	s := newSampler[int]()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 100_000 {
				s.count(s.hits, i)
			}
		})
	}
	for range 100 {
		s.collect(nil)
	}
	all.Wait()
	if n := s.hits.sum(); n != 400_000 {
		t.Errorf("%d reads are counted, want 400000", n)
	}
}

func BenchmarkSampler(b *testing.B) {
	s := newSampler[int]()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s.count(s.hits, 7)
		if n++; n == 1<<20 { // as often as it would be by time
			s.collect(nil)
			n = 0
		}
	}
}

// TestNamesOfSamples: counting keys that were counted before makes no garbage, what is remembered of names has a bound
// in number and in bytes, and keys that cannot be hashed are left out.
func TestNamesOfSamples(t *testing.T) {
	c, err := New(func(context.Context, any, Version) (int, Version, error) { return 0, 1, nil }, Options[any, int]{Keys: texts{}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := &heat[any]{names: map[any]string{}}
	var key any = "k"
	if got := c.nameOf(h, key); got != "k" {
		t.Fatalf("the name of %q is %q", key, got)
	}
	if n := testing.AllocsPerRun(100, func() { c.nameOf(h, key) }); n != 0 {
		t.Errorf("the name of a key that is known makes %v objects", n)
	}
	for i := range 3 * knownNames {
		c.nameOf(h, i)
		if len(h.names) > knownNames {
			t.Fatalf("%d names are remembered, at most %d should be", len(h.names), knownNames)
		}
	}
	long := strings.Repeat("x", longName+1)
	if got := c.nameOf(h, long); got != long {
		t.Errorf("a long name came out with %d bytes", len(got))
	}
	if _, ok := h.names[long]; ok {
		t.Error("a long name is remembered")
	}
	if got := c.nameOf(h, []int{1}); got != "" {
		t.Errorf("a key that cannot be hashed has the name %q", got)
	}
}

// texts encodes any key by what it prints as.
type texts struct{}

func (texts) Encode(key any) ([]byte, error)  { return fmt.Append(nil, key), nil }
func (texts) Decode(data []byte) (any, error) { return string(data), nil }
