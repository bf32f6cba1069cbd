package actor

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Edges that were there one after another are no circle, although one walk over them
// may see them as such: the first of a long chain ends before the last begins.
func TestNoCircleOfThePast(t *testing.T) {
	nodes := make([]node, 20)
	first, last := &nodes[0], &nodes[len(nodes)-1]
	for i := 1; i < len(nodes)-1; i++ {
		nodes[i].waits.Store(&edge{to: &nodes[i+1]})
	}
	var a node
	var wg sync.WaitGroup
	var stop atomic.Bool
	wg.Go(func() {
		for !stop.Load() {
			for _, e := range [][2]*node{{first, &nodes[1]}, {last, &a}} {
				if err := e[0].await(e[1], nil, "to"); err != nil {
					t.Error(err)
					return
				}
				e[0].proceed()
			}
		}
	})
	for range 100_000 {
		if err := a.await(first, nil, "to"); err != nil {
			t.Errorf("a circle that never was: %v", err)
			break
		}
		a.proceed()
	}
	stop.Store(true)
	wg.Wait()
}

// Of those who close a circle at the same time, at least one is told.
func TestCircleIsSeenByOne(t *testing.T) {
	for range 5000 {
		nodes := make([]node, 3)
		var told [3]error
		var ready, wg sync.WaitGroup
		ready.Add(len(nodes))
		for i := range nodes {
			wg.Go(func() {
				ready.Done()
				ready.Wait()
				told[i] = nodes[i].await(&nodes[(i+1)%len(nodes)], nil, "to")
			})
		}
		wg.Wait()
		if told[0] == nil && told[1] == nil && told[2] == nil {
			t.Fatal("three wait for one another and nobody was told")
		}
	}
}

// To look along a way takes time in proportion to its length, whether it ends or leads
// into a circle of others: with the square of it, this would take a minute.
func TestLongWay(t *testing.T) {
	nodes := make([]node, 200_000)
	for i := 1; i < len(nodes)-1; i++ {
		nodes[i].waits.Store(&edge{to: &nodes[i+1]})
	}
	start := time.Now()
	for range 2 {
		if err := nodes[0].await(&nodes[1], nil, "to"); err != nil {
			t.Fatalf("a circle that is none: %v", err)
		}
		nodes[len(nodes)-1].waits.Store(&edge{to: &nodes[len(nodes)/2]})
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// A walk that meets a circle of others ends.
func TestCircleOfOthers(t *testing.T) {
	var a, b, c node
	b.waits.Store(&edge{to: &c})
	c.waits.Store(&edge{to: &b})
	if err := a.await(&b, nil, "to"); err != nil {
		t.Errorf("refused for a circle of others: %v", err)
	}
}

// What a message leaves in the ring is cleared, so that what it captured can go.
func TestRingIsCleared(t *testing.T) {
	var m mailbox[int]
	m.init(3)
	fn := func(int) error { return nil }
	for range 10 {
		for range 3 {
			if _, err := m.put(entry[int]{tell: fn}, patience{}); err != nil {
				t.Fatal(err)
			}
		}
		m.rest() // from the round before
		var e entry[int]
		for range 3 {
			if !m.next(&e) {
				t.Fatal("the mailbox is empty, want a message")
			}
		}
		if m.next(&e) {
			t.Fatal("a message that was not sent")
		}
		for i := range m.ring {
			if m.ring[i].tell != nil || m.ring[i].call != nil {
				t.Fatalf("place %d still has its message", i)
			}
		}
	}
}
