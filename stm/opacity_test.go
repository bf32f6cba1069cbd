package stm_test

import (
	"context"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/stm"
)

// dose is how much of something to do; a soak does a hundred times as much.
func dose(n int) int {
	if os.Getenv("LATCHKEY_SOAK") != "" {
		return 100 * n
	}
	return n
}

// Every commit leaves all variables equal. No run, whether it commits or not, may see
// two that differ; each gives way to others between its reads. In the wide case the
// transactions are big ones. One torn pair in all the runs fails the test.
func TestOpacity(t *testing.T) {
	for name, n := range map[string]int{"pair": 2, "small": 7, "wide": 40} {
		t.Run(name, func(t *testing.T) {
			vars := make([]*stm.Var[int], n)
			for i := range vars {
				vars[i] = stm.NewVar(0)
			}
			var runs, torn atomic.Int64
			see := func(tx stm.Tx, order []int, yield int) int {
				runs.Add(1)
				first := vars[order[0]].Get(tx)
				for at, i := range order[1:] {
					if at%yield == 0 {
						runtime.Gosched()
					}
					if vars[i].Get(tx) != first {
						torn.Add(1)
					}
				}
				return first
			}
			var wg sync.WaitGroup
			commits := dose(20_000 / n)
			for range 3 {
				wg.Go(func() {
					for range commits {
						order := rand.Perm(n)
						atomically(t, func(tx stm.Tx) {
							x := see(tx, order, n)
							for _, i := range order {
								vars[i].Set(tx, x+1)
							}
						})
					}
				})
				wg.Go(func() {
					for range commits {
						order := rand.Perm(n)
						if err := stm.View(t.Context(), func(tx stm.Tx) error { see(tx, order, 1+n/4); return nil }); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if torn.Load() != 0 {
				t.Errorf("%d torn pairs in %d runs", torn.Load(), runs.Load())
			}
			want(t, vars[0], 3*commits)
			t.Logf("%d runs", runs.Load())
		})
	}
}

// Each transaction takes one of two only if both are there, so that one is always
// left: each writes what the other has only read.
func TestWriteSkew(t *testing.T) {
	for range dose(2000) {
		x, y := stm.NewVar(1), stm.NewVar(1)
		var wg sync.WaitGroup
		for _, v := range []*stm.Var[int]{x, y} {
			wg.Go(func() {
				atomically(t, func(tx stm.Tx) {
					both := x.Get(tx)+y.Get(tx) == 2
					runtime.Gosched()
					if both {
						v.Set(tx, 0)
					}
				})
			})
		}
		wg.Wait()
		if got := x.Load() + y.Load(); got != 1 {
			t.Fatalf("%d are left, want 1", got)
		}
	}
}

// Money moves, by transactions of all sizes and by AddNow, and none is lost or made.
func TestBank(t *testing.T) {
	const accounts = 100
	vars := make([]stm.Var[int], accounts)
	var added atomic.Int64
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range dose(2000) {
				from, to := rand.IntN(accounts), rand.IntN(accounts)
				atomically(t, func(tx stm.Tx) {
					stm.Add(tx, &vars[from], -1)
					stm.Add(tx, &vars[to], 1)
				})
			}
		})
		wg.Go(func() {
			for range dose(2000) {
				stm.AddNow(&vars[rand.IntN(accounts)], 1)
				added.Add(1)
			}
		})
		wg.Go(func() {
			for range dose(20) {
				atomically(t, func(tx stm.Tx) { // levels all of them
					sum := 0
					for i := range vars {
						sum += vars[i].Get(tx)
					}
					for i := range vars {
						vars[i].Set(tx, sum/accounts)
					}
					stm.Add(tx, &vars[0], sum%accounts)
				})
			}
		})
	}
	wg.Wait()
	sum := 0
	if err := stm.View(context.Background(), func(tx stm.Tx) error {
		sum = 0
		for i := range vars {
			sum += vars[i].Get(tx)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if sum != int(added.Load()) {
		t.Errorf("the accounts have %d, want %d", sum, added.Load())
	}
}
