package rmap_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

func join[K comparable, V any](t *testing.T, store rmap.Store, o rmap.Options[K, V]) *rmap.Map[K, V] {
	t.Helper()
	m, err := rmap.Join(t.Context(), store, "test", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestTwoCopies(t *testing.T) {
	store := rmaplocal.New(rmaplocal.Options{})
	a, b := join(t, store, rmap.Options[string, string]{}), join(t, store, rmap.Options[string, string]{})
	ctx := context.Background()
	r, err := a.SetAndWait(ctx, "k", "v")
	if err != nil {
		t.Fatal(err)
	}
	if err := b.WaitFor(ctx, r); err != nil {
		t.Fatal(err)
	}
	if v, ok := b.Get("k"); v != "v" || !ok {
		t.Fatalf("Get = %q, %v", v, ok)
	}
	// What was waited for can be there while the copy is still being compared with the store.
	if err := b.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if lag := b.Lag(); lag.State != rmap.Live || lag.Revision != r {
		t.Fatalf("Lag = %+v", lag)
	}
	if _, err := b.SetIfAbsent(ctx, "k", "w"); !errors.Is(err, rmap.ErrConflict) {
		t.Fatalf("SetIfAbsent: %v", err)
	}
	if v, _, err := b.Update(ctx, "k", func(old string, ok bool) (string, error) { return old + "!", nil }); v != "v!" || err != nil {
		t.Fatalf("Update = %q, %v", v, err)
	}
	if err := a.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if v, _ := a.Get("k"); v != "v!" {
		t.Fatalf("Get = %q", v)
	}
}

func TestEntryHiddenAtDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := rmaplocal.New(rmaplocal.Options{})
		m := join(t, store, rmap.Options[string, int]{})
		events := m.Watch(t.Context(), rmap.WatchOptions{})
		if _, err := m.SetTTL(t.Context(), "k", 1, 100*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Set(t.Context(), "stays", 2); err != nil {
			t.Fatal(err)
		}
		if err := m.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(99 * time.Millisecond)
		if v, ok := m.Get("k"); !ok || v != 1 {
			t.Fatalf("before the deadline: %v, %v", v, ok)
		}
		time.Sleep(time.Millisecond)
		if v, ok := m.Get("k"); ok {
			t.Fatalf("at the deadline: %v", v)
		}
		if m.Len() != 1 {
			t.Fatalf("Len = %d", m.Len())
		}
		var causes []rmap.Cause
		for e := range events {
			causes = append(causes, e.Cause)
			if e.Cause == rmap.CauseExpire {
				break
			}
		}
		t.Log(causes)
		time.Sleep(time.Second)
		synctest.Wait()
		if r := m.Lag().Revision; r.Number != 3 {
			t.Fatalf("the purge is no change: %v", r)
		}
	})
}

// Update changes the value alone: the entry ends when it was to end.
func TestUpdateKeepsTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := join(t, rmaplocal.New(rmaplocal.Options{}), rmap.Options[string, int]{})
		if _, err := m.SetTTL(t.Context(), "k", 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		_, r, err := m.Update(t.Context(), "k", func(old int, ok bool) (int, error) { return old + 1, nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := m.WaitFor(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if v, ok := m.Get("k"); v != 2 || !ok {
			t.Fatalf("Get = %d, %t, want 2", v, ok)
		}
		time.Sleep(time.Second)
		if v, ok := m.Get("k"); ok {
			t.Fatalf("a minute after SetTTL: %d", v)
		}
	})
}

func TestOutcomeOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want rmap.Outcome
	}{
		{nil, rmap.Applied},
		{&rmap.WriteError{Outcome: rmap.AppliedNotSeen, Err: rmap.ErrNotSeen}, rmap.AppliedNotSeen},
		{fmt.Errorf("save: %w", &rmap.WriteError{Outcome: rmap.NotApplied, Err: rmap.ErrKind}), rmap.NotApplied},
		{errors.New("of something else"), rmap.Unknown},
	} {
		if got := rmap.OutcomeOf(c.err); got != c.want {
			t.Errorf("OutcomeOf(%v) is %v, want %v", c.err, got, c.want)
		}
	}
}
