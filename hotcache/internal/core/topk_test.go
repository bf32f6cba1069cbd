package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// exact counts a stream without a limit, and judges sketches of it.
type exact struct {
	counts map[string]uint64
	total  uint64
}

func (e *exact) add(key string, weight uint64) {
	if e.counts == nil {
		e.counts = map[string]uint64{}
	}
	e.counts[key] += weight
	e.total += weight
}

// judge says what a summary promises and does not keep. width is how wide no bound may be.
func (e *exact) judge(s Summary, width uint64) error {
	if s.Total != e.total {
		return fmt.Errorf("total %d, want %d", s.Total, e.total)
	}
	if s.Missing > width {
		return fmt.Errorf("keys that are missing may have been counted %d times, the promise is %d", s.Missing, width)
	}
	held := map[string]bool{}
	for i, c := range s.Keys {
		held[c.Key] = true
		if n := e.counts[c.Key]; c.Err > c.Count || n > c.Count || n < c.Least() || c.Err > width {
			return fmt.Errorf("%q was counted %d times, the sketch says %d to %d and promises a width of %d", c.Key, n, c.Least(), c.Count, width)
		}
		if i > 0 && c.Count > s.Keys[i-1].Count {
			return fmt.Errorf("%q stands behind one with a lower count", c.Key)
		}
	}
	if len(held) != len(s.Keys) {
		return fmt.Errorf("a key stands there twice")
	}
	for key, n := range e.counts {
		if !held[key] && n > s.Missing {
			return fmt.Errorf("%q was counted %d times and is missing, which the sketch says of keys up to %d", key, n, s.Missing)
		}
	}
	return nil
}

// sound checks the links of the stream summary.
func (t *TopK) sound() error {
	seen, last, sum := 0, uint64(0), uint64(0)
	for b := t.buckets[0].next; b != 0; b = t.buckets[b].next {
		if t.buckets[b].count <= last || t.buckets[b].first < 0 {
			return fmt.Errorf("bucket of %d behind %d, first %d", t.buckets[b].count, last, t.buckets[b].first)
		}
		if t.buckets[t.buckets[b].next].prev != b || t.buckets[t.buckets[b].prev].next != b {
			return fmt.Errorf("bucket of %d is linked wrongly", t.buckets[b].count)
		}
		last = t.buckets[b].count
		prev := int32(-1)
		for c := t.buckets[b].first; c >= 0; c = t.counters[c].next {
			if t.counters[c].prev != prev || t.counters[c].bucket != b || t.index[t.counters[c].key] != c {
				return fmt.Errorf("%q is linked wrongly", t.counters[c].key)
			}
			prev = c
			seen++
			sum += last
		}
	}
	if seen != len(t.counters) || seen != len(t.index) || sum != t.total {
		return fmt.Errorf("%d linked, %d counters, %d indexed; they add up to %d of %d", seen, len(t.counters), len(t.index), sum, t.total)
	}
	return nil
}

// streams draws keys with weights in several ways.
func streams(r *rand.Rand, n int, to func(key string, weight uint64)) {
	zipf := rand.NewZipf(r, 1.05+r.Float64(), 1, 500)
	way, weights := r.IntN(4), r.IntN(3)
	for i := range n {
		var k uint64
		switch way {
		case 0:
			k = zipf.Uint64()
		case 1:
			k = r.Uint64N(300)
		case 2:
			k = uint64(i) // never twice
		case 3:
			k = uint64(i*7/n)*1000 + zipf.Uint64() // what is frequent changes
		}
		weight := uint64(1)
		switch weights {
		case 1:
			weight = 1 << r.IntN(10)
		case 2:
			weight = r.Uint64N(1000) // 0 included
		}
		to(fmt.Sprint(k), weight)
	}
}

