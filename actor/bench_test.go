package actor_test

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/actor"
)

func BenchmarkAsk(b *testing.B) {
	ctx := context.Background()
	o, err := actor.New(ctx, newCounter, actor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		actor.Ask(ctx, o, func(c *counter) (int, error) { c.n++; return c.n, nil })
	}
	closed(b, o)
}

func BenchmarkTell(b *testing.B) {
	ctx := context.Background()
	o, err := actor.New(ctx, newCounter, actor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		o.Tell(ctx, func(c *counter) error { c.n++; return nil })
	}
	o.Do(ctx, func(*counter) error { return nil })
	closed(b, o)
}

func BenchmarkAskParallel(b *testing.B) {
	ctx := context.Background()
	o, err := actor.New(ctx, newCounter, actor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			actor.Ask(ctx, o, func(c *counter) (int, error) { c.n++; return c.n, nil })
		}
	})
	closed(b, o)
}

func BenchmarkTellParallel(b *testing.B) {
	ctx := context.Background()
	o, err := actor.New(ctx, newCounter, actor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			o.Tell(ctx, func(c *counter) error { c.n++; return nil })
		}
	})
	closed(b, o)
}

func BenchmarkMapGet(b *testing.B) {
	ctx := context.Background()
	m, err := actor.NewMap(map[int]int{1: 1}, actor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.Get(ctx, 1)
	}
	closed(b, m)
}

func BenchmarkMapAdd(b *testing.B) {
	ctx := context.Background()
	m, err := actor.NewMap[int, int](nil, actor.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		actor.Add(ctx, m, 1, 1)
	}
	closed(b, m)
}

// What the same costs with a channel of functions, as the least that it could.
func BenchmarkChannel(b *testing.B) {
	b.Run("ask", func(b *testing.B) {
		n := 0
		ch := make(chan func(), 128)
		go func() {
			for f := range ch {
				f()
			}
		}()
		back := make(chan struct{}, 1)
		for b.Loop() {
			ch <- func() { n++; back <- struct{}{} }
			<-back
		}
		close(ch)
	})
	b.Run("tell", func(b *testing.B) {
		n := 0
		ch := make(chan func(), 128)
		go func() {
			for f := range ch {
				f()
			}
		}()
		for b.Loop() {
			ch <- func() { n++ }
		}
		close(ch)
	})
}
