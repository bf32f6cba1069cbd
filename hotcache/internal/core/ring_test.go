package core

import (
	"fmt"
	"slices"
	"testing"
)

func nodeNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("10.0.0.%d:6379", i)
	}
	return out
}

// TestRingGolden: every process of every version sends a key to the same node.
func TestRingGolden(t *testing.T) {
	r := NewRing([]string{"alpha", "beta", "gamma", "delta", "epsilon"})
	for key, want := range map[string][]int{
		"": {3, 2, 0, 1, 4}, "a": {1, 2, 0, 4, 3}, "product:1": {0, 4, 3, 1, 2}, "product:2": {1, 3, 2, 4, 0}, "Ünïcödé": {4, 0, 3, 1, 2},
	} {
		if got := r.Owners(key, 5); !slices.Equal(got, want) || r.Owner(key) != want[0] {
			t.Errorf("%q: %v, want %v", key, got, want)
		}
	}
	if r.Len() != 5 || r.Name(2) != "gamma" {
		t.Error(r.Len(), r.Name(2))
	}
}

// TestRingSpread: no node has many more keys than another, as first choice or as second.
func TestRingSpread(t *testing.T) {
	const nodes, keys = 16, 64_000
	r := NewRing(nodeNames(nodes))
	var first, second [nodes]int
	for i := range keys {
		owners := r.Owners(fmt.Sprintf("key-%d", i), 2)
		first[owners[0]]++
		second[owners[1]]++
	}
	for what, counts := range map[string][nodes]int{"first": first, "second": second} {
		if top, least := slices.Max(counts[:]), slices.Min(counts[:]); top*nodes > keys*107/100 || least*nodes < keys*93/100 {
			t.Errorf("%s: from %d to %d keys, the mean is %d", what, least, top, keys/nodes)
		}
	}
}

// TestRingMoves: when a node leaves, its keys alone move, to the nodes that were their next choice; and the order of the
// names does not matter.
func TestRingMoves(t *testing.T) {
	names := nodeNames(8)
	whole, left := NewRing(names), NewRing(names[:7])
	turned := slices.Clone(names)
	slices.Reverse(turned)
	back := NewRing(turned)
	moved := 0
	for i := range 8000 {
		key := fmt.Sprintf("key-%d", i)
		owners := whole.Owners(key, 2)
		want := owners[0]
		if want == 7 {
			moved++
			want = owners[1]
		}
		if got := left.Owner(key); got != want {
			t.Fatalf("%s goes from %v to %d", key, owners, got)
		}
		if back.Name(back.Owner(key)) != whole.Name(owners[0]) {
			t.Fatalf("%s has another owner when the names are in another order", key)
		}
	}
	if moved < 900 || moved > 1100 {
		t.Errorf("%d of 8000 keys move from one of eight nodes", moved)
	}
}