func TestTopKBounds(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := 1 + r.IntN(100)
		sketch, oracle := NewTopK(m), &exact{}
		for range 1 + r.IntN(2) {
			streams(r, 1+r.IntN(3000), func(key string, weight uint64) {
				sketch.Add(key, weight)
				oracle.add(key, weight)
				if r.IntN(500) != 0 {
					return
				}
				if err := sketch.sound(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			})
			if err := sketch.sound(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := oracle.judge(sketch.Top(m), oracle.total/uint64(m)); err != nil {
				t.Fatalf("seed %d, %d counters: %v", seed, m, err)
			}
			if err := oracle.judge(sketch.Top(r.IntN(m+1)), oracle.total); err != nil {
				t.Fatalf("seed %d, cut: %v", seed, err)
			}
			if r.IntN(2) == 0 {
				sketch.Reset()
				*oracle = exact{}
				if err := oracle.judge(sketch.Top(m), 0); err != nil {
					t.Fatalf("seed %d, after a reset: %v", seed, err)
				}
			}
		}
	}
}

// TestMergeBounds has several processes count parts of a stream: together they promise what one sketch of all would.
func TestMergeBounds(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := 1 + r.IntN(80)
		oracle := &exact{}
		var parts []Summary
		for range 1 + r.IntN(6) {
			sketch := NewTopK(m)
			streams(r, r.IntN(1500), func(key string, weight uint64) {
				sketch.Add(key, weight)
				oracle.add(key, weight)
			})
			parts = append(parts, sketch.Top(m))
		}
		width := oracle.total / uint64(m)
		if err := oracle.judge(Merge(m, parts...), width); err != nil {
			t.Fatalf("seed %d, %d counters, %d parts: %v", seed, m, len(parts), err)
		}
		inTurn := Summary{}
		for _, p := range parts {
			inTurn = Merge(m, inTurn, p)
		}
		if err := oracle.judge(inTurn, width); err != nil {
			t.Fatalf("seed %d, merged in turn: %v", seed, err)
		}
		for i := range parts {
			parts[i] = parts[i].Cut(r.IntN(m + 1))
		}
		if err := oracle.judge(Merge(m, parts...), oracle.total); err != nil {
			t.Fatalf("seed %d, parts were cut: %v", seed, err)
		}
	}
}

func TestScaleKeepsBounds(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 2))
		num, den := 1+r.Uint64N(1<<r.IntN(40)), 1+r.Uint64N(1<<r.IntN(40))
		count := r.Uint64N(1 << 20)
		c := Counted{"k", count, r.Uint64N(count + 1)}
		s := Summary{Total: count, Missing: c.Err, Keys: []Counted{c}}.Scale(num, den)
		low, high := float64(c.Least())*float64(num)/float64(den), float64(c.Count)*float64(num)/float64(den)
		if got := s.Keys[0]; float64(got.Least()) > low*(1+1e-9) || float64(got.Count) < high*(1-1e-9) || float64(got.Count) > high*(1+1e-9)+1 {
			t.Fatalf("%v times %d/%d is %v", c, num, den, s)
		}
	}
	if got := (Summary{Total: 1 << 60}).Scale(1<<60, 1).Total; got != 1<<64-1 {
		t.Errorf("what is too large becomes %d", got)
	}
}

func TestTopFindsTheFrequent(t *testing.T) {
	sketch := NewTopK(64)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 100_000 {
		key := fmt.Sprint("cold", r.IntN(50_000))
		if i%10 == 0 {
			key = fmt.Sprint("hot", i/10%2)
		}
		sketch.Add(key, 1)
	}
	top := sketch.Top(2)
	keys := []string{top.Keys[0].Key, top.Keys[1].Key}
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"hot0", "hot1"}) || top.Keys[0].Least() < 4000 {
		t.Fatalf("found %v", top)
	}
}

func FuzzTopK(f *testing.F) {
	f.Add(uint8(3), []byte("abacabadabacabae"))
	f.Add(uint8(1), []byte{0, 1, 255, 1, 0})
	f.Fuzz(func(t *testing.T, m uint8, stream []byte) {
		sketch, oracle := NewTopK(int(m)), &exact{}
		for i, b := range stream {
			weight := uint64(1)
			if i%3 == 2 {
				weight = uint64(b)
			}
			sketch.Add(string(b), weight)
			oracle.add(string(b), weight)
		}
		if err := sketch.sound(); err != nil {
			t.Fatal(err)
		}
		if err := oracle.judge(sketch.Top(int(m)+1), oracle.total/uint64(max(m, 1))); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkTopK(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 2))
	z := newZipf(r, 0.99, 50_000)
	keys := make([]string, 1<<16)
	for i := range keys {
		keys[i] = fmt.Sprint("key", z.draw())
	}
	sketch := NewTopK(1024)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		sketch.Add(keys[i&(len(keys)-1)], 1)
		i++
	}
}
