package leaseremote

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// seen collects events.
type seen struct {
	mu   sync.Mutex // guards what follows
	list []lease.EventKind
}

func (s *seen) add(e lease.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, e.Kind)
}

func (s *seen) take() []lease.EventKind {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.list
	s.list = nil
	return got
}

func same(got, want []lease.EventKind) bool {
	if len(got) != len(want) {
		return false
	}
	for i := range got {
		if got[i] != want[i] {
			return false
		}
	}
	return true
}

// A watch survives broken connections and restarts with one gap each, and ends
// when it is stopped.
func TestWatch(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u := open(t, v, lease.SessionOptions{Name: "u"})
		var events seen
		stop, err := v.Watch(t.Context(), lease.Query{Prefix: "k"}, events.add)
		if err != nil {
			t.Fatal(err)
		}
		turn := func() {
			u.ask(lease.Request{ID: "", Keys: []string{"k"}}).ok()
			synctest.Wait()
		}
		turn()
		u.ask(one("other")).ok()
		if got := events.take(); !same(got, []lease.EventKind{lease.EventGranted}) {
			t.Fatalf("events %v", got)
		}
		b.cut()
		time.Sleep(time.Second)
		if got := events.take(); !same(got, []lease.EventKind{lease.EventGap}) {
			t.Fatalf("events %v, want one gap", got)
		}
		b.freeze()
		time.Sleep(20 * time.Second)
		if got := events.take(); !same(got, []lease.EventKind{lease.EventGap}) {
			t.Fatalf("events %v after a freeze, want one gap", got)
		}
		b.crash()
		time.Sleep(5 * time.Second)
		b.start()
		time.Sleep(2 * time.Second)
		turn()
		if got := events.take(); !same(got, []lease.EventKind{lease.EventGap, lease.EventGranted}) {
			t.Fatalf("events %v, want a gap and a grant", got)
		}
		stop()
		stop()
		u.do(lease.Command{Verb: lease.Release, ID: "none"}).fails(lease.ErrNotHeld)
		if st, err := v.Stats(t.Context()); err != nil || st.Watches != 0 || st.Service != "remote" || st.Durability != "memory" {
			t.Fatalf("stats %+v, %v", st, err)
		}
	})
}

// A force whose answer is lost is unknown; lists are asked again.
func TestSideCallsDuringCut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		u := open(t, v, lease.SessionOptions{})
		l := u.ask(one("k")).ok()
		b.once(cutThere, true, `"fence"`)
		if _, err := v.Force(t.Context(), lease.ForceRequest{Key: "k"}); !errors.Is(err, lease.ErrUnknown) {
			t.Fatalf("force: %v, want unknown", err)
		}
		synctest.Wait()
		if n := u.notices(); len(n) != 1 || n[0].Code != lease.ErrForced || n[0].Token != l.Token() {
			t.Fatalf("notices %+v, want the force", n)
		}
		if _, err := v.Force(t.Context(), lease.ForceRequest{Key: "k"}); !errors.Is(err, lease.ErrNotHeld) {
			t.Fatalf("force: %v, want not held", err)
		}
		b.once(cutThere, true, `"keys"`)
		if got, err := v.List(t.Context(), lease.Query{}); err != nil || len(got.Keys) != 0 {
			t.Fatalf("list: %+v, %v", got, err)
		}
	})
}

// Calls on a broker that is away end with their context, or by themselves.
func TestSideCallsWhileAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		if _, err := v.List(t.Context(), lease.Query{}); err != nil {
			t.Fatal(err)
		}
		b.refuse(errors.New("cut off"))
		b.cut()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := v.Stats(ctx); !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("stats: %v", err)
		}
		if d := time.Since(start); d != time.Second {
			t.Fatalf("it took %v, want the context's second", d)
		}
		if _, err := v.Watch(t.Context(), lease.Query{}, func(lease.Event) {}); !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("watch: %v", err)
		}
		if _, err := v.Force(t.Context(), lease.ForceRequest{Key: "k"}); !errors.Is(err, lease.ErrUnavailable) {
			t.Fatalf("force: %v, want unavailable: it was never sent", err)
		}
		b.refuse(nil)
		if _, err := v.List(t.Context(), lease.Query{}); err != nil {
			t.Fatal(err)
		}
		b.freeze()
		if _, err := v.Force(t.Context(), lease.ForceRequest{Key: "k"}); !errors.Is(err, lease.ErrUnknown) {
			t.Fatalf("force into a frozen link: %v, want unknown", err)
		}
		if _, err := v.List(t.Context(), lease.Query{}); err != nil {
			t.Fatalf("after the frozen link was replaced: %v", err)
		}
	})
}

func TestSideRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := newBroker(t, leaselocal.Options{})
		v := b.connect()
		long := string(make([]byte, lease.MaxKeyLength+1))
		for _, q := range []lease.Query{
			{Key: "a", Prefix: "b"}, {Prefix: long}, {After: long}, {Limit: -1}, {Limit: lease.MaxListed + 1}, {Key: "\xff"},
			{Prefix: "\xff"}, {After: "\xff"},
		} {
			if _, err := v.List(t.Context(), q); !errors.Is(err, lease.ErrRefused) {
				t.Errorf("list %.40q: %v, want a refusal", q.Key+q.Prefix+q.After, err)
			}
		}
		for _, f := range []lease.ForceRequest{
			{}, {Key: long}, {Key: "k", Token: lease.MaxToken}, {Key: "k", By: long}, {Key: "k", Reason: long + long}, {Key: "k", By: "\xff"},
		} {
			if _, err := v.Force(t.Context(), f); !errors.Is(err, lease.ErrRefused) {
				t.Errorf("force %.40q: %v, want a refusal", f.Key+f.By+f.Reason, err)
			}
		}
		if _, err := v.Stats(t.Context()); err != nil {
			t.Fatalf("the connection suffered: %v", err)
		}
	})
}
