package leaseremote

import (
	"fmt"
	"testing"
)

// What is remembered of losses has a bound, and it is the oldest that goes.
func TestToldIsBounded(t *testing.T) {
	var of told
	for i := range 3 * maxTold {
		of.add(fmt.Sprint(i))
		of.add(fmt.Sprint(i)) // a lease of two keys
		if first := i - maxTold + 1; len(of.ids) > maxTold || of.has(fmt.Sprint(first-1)) || !of.has(fmt.Sprint(max(first, 0))) {
			t.Fatalf("after %d losses %d are remembered", i+1, len(of.ids))
		}
	}
}
