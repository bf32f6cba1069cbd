//go:build !race

package actor_test

import (
	"context"
	"testing"

	"github.com/latchkey-go/latchkey/actor"
)

// What a message allocates, on both sides. With the race detector sync.Pool drops
// some of what it is given, so that the counts would be others.
func TestAllocations(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := counting(t, actor.Options{Mailbox: 1000})
	m, err := actor.NewMap[int, int](nil, actor.Options{Mailbox: 1000})
	must(t, err)
	defer closed(t, m)
	for _, c := range []struct {
		name string
		want float64
		fn   func()
	}{
		{"Ask", 1, func() { actor.Ask(ctx, o, one) }},
		{"TryAsk", 1, func() { actor.TryAsk(ctx, o, one) }},
		{"Tell", 0, func() { o.Tell(ctx, add) }},
		{"TryTell", 0, func() { o.TryTell(add) }},
		{"Send", 2, func() { actor.Send(ctx, o, one) }}, // the future and its channel
		{"Do", 2, func() { o.Do(ctx, add) }},
		{"Map.Set", 1, func() { m.Set(ctx, 1, 1) }},
		{"Add", 1, func() { actor.Add(ctx, m, 1, 1) }},
		{"Map.Get", 2, func() { m.Get(ctx, 1) }},
		{"Map.Contains", 2, func() { m.Contains(ctx, 1) }},
	} {
		got := testing.AllocsPerRun(200, c.fn)
		if got != c.want {
			t.Errorf("%s: %v allocations, want %v", c.name, got, c.want)
		}
		value(t, o)
		if _, err := m.Contains(ctx, 1); err != nil {
			t.Error(err)
		}
	}
}
