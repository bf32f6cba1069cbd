package rmaptest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

func mapSuite() []group {
	return []group{
		{"codecs", mapCodecs()},
		{"broken", mapBroken()},
		{"reads", mapReads()},
		{"writes", mapWrites()},
		{"update", mapUpdates()},
		{"batches", mapBatches()},
		{"limits", mapLimits()},
		{"integers", mapIntegers()},
		{"lists", mapLists()},
		{"waits", mapWaits()},
		{"away", mapAway()},
		{"join", mapJoins()},
		{"close", mapCloses()},
		{"ttl", mapTTLs()},
		{"lifetime", mapLifetimes()},
		{"watch", mapWatches()},
		{"converge", mapConverges()},
	}
}

// RunMap checks that an [rmap.Map] keeps what its documentation says, over stores made by s.Open. The maps of a test
// are joined at both stores, so that they are those of two processes.
func RunMap(t *testing.T, s Subject) {
	for _, g := range mapSuite() {
		t.Run(g.name, func(t *testing.T) {
			for _, tt := range g.tests {
				t.Run(tt.name, func(t *testing.T) {
					run := func(t *testing.T) {
						e := &env{T: t, subject: s, ctx: t.Context(), name: "m"}
						e.first, e.second = s.Open(t)
						tt.fn(e)
					}
					if s.Bubble {
						synctest.Test(t, run)
					} else {
						run(t)
					}
				})
			}
		})
	}
}

// joined returns a copy of the test's map, until the end of the test.
func joined[K comparable, V any](e *env, s rmap.Store, o rmap.Options[K, V]) *rmap.Map[K, V] {
	e.Helper()
	m, err := rmap.Join(e.ctx, s, e.name, o)
	if err != nil {
		e.Fatalf("join: %v", err)
	}
	e.Cleanup(m.Close)
	return m
}

// pair returns the copies of two processes.
func pair[K comparable, V any](e *env, o rmap.Options[K, V]) (a, b *rmap.Map[K, V]) {
	e.Helper()
	return joined(e, e.first, o), joined(e, e.second, o)
}

type (
	texts    = rmap.Options[string, string]
	numbers  = rmap.Options[string, int]
	listings = rmap.Options[string, []string]
	raws     = rmap.Options[string, rmap.Value]
)

// did takes what a write returned, which must be a revision.
func (e *env) did(r rmap.Revision, err error) rmap.Revision {
	e.Helper()
	if err != nil {
		e.Fatalf("a write failed: %v", err)
	}
	return r
}

// synced makes copies current.
func (e *env) synced(all ...interface{ Sync(context.Context) error }) {
	e.Helper()
	for _, m := range all {
		if err := m.Sync(e.ctx); err != nil {
			e.Fatalf("sync: %v", err)
		}
	}
}

// fails returns what takes the result of a write that must fail with an error, and must not have been applied.
func (e *env) fails(want error) func(rmap.Revision, error) *rmap.WriteError {
	return func(r rmap.Revision, err error) *rmap.WriteError {
		e.Helper()
		return e.failed(err, want, rmap.NotApplied)
	}
}

// failed checks the error of a write.
func (e *env) failed(err, want error, outcome rmap.Outcome) *rmap.WriteError {
	e.Helper()
	w := (*rmap.WriteError)(nil)
	if !errors.Is(err, want) || !errors.As(err, &w) {
		e.Fatalf("a write failed with %v, want a WriteError of %q", err, want)
	}
	if w.Outcome != outcome || rmap.OutcomeOf(err) != outcome {
		e.Fatalf("the outcome of %q is %q, want %q", err, w.Outcome, outcome)
	}
	if w.Op == "" || w.Map != e.name {
		e.Fatalf("the error %q is of %q in map %q", err, w.Op, w.Map)
	}
	return w
}

// shows checks that a copy, as it is, has these entries and no other, by every way of reading.
func shows[K comparable, V any](e *env, m *rmap.Map[K, V], want map[K]V) {
	e.Helper()
	if got := maps.Collect(m.All()); len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
		e.Fatalf("the copy is %s, want %s", text(got), text(want))
	}
	if m.Len() != len(want) {
		e.Fatalf("Len is %d, want %d", m.Len(), len(want))
	}
	for key, v := range want {
		if got, ok := m.Get(key); !ok || !reflect.DeepEqual(got, v) {
			e.Fatalf("Get of %s is %s, %t, want %s", text(key), text(got), ok, text(v))
		}
		if got, err := m.Lookup(key); err != nil || !reflect.DeepEqual(got, v) {
			e.Fatalf("Lookup of %s is %s, %v, want %s", text(key), text(got), err, text(v))
		}
	}
}

// A tape takes down the events of a subscription.
type tape[K comparable, V any] struct {
	over chan struct{}

	mu     sync.Mutex // guards events
	events []rmap.Event[K, V]
}

// record subscribes, and reads in a goroutine of its own until the map is closed.
func record[K comparable, V any](e *env, m *rmap.Map[K, V], o rmap.WatchOptions) *tape[K, V] {
	seq := m.Watch(e.ctx, o)
	tp := &tape[K, V]{over: make(chan struct{})}
	go func() {
		defer close(tp.over)
		for ev := range seq {
			if at := m.Snapshot().Revision(); at.Generation == ev.Revision.Generation && at.Number < ev.Revision.Number {
				e.Errorf("the event %v was told while readers still saw %v", ev, at)
			}
			tp.mu.Lock()
			tp.events = append(tp.events, ev)
			tp.mu.Unlock()
		}
	}()
	return tp
}

func (tp *tape[K, V]) all() []rmap.Event[K, V] {
	tp.mu.Lock()
	defer tp.mu.Unlock()
	return slices.Clone(tp.events)
}

// until waits for n events, and returns all.
func (tp *tape[K, V]) until(e *env, n int) []rmap.Event[K, V] {
	e.Helper()
	e.until(fmt.Sprintf("%d events are told", n), func() bool { return len(tp.all()) >= n })
	return tp.all()
}

// tells waits for events and compares them with how they should look, as line shows them.
func (tp *tape[K, V]) tells(e *env, want ...string) []rmap.Event[K, V] {
	e.Helper()
	events := tp.until(e, len(want))
	var got []string
	for _, ev := range events {
		got = append(got, line(ev))
	}
	if !slices.Equal(got, want) {
		e.Fatalf("the events are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	return events
}

// line shows an event without its revision.
func line[K comparable, V any](ev rmap.Event[K, V]) string {
	side := func(v V, has bool) string {
		if !has {
			return "none"
		}
		return fmt.Sprint(v)
	}
	s := ev.Cause.String()
	switch ev.Cause {
	case rmap.CauseSet, rmap.CauseDelete, rmap.CauseExpire:
		s += fmt.Sprintf(" %v: %s to %s", ev.Key, side(ev.Old, ev.HasOld), side(ev.New, ev.HasNew))
	case rmap.CauseBroken:
		s += fmt.Sprintf(" %v", ev.Key)
	}
	return s
}

// pass lets time go by where nothing can be waited for: what is tested is that something lasts, or does not come back.
func (e *env) pass(d time.Duration) { <-time.After(d) }
