//go:build !race

package stm

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"unsafe"
)

// The race detector allocates, and has pools forget things at random.

// A transaction allocates one value for each variable that it sets, and nothing else.
func TestAllocations(t *testing.T) {
	v, w, r := NewVar(1000), NewVar(1000), NewVar(record{})
	hundred := make([]Var[int], 100)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for _, c := range []struct {
		name string
		want float64
		fn   func()
	}{
		{"Load", 0, func() { v.Load() }},
		{"SetNow", 1, func() { SetNow(v, 1) }},
		{"AddNow", 1, func() { AddNow(v, 1) }},
		{"read", 0, func() { _ = Atomically(ctx, func(tx Tx) error { v.Get(tx); return nil }) }},
		{"view of two", 0, func() { _ = View(ctx, func(tx Tx) error { v.Get(tx); w.Get(tx); return nil }) }},
		{"Read of two", 0, func() { _, _ = Read(ctx, func(tx Tx) (int, error) { return v.Get(tx) + w.Get(tx), nil }) }},
		{"view of a hundred", 0, func() {
			_ = View(ctx, func(tx Tx) error {
				for i := range hundred {
					hundred[i].Get(tx)
				}
				return nil
			})
		}},
		{"update", 1, func() { _ = Atomically(ctx, func(tx Tx) error { v.Set(tx, v.Get(tx)+1); return nil }) }},
		{"record", 1, func() {
			_ = Atomically(ctx, func(tx Tx) error { x := r.Get(tx); x.a, x.b, x.c = x.b, x.c, x.a+1; r.Set(tx, x); return nil })
		}},
		{"set ten times", 1, func() {
			_ = Atomically(ctx, func(tx Tx) error {
				for i := range 10 {
					v.Set(tx, i+1000)
				}
				return nil
			})
		}},
		{"transfer", 2, func() { _ = Atomically(ctx, func(tx Tx) error { Add(tx, v, -1); Add(tx, w, 1); return nil }) }},
		{"error", 1, func() { _ = Atomically(ctx, func(tx Tx) error { v.Set(tx, 1); return errEnds }) }},
		{"nested", 1, func() {
			_ = Atomically(ctx, func(Tx) error {
				return Atomically(ctx, func(tx Tx) error { v.Set(tx, 1); return nil })
			})
		}},
	} {
		if got := testing.AllocsPerRun(1000, c.fn); got != c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
	}
}

// A variable is as large as its users are told, and one of its own shares no cache
// line.
func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(Var[[100]int]{}); n != 32 {
		t.Errorf("a Var has %d bytes, want 32", n)
	}
	lines := map[uintptr]*Var[int]{}
	for range 1000 {
		v := NewVar(0)
		line := uintptr(unsafe.Pointer(v)) / 64
		if lines[line] != nil {
			t.Fatal("two variables share a cache line")
		}
		lines[line] = v
	}
}

// Thousands that wait in Retry leave the table of who is inside of what to the others:
// a transaction beside them costs what it costs alone.
func TestWaitersDoNotCrowd(t *testing.T) {
	const n = 10_000
	v, w := NewVar(0), NewVar(0)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if _, err := waitUntil(ctx, 1, v); err == nil {
				t.Error("it does not wait")
			}
		})
	}
	for waiting := 0; waiting < n; runtime.Gosched() {
		if ws := v.core.waiters.Load(); ws != nil {
			waiting = int(ws.n.Load())
		}
	}
	if got := testing.AllocsPerRun(100, func() {
		_ = Atomically(ctx, func(tx Tx) error { w.Get(tx); return nil })
	}); got != 0 {
		t.Errorf("%v allocations while %d wait, want none", got, n)
	}
	cancel()
	wg.Wait()
	clean(t, v, w)
}
