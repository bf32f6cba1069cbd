package stm

import (
	"context"
	"sync"
	"testing"
)

type record struct{ a, b, c int } // 24 bytes

func BenchmarkOne(b *testing.B) {
	v := NewVar(record{})
	ctx := context.Background()
	b.ReportAllocs()
	for range b.N {
		_ = Atomically(ctx, func(tx Tx) error { x := v.Get(tx); x.a, x.b, x.c = x.b, x.c, x.a+1; v.Set(tx, x); return nil })
	}
}

func BenchmarkTransfer(b *testing.B) {
	v, w := NewVar(0), NewVar(0)
	ctx := context.Background()
	b.ReportAllocs()
	for range b.N {
		_ = Atomically(ctx, func(tx Tx) error { Add(tx, v, -1); Add(tx, w, 1); return nil })
	}
}

func BenchmarkViewTwo(b *testing.B) {
	v, w := NewVar(0), NewVar(1)
	ctx := context.Background()
	b.ReportAllocs()
	for range b.N {
		_ = View(ctx, func(tx Tx) error { v.Get(tx); w.Get(tx); return nil })
	}
}

func BenchmarkViewThousand(b *testing.B) {
	vars := make([]Var[int], 1000)
	ctx := context.Background()
	b.ReportAllocs()
	for range b.N {
		_ = View(ctx, func(tx Tx) error {
			for i := range vars {
				vars[i].Get(tx)
			}
			return nil
		})
	}
}

func BenchmarkAddNow(b *testing.B) {
	v := NewVar(0)
	b.ReportAllocs()
	for range b.N {
		AddNow(v, 1)
	}
}

func BenchmarkSetNow(b *testing.B) {
	v := NewVar(0)
	b.ReportAllocs()
	for i := range b.N {
		SetNow(v, i)
	}
}

func BenchmarkLoad(b *testing.B) {
	v := NewVar(1)
	n := 0
	for range b.N {
		n += v.Load()
	}
	if n != b.N {
		b.Fatal(n)
	}
}

// What the others are measured by: a mutex, a closure, a new value.
func BenchmarkMutex(b *testing.B) {
	var mu sync.Mutex
	x := new(record)
	update := func(fn func(record) record) {
		mu.Lock()
		defer mu.Unlock()
		y := fn(*x)
		x = &y
	}
	b.ReportAllocs()
	for range b.N {
		update(func(x record) record { x.a, x.b, x.c = x.b, x.c, x.a+1; return x })
	}
}

func BenchmarkOwn(b *testing.B) {
	ctx := context.Background()
	b.RunParallel(func(pb *testing.PB) {
		v := NewVar(0)
		for pb.Next() {
			_ = Atomically(ctx, func(tx Tx) error { v.Set(tx, v.Get(tx)+1); return nil })
		}
	})
}

func BenchmarkShared(b *testing.B) {
	ctx := context.Background()
	v := NewVar(0)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_ = Atomically(ctx, func(tx Tx) error { v.Set(tx, v.Get(tx)+1); return nil })
		}
	})
}
