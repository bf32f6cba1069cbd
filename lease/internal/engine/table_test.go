package engine

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
)

// The table is run beside a map through growth to thousands and back to none,
// twice over, with names that repeat.
func TestTableAgainstModel(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	tab := newTable[*key](maphash.MakeSeed())
	model := map[*key]bool{}
	var list []*key
	for round := range 4 {
		grow := round%2 == 0
		for range 20_000 {
			if grow == (rng.IntN(4) > 0) || len(list) == 0 {
				k := &key{name: fmt.Sprint(rng.IntN(5000))}
				tab.add(k)
				model[k] = true
				list = append(list, k)
			} else {
				i := rng.IntN(len(list))
				k := list[i]
				list[i] = list[len(list)-1]
				list = list[:len(list)-1]
				tab.remove(k)
				tab.remove(k)
				delete(model, k)
			}
			if tab.n != len(model) {
				t.Fatalf("%d entries, want %d", tab.n, len(model))
			}
		}
		count := map[string]int{}
		for k := range model {
			count[k.name]++
		}
		for i := range 5000 {
			name, got := fmt.Sprint(i), 0
			for k := tab.first(name); k != nil; k = k.next {
				if k.name != name {
					continue // another one of its bucket
				}
				if !model[k] {
					t.Fatalf("found a removed entry %q", name)
				}
				got++
			}
			if got != count[name] {
				t.Fatalf("%d entries named %q, want %d", got, name, count[name])
			}
		}
		seen := 0
		for range tab.all {
			seen++
		}
		if seen != len(model) {
			t.Fatalf("all gave %d entries, want %d", seen, len(model))
		}
	}
	for _, k := range list {
		tab.remove(k)
	}
	if len(tab.chunks) > 2 || tab.n != 0 {
		t.Fatalf("an empty table keeps %d chunks and %d entries", len(tab.chunks), tab.n)
	}
}
