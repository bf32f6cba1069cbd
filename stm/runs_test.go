//go:build !race

package stm

import (
	"runtime"
	"sync"
	"testing"
)

// Many that change one variable, and give way to each other in the middle of it, run at
// most twice for each commit: who has lost keeps out of the way for a while. The race
// detector makes a run longer than that while, and so does a machine that takes the
// processor away in the middle of one, though not each time: the best of some counts.
func TestRunsPerCommit(t *testing.T) {
	runs := runsPerCommit(t)
	for range 9 {
		if runs <= 2 {
			return
		}
		runs = min(runs, runsPerCommit(t))
	}
	if runs > 2 {
		t.Errorf("%.2f runs a commit at best, want at most 2", runs)
	}
}

func runsPerCommit(t *testing.T) float64 {
	const goroutines, each = 16, 500
	v := NewVar(0)
	before := Reruns()
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				mustCommit(t, func(tx Tx) {
					x := v.Get(tx)
					runtime.Gosched()
					v.Set(tx, x+1)
				})
			}
		})
	}
	wg.Wait()
	if v.Load() != goroutines*each {
		t.Errorf("the variable holds %d, want %d", v.Load(), goroutines*each)
	}
	runs := 1 + float64(Reruns()-before)/(goroutines*each)
	t.Logf("%.2f runs a commit", runs)
	return runs
}
