package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// refusedFor fails unless err is a refusal that names the limit.
func refusedFor(t *testing.T, err error, limit string) {
	t.Helper()
	if !errors.Is(err, lease.ErrRefused) || !strings.Contains(err.Error(), limit) {
		t.Errorf("got %v, want a refusal that names %s", err, limit)
	}
}

// Sessions are bounded, and one that ends makes room.
func TestSessionsAreBounded(t *testing.T) {
	e := New(Config{})
	var first *Session
	for i := range lease.MaxSessions {
		s, _, err := e.Open(fmt.Sprint(i), lease.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = s
		}
	}
	_, _, err := e.Open("one more", lease.SessionOptions{})
	refusedFor(t, err, "MaxSessions")
	if err := e.CloseSession(first, 1); err != nil {
		t.Fatal(err)
	}
	if _, _, err := e.Open("one more", lease.SessionOptions{}); err != nil {
		t.Errorf("after one ended: %v", err)
	}
}

// Holds and waiters of the whole service are bounded. The counts are set, since
// millions of them take long; that they count is checked elsewhere.
func TestServiceIsBounded(t *testing.T) {
	e := New(Config{})
	s, epoch, err := e.Open("s", lease.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(id string, keys ...string) *asker {
		a := &asker{}
		e.Acquire(s, epoch, &lease.Request{ID: id, Keys: keys, TTL: lease.DefaultTTL}, a)
		for _, f := range e.Out().Effects {
			if f.Kind == EffectDone {
				f.Caller.Done(f.Lease, f.Err)
			}
		}
		e.Out().Reset()
		return a
	}
	e.stats.Holds = lease.MaxHolds - 1
	refusedFor(t, ask("two", "a", "b").err, "MaxHolds")
	if a := ask("one", "a"); a.err != nil || a.done != 1 {
		t.Errorf("the last hold: %+v, want a grant", a)
	}
	e.stats.Holds = 1
	e.stats.Waiters = lease.MaxWaiters - 1
	if a := ask("waits", "a"); a.done != 0 {
		t.Errorf("the last waiter: %+v, want it to wait", a)
	}
	refusedFor(t, ask("too many", "a").err, "MaxWaiters")
}

// A search for deadlocks is bounded: a cycle that is too long to look through is
// not reported, and nobody is refused on suspicion.
func TestDeadlockSearchIsBounded(t *testing.T) {
	for n, want := range map[int]bool{lease.MaxDeadlockSearch / 4: true, lease.MaxDeadlockSearch + 1: false} {
		e := New(Config{})
		s, epoch, err := e.Open("s", lease.SessionOptions{})
		if err != nil {
			t.Fatal(err)
		}
		key := func(i int) []string { return []string{fmt.Sprint("key", i%n)} }
		hold := func(i int) string { return fmt.Sprint("hold", i) }
		for i := range n {
			e.Acquire(s, epoch, &lease.Request{ID: hold(i), Keys: key(i), TTL: lease.Forever}, &asker{})
		}
		// Each has one key and waits for the next one's; the last closes the circle.
		for i := range n {
			r := lease.Request{ID: fmt.Sprint("wait", i), Keys: key(i + 1), TTL: lease.Forever, Declared: []string{hold(i)}}
			e.Acquire(s, epoch, &r, &asker{})
		}
		if got := e.Stats().Deadlocks == 1; got != want {
			t.Errorf("a circle of %d: found %v, want %v", n, got, want)
		}
	}
}
