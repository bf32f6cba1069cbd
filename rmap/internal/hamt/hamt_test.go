package hamt

import (
	"fmt"
	"maps"
	"math/bits"
	"testing"

	"pgregory.net/rapid"
)

// check walks a map and verifies what every operation relies on: masks match arrays, entries lie where their hash says,
// no node but the root has a single entry and nothing else, nothing is below the list level.
func check[K comparable, V any](t interface{ Fatalf(string, ...any) }, m Map[K, V]) {
	if n := m.root.count(); n != m.Len() {
		t.Fatalf("Len is %d, but there are %d entries", m.Len(), n)
	}
	checkNode(t, m, m.root, 0)
	for e := range m.All() {
		if got := m.Get(e.Key); got != e {
			t.Fatalf("Get(%v) = %v, All yields %v", e.Key, got, e)
		}
	}
}

func checkNode[K comparable, V any](t interface{ Fatalf(string, ...any) }, m Map[K, V], n *node[K, V], shift uint) {
	if shift > 0 && len(n.kids) == 0 && len(n.entries) < 2 {
		t.Fatalf("node at shift %d with %d entries and no children", shift, len(n.entries))
	}
	if shift > lastShift {
		if len(n.kids) != 0 || n.here != 0 || n.below != 0 {
			t.Fatalf("the list level has masks or children")
		}
		return
	}
	if n.here&n.below != 0 || bits.OnesCount64(n.here) != len(n.entries) || bits.OnesCount64(n.below) != len(n.kids) {
		t.Fatalf("masks %b %b do not match %d entries and %d children", n.here, n.below, len(n.entries), len(n.kids))
	}
	for _, kid := range n.kids {
		checkNode(t, m, kid, shift+branchBits)
	}
}

func item(k, v int) *Item[int, int] { return &Item[int, int]{k, v} }

// TestModel compares with a Go map, step by step, and looks at all versions at the end: none may have changed.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, model := New[int, int](), map[int]int{}
		type version struct {
			m     Map[int, int]
			model map[int]int
		}
		var versions []version
		key := rapid.IntRange(0, rapid.SampledFrom([]int{8, 200, 5000}).Draw(t, "keys"))
		t.Repeat(map[string]func(*rapid.T){
			"with": func(t *rapid.T) {
				k, v := key.Draw(t, "k"), rapid.Int().Draw(t, "v")
				next, old := m.With(item(k, v))
				if was, ok := model[k]; ok != (old != nil) || ok && old.Value != was {
					t.Fatalf("With(%d) replaced %v, want %d, %v", k, old, was, ok)
				}
				m, model[k] = next, v
			},
			"without": func(t *rapid.T) {
				k := key.Draw(t, "k")
				next, old := m.Without(k)
				if was, ok := model[k]; ok != (old != nil) || ok && old.Value != was {
					t.Fatalf("Without(%d) removed %v, want %d, %v", k, old, was, ok)
				}
				delete(model, k)
				m = next
			},
			"keep": func(t *rapid.T) {
				if len(versions) < 20 {
					versions = append(versions, version{m, maps.Clone(model)})
				}
			},
			"build": func(t *rapid.T) {
				b := NewBuilder[int, int]()
				for e := range m.All() {
					if rapid.Bool().Draw(t, "twice") {
						b.Add(item(e.Key, e.Value+1))
					}
					b.Add(e)
				}
				m = b.Map()
			},
			"": func(t *rapid.T) { check(t, m) },
		})
		for _, v := range append(versions, version{m, model}) {
			check(t, v.m)
			got := map[int]int{}
			for e := range v.m.All() {
				got[e.Key] = e.Value
			}
			if !maps.Equal(got, v.model) {
				t.Fatalf("a version holds %v, want %v", got, v.model)
			}
		}
	})
}

