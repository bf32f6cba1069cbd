package core

import (
	"slices"
	"testing"
	"time"
)

// TestWakeWhileAsked: what wakes those who wait for a load may come before the answer that says to wait, since it takes
// another way. Who is told to wait then asks again, and not only when the lease would have ended.
func TestWakeWhileAsked(t *testing.T) {
	busy := Answer{State: Busy, Retry: time.Second}
	for name, wake := range map[string]func(b *bench) []Action{
		"the load ended":           func(b *bench) []Action { return b.f.Woken(b.now, "k") },
		"the load was voided":      func(b *bench) []Action { return b.f.Invalidated(b.now, 0, b.next("k", 2)) },
		"it was voided from here":  func(b *bench) []Action { return b.f.Invalidating(b.now, 0, b.next("k", 2)) },
		"two ends before it is up": func(b *bench) []Action { b.f.Woken(b.now, "k"); return b.f.Woken(b.now, "k") },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			b.meet()
			ask := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
			for _, a := range wake(b) {
				if a.Do == DoAsk {
					t.Error("it asks before it has its answer")
				}
			}
			again := b.want(b.f.Answered(b.now, ask.Op, busy, nil), DoAsk)
			b.want(b.f.Answered(b.now, again.Op, busy, nil)) // nothing has woken since: it waits
			b.want(b.f.Woken(b.now, "other"))
			last := b.want(b.f.Woken(b.now, "k"), DoAsk)
			it := item(2)
			b.f.Answered(b.now, last.Op, Answer{State: Hit, Item: &it, Times: good}, nil)
			if len(b.f.asking) != 0 || len(b.f.asleep) != 0 {
				t.Errorf("%d keys are asked for, %d are waited for", len(b.f.asking), len(b.f.asleep))
			}
		})
	}
}

// TestManyLeave: however many wait for one load, those who go away do so quickly, also when they go all at once, which
// is what they do when their load is slow and their deadlines are the same.
func TestManyLeave(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	const most = 100_000
	load := b.leased(0, 0, Answer{})
	for id := range ReadID(most) {
		b.want(b.f.Read(b.now, id, "k", 0))
	}
	began := time.Now()
	for id := range ReadID(most - 1) {
		b.f.Leave(id, "k")
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if s := b.f.Loaded(b.now, load.Op, item(1), good, nil); !slices.Equal(s[0].Reads, []ReadID{most - 1}) {
		t.Errorf("served %d", len(s[0].Reads))
	}
}
