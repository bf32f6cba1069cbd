package engine

import (
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// The last ended requests are remembered with how they ended, per session; the
// memory does not grow, and what is forgotten is old.
func TestOutcomes(t *testing.T) {
	o := newOutcomes(maphash.MakeSeed())
	a, b := &Session{id: "a"}, &Session{id: "b"}
	if _, known := o.find(a, "x"); known {
		t.Fatal("an empty memory knows something")
	}
	const n = 4 * lease.MaxOutcomes
	for i := range n {
		o.add(a, fmt.Sprint(i), outcomeCodes[i%len(outcomeCodes)])
	}
	missing := 0
	for i := n - lease.MaxOutcomes/4; i < n; i++ {
		how, known := o.find(a, fmt.Sprint(i))
		if known && how != outcomeCodes[i%len(outcomeCodes)] {
			t.Fatalf("request %d ended as %q, want %q", i, how, outcomeCodes[i%len(outcomeCodes)])
		}
		if !known {
			missing++
		}
		if _, known := o.find(b, fmt.Sprint(i)); known {
			t.Fatalf("request %d of one session is known in another", i)
		}
	}
	// A set holds eight; of two a set on average, nine or more are a rarity.
	if missing > lease.MaxOutcomes/4/1000 {
		t.Errorf("%d of the newest %d are forgotten", missing, lease.MaxOutcomes/4)
	}
	kept := 0
	for i := range n {
		if _, known := o.find(a, fmt.Sprint(i)); known {
			kept++
		}
	}
	if kept > lease.MaxOutcomes {
		t.Errorf("%d are remembered, more than %d", kept, lease.MaxOutcomes)
	}
	o.add(a, "again", lease.ErrExpired)
	o.add(a, "again", released)
	if how, _ := o.find(a, "again"); how != released {
		t.Errorf("the later outcome does not count: %q", how)
	}
}