// TestCollisions reaches the list level, where whole hashes are equal, by the internal functions that take a hash: no
// two keys can be found whose hashes under a random seed are the same.
func TestCollisions(t *testing.T) {
	m := New[int, int]()
	const h = 0x0edcba9876543210
	root, size := m.root, 0
	for k := range 5 {
		next, old := collide(m, root, item(k, k), h)
		if old != nil {
			t.Fatalf("With(%d) replaced %v", k, old)
		}
		root, size = next, size+1
	}
	if next, old := collide(m, root, item(3, 33), h); old == nil || old.Value != 3 {
		t.Fatalf("replacing key 3 gave %v", old)
	} else {
		root = next
	}
	if root.count() != size {
		t.Fatalf("%d entries, want %d", root.count(), size)
	}
	for k := range 5 {
		next, old := root.without(k, h, 0)
		if old == nil || old.Key != k {
			t.Fatalf("Without(%d) removed %v", k, old)
		}
		if _, again := next.without(k, h, 0); again != nil {
			t.Fatalf("Without(%d) removed %v twice", k, again)
		}
		root = next
	}
	if root.count() != 0 || root.here != 0 || root.below != 0 {
		t.Fatalf("after removing all: %+v", root)
	}
}

// collide adds e as if its hash were h, by descending to the list level as with does when hashes are equal.
func collide(m Map[int, int], n *node[int, int], e *Item[int, int], h uint64) (*node[int, int], *Item[int, int]) {
	if n.below == 0 && n.here == 0 {
		return chain(&node[int, int]{entries: []*Item[int, int]{e, item(-1, 0)}}, h, 0), nil
	}
	return m.with(n, e, e.Key, h, 0)
}

func chain(last *node[int, int], h uint64, shift uint) *node[int, int] {
	if shift > lastShift {
		last.entries = last.entries[:1:1]
		return last
	}
	return &node[int, int]{below: 1 << (h >> shift & branchMask), kids: []*node[int, int]{chain(last, h, shift+branchBits)}}
}

func TestEmpty(t *testing.T) {
	for name, m := range map[string]Map[string, int]{"New": New[string, int](), "built": NewBuilder[string, int]().Map()} {
		if e := m.Get("a"); e != nil || m.Len() != 0 {
			t.Errorf("%s: Get = %v, Len = %d, want nothing", name, e, m.Len())
		}
		if _, old := m.Without("a"); old != nil {
			t.Errorf("%s: Without removed %v", name, old)
		}
		check(t, m)
	}
}

func TestAllStops(t *testing.T) {
	b := NewBuilder[int, int]()
	for i := range 1000 {
		b.Add(item(i, i))
	}
	for stop := 1; stop < 1000; stop += 97 {
		n := 0
		for range b.mapOnce().All() {
			if n++; n == stop {
				break
			}
		}
		if n != stop {
			t.Fatalf("stopped after %d, want %d", n, stop)
		}
	}
}

func (b *Builder[K, V]) mapOnce() Map[K, V] {
	c := &Builder[K, V]{entries: append([]hashed[K, V](nil), b.entries...), seed: b.seed}
	return c.Map()
}

func TestGetDoesNotAllocate(t *testing.T) {
	b := NewBuilder[string, int]()
	for i := range 1000 {
		b.Add(&Item[string, int]{fmt.Sprint(i), i})
	}
	m := b.Map()
	if n := testing.AllocsPerRun(1000, func() { m.Get("77") }); n != 0 {
		t.Errorf("Get allocates %v objects", n)
	}
}

func benchMap(n int) (Map[string, string], []string) {
	b, keys := NewBuilder[string, string](), make([]string, n)
	for i := range n {
		keys[i] = fmt.Sprintf("key-%07d", i)
		b.Add(&Item[string, string]{keys[i], "v"})
	}
	return b.Map(), keys
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{100, 100_000} {
		m, keys := benchMap(n)
		model := map[string]string{}
		for _, k := range keys {
			model[k] = "v"
		}
		b.Run(fmt.Sprintf("hamt-%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if m.Get(keys[i%n]) == nil {
					b.Fatal("missing")
				}
			}
		})
		b.Run(fmt.Sprintf("map-%d", n), func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				if _, ok := model[keys[i%n]]; !ok {
					b.Fatal("missing")
				}
			}
		})
	}
}

func BenchmarkWith(b *testing.B) {
	m, keys := benchMap(100_000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		m, _ = m.With(&Item[string, string]{keys[i%len(keys)], "w"})
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		benchMap(100_000)
	}
}
