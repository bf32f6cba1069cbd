package rmaptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

type listOp = func(context.Context, *rmap.Map[string, []string], string, ...string) ([]string, rmap.Revision, error)

// mapWaits checks Sync, WaitFor and SetAndWait while the store is there.
func mapWaits() []test {
	return []test{
		{"SyncSeesAll", syncSeesAll},
		{"SyncTogether", syncTogether},
		{"WaitFor", waitFor},
		{"WaitForForged", waitForForged},
		{"SetAndWait", setAndWait},
		{"EndedContext", waitsEnded},
	}
}

func syncSeesAll(e *env) {
	a, b := pair(e, numbers{})
	for i := range 100 {
		e.did(a.Set(e.ctx, "k", i))
		e.synced(b)
		if v, _ := b.Get("k"); v != i {
			e.Fatalf("after Sync it is %d, want %d", v, i)
		}
	}
	s := b.Stats()
	if n := s.Reloaded(rmap.ReloadGap) + s.Reloaded(rmap.ReloadRollback); n != 0 {
		e.Fatalf("the copy was read anew %d times, though nothing was lost", n)
	}
}

func syncTogether(e *env) {
	a, b := pair(e, numbers{})
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			key := fmt.Sprint(i)
			for j := range 10 {
				if _, err := a.Set(e.ctx, key, j); err != nil {
					e.Error(err)
				}
				if err := b.Sync(e.ctx); err != nil {
					e.Error(err)
				}
				if v, ok := b.Get(key); v != j || !ok {
					e.Errorf("after Sync %s is %d, %t, want %d", key, v, ok, j)
				}
			}
		})
	}
	group.Wait()
}

func waitFor(e *env) {
	a, b := pair(e, numbers{})
	if err := a.WaitFor(e.ctx, rmap.Revision{}); err != nil {
		e.Fatalf("for none, on nothing: %v", err)
	}
	var all []rmap.Revision
	for i := range 50 {
		r := e.did(a.Set(e.ctx, "k", i))
		all = append(all, r)
		if err := b.WaitFor(e.ctx, r); err != nil {
			e.Fatal(err)
		}
		if v, _ := b.Get("k"); v != i {
			e.Fatalf("it is %d, want %d", v, i)
		}
	}
	heads := b.Stats().Heads
	for _, r := range append(all, rmap.Revision{}) {
		if err := b.WaitFor(e.ctx, r); err != nil {
			e.Fatalf("for one of the past: %v", err)
		}
	}
	if got := b.Stats().Heads; got > heads+2 { // a heartbeat may fall between
		e.Fatalf("to wait for what is there asked the store %d times", got-heads)
	}
	// The history goes on over a Reset and a Destroy.
	e.did(a.Reset(e.ctx))
	e.did(a.Set(e.ctx, "k", 1))
	e.did(a.Destroy(e.ctx))
	for _, r := range all {
		if err := b.WaitFor(e.ctx, r); err != nil {
			e.Fatalf("after Destroy: %v", err)
		}
	}
	// One that joins later knows no nonces of before, and takes what is older to be part of the history.
	e.did(a.Set(e.ctx, "k", 2))
	late := joined(e, e.second, numbers{})
	if err := late.WaitFor(e.ctx, all[0]); err != nil {
		e.Fatal(err)
	}
}

func waitForForged(e *env) {
	m := joined(e, e.first, numbers{})
	e.did(m.Set(e.ctx, "k", 1))
	r := e.did(m.Set(e.ctx, "k", 2))
	e.synced(m)
	for what, forged := range map[string]rmap.Revision{
		"the future":         {Generation: r.Generation, Number: r.Number + 1, Nonce: r.Nonce},
		"the far future":     {Generation: r.Generation, Number: 1<<64 - 1, Nonce: 1},
		"another generation": {Generation: r.Generation + 1, Number: 1, Nonce: r.Nonce},
		"another nonce":      {Generation: r.Generation, Number: r.Number, Nonce: r.Nonce + 1},
		"another past":       {Generation: r.Generation, Number: r.Number - 1, Nonce: r.Nonce},
		"no generation":      {Number: r.Number, Nonce: r.Nonce},
	} {
		err := m.WaitFor(e.ctx, forged)
		if !errors.Is(err, rmap.ErrGone) || !strings.Contains(err.Error(), r.String()) || !strings.Contains(err.Error(), forged.String()) {
			e.Errorf("for a revision of %s: %v", what, err)
		}
	}
	shows(e, m, map[string]int{"k": 2})
	empty, err := rmap.Join(e.ctx, e.first, "never", numbers{})
	if err != nil {
		e.Fatal(err)
	}
	defer empty.Close()
	if err := empty.WaitFor(e.ctx, r); !errors.Is(err, rmap.ErrGone) {
		e.Errorf("on a map without anything: %v", err)
	}
}

func setAndWait(e *env) {
	a, b := pair(e, numbers{})
	var group sync.WaitGroup
	for i, m := range []*rmap.Map[string, int]{a, b, a, b} {
		group.Go(func() {
			key := fmt.Sprint(i)
			for j := range 50 {
				r, err := m.SetAndWait(e.ctx, key, j)
				if err != nil || r.IsZero() {
					e.Errorf("%v, %v", r, err)
					return
				}
				if v, ok := m.Get(key); v != j || !ok {
					e.Errorf("it shows %d, %t, want %d", v, ok, j)
				}
			}
		})
	}
	group.Wait()
	_, err := a.SetAndWait(e.ctx, "", 1)
	e.failed(err, rmap.ErrInvalid, rmap.NotApplied)
}

func waitsEnded(e *env) {
	m := joined(e, e.first, numbers{})
	e.did(m.SetAndWait(e.ctx, "k", 1))
	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	if err := m.Sync(ended); !errors.Is(err, context.Canceled) {
		e.Errorf("Sync: %v", err)
	}
	if err := m.WaitFor(ended, m.Lag().Revision); !errors.Is(err, context.Canceled) {
		e.Errorf("WaitFor: %v", err)
	}
	_, err := m.SetAndWait(ended, "k", 2)
	e.failed(err, context.Canceled, rmap.NotApplied)
	e.synced(m)
	shows(e, m, map[string]int{"k": 1})
}

// mapAway checks what a copy promises while nothing comes from the store.
func mapAway() []test {
	return []test{
		{"Sync", awaySync},
		{"NotSeen", awayNotSeen},
		{"MaxStaleServes", staleServes},
		{"MaxStaleLimit", staleLimit},
		{"MaxStaleLiveOnly", staleLiveOnly},
		{"CatchesUp", awayCatchesUp},
		{"Join", awayJoin},
		{"Close", awayClose},
	}
}

// soon is a context that ends while a test waits for it.
func (e *env) soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(e.ctx, 100*time.Millisecond)
}

func awaySync(e *env) {
	l := newLink(e.first)
	m := joined(e, l, texts{})
	other := joined(e, e.second, texts{})
	e.did(m.SetAndWait(e.ctx, "k", "old"))
	l.cut()
	if lag := m.Lag(); lag.State != rmap.CutOff || !errors.Is(lag.Err, rmap.ErrUnavailable) || lag.Since.IsZero() {
		e.Fatalf("Lag is %+v", lag)
	}
	e.did(other.Set(e.ctx, "k", "new"))
	ctx, cancel := e.soon()
	defer cancel()
	if err := m.Sync(ctx); !errors.Is(err, rmap.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("Sync: %v", err)
	}
	shows(e, m, map[string]string{"k": "old"})
	if lag := m.Lag(); lag.State != rmap.CutOff || lag.Age < 100*time.Millisecond {
		e.Fatalf("Lag is %+v", lag)
	}
	// Those who wait when it comes back share what is asked.
	heads := m.Stats().Heads
	results := make(chan error)
	for range 20 {
		go func() { results <- m.Sync(e.ctx) }()
	}
	l.mend()
	for range 20 {
		if err := <-results; err != nil {
			e.Errorf("Sync: %v", err)
		}
	}
	shows(e, m, map[string]string{"k": "new"})
	if got := m.Stats().Heads - heads; got > 60 {
		e.Errorf("the store was asked %d times", got)
	}
	if lag := m.Lag(); lag.State != rmap.Live || lag.Err != nil {
		e.Fatalf("Lag is %+v", lag)
	}
}

func awayNotSeen(e *env) {
	l := newLink(e.first)
	m := joined(e, l, texts{})
	e.did(m.SetAndWait(e.ctx, "k", "old"))
	l.cut()
	ctx, cancel := e.soon()
	defer cancel()
	r, err := m.SetAndWait(ctx, "k", "new")
	if w := e.failed(err, rmap.ErrNotSeen, rmap.AppliedNotSeen); w.Revision != r || r.IsZero() || w.Op != "SetAndWait" || w.Key != `"k"` {
		e.Fatalf("%v, %+v", r, w)
	}
	if !errors.Is(err, rmap.ErrUnavailable) || errors.Is(err, rmap.ErrGone) {
		e.Fatalf("the reason is %v", err)
	}
	shows(e, m, map[string]string{"k": "old"})
	l.mend()
	if err := m.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	shows(e, m, map[string]string{"k": "new"})
}

// isStale checks that a copy refuses what must not be old, and serves the rest.
func isStale(e *env, m *rmap.Map[string, string], limit time.Duration) {
	e.Helper()
	_, err := m.Lookup("k")
	for _, err := range []error{err, m.Fresh()} {
		var s *rmap.StaleError
		if !errors.Is(err, rmap.ErrStale) || !errors.As(err, &s) || s.Map != e.name || s.State != m.Lag().State || s.Limit != limit ||
			s.Age < 0 || s.Age > m.Lag().Age || limit > 0 && s.Age <= limit {
			e.Fatalf("the copy of %+v is read with %v, %+v", m.Lag(), err, s)
		}
	}
	if v, ok := m.Get("k"); v != "v" || !ok || m.Len() != 1 {
		e.Fatalf("Get is %q, %t", v, ok)
	}
}

func staleServes(e *env) {
	l := newLink(e.first)
	m := joined(e, l, texts{})
	e.did(m.SetAndWait(e.ctx, "k", "v"))
	l.cut()
	e.until("it has some age", func() bool { return m.Lag().Age > 50*time.Millisecond })
	shows(e, m, map[string]string{"k": "v"})
	if err := m.Fresh(); err != nil {
		e.Fatal(err)
	}
}

func staleLimit(e *env) {
	const limit = 200 * time.Millisecond
	l := newLink(e.first)
	m := joined(e, l, texts{MaxStale: limit, Heartbeat: 20 * time.Millisecond})
	e.did(m.SetAndWait(e.ctx, "k", "v"))
	e.until("it is fresh", func() bool { return m.Fresh() == nil })
	l.cut()
	for {
		err := m.Fresh()
		age := m.Lag().Age // later, so not less than what Fresh judged
		if err != nil && age <= limit {
			e.Fatalf("refused at an age of at most %v: %v", age, err)
		}
		if err != nil {
			break
		}
		if age > 20*time.Second {
			e.Fatalf("served at an age of %v", age)
		}
		e.pass(time.Millisecond)
	}
	isStale(e, m, limit)
	l.mend()
	e.until("it is fresh", func() bool { return m.Fresh() == nil })
}

func staleLiveOnly(e *env) {
	l := newLink(e.first)
	m := joined(e, l, texts{MaxStale: rmap.LiveOnly})
	e.did(m.SetAndWait(e.ctx, "k", "v"))
	e.until("it is live", func() bool { return m.Fresh() == nil }) // it may see its write while it still compares
	shows(e, m, map[string]string{"k": "v"})
	l.cut()
	isStale(e, m, rmap.LiveOnly)
	l.mend()
	e.until("it is live", func() bool { return m.Fresh() == nil })
	shows(e, m, map[string]string{"k": "v"})
	m.Close()
	isStale(e, m, rmap.LiveOnly)
}

// A cut costs the changes that were missed, where the store remembers them, and not the map.
func awayCatchesUp(e *env) {
	l := newLink(e.first)
	m := joined(e, l, texts{})
	other := joined(e, e.second, texts{})
	e.did(m.SetAndWait(e.ctx, "k", "old"))
	tp := record(e, m, rmap.WatchOptions{})
	l.cut()
	e.did(other.Set(e.ctx, "k", "1"))
	e.did(other.Set(e.ctx, "k", "2"))
	e.did(other.Delete(e.ctx, "k"))
	l.mend()
	e.synced(m)
	shows(e, m, nil)
	s := m.Stats()
	if e.subject.Remembers == 0 {
		tp.tells(e, "reload")
		return
	}
	tp.tells(e, "set k: old to 1", "set k: 1 to 2", "delete k: 2 to none")
	if s.Reloaded(rmap.ReloadGap) != 0 || s.CaughtUp == 0 || s.Replayed < 3 || s.Losses != 1 {
		e.Fatalf("Stats are %+v", s)
	}
	// A cut in which nothing happened costs nothing.
	l.cut()
	l.mend()
	e.synced(m)
	if after := m.Stats(); after.Reloads != s.Reloads || after.Replayed != s.Replayed || after.Losses != 2 {
		e.Fatalf("Stats went from %+v to %+v", s, after)
	}
	tp.tells(e, "set k: old to 1", "set k: 1 to 2", "delete k: 2 to none")
}

func awayJoin(e *env) {
	l := newLink(e.first)
	l.cut()
	ctx, cancel := e.soon()
	defer cancel()
	if _, err := rmap.Join(ctx, l, e.name, texts{}); !errors.Is(err, rmap.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("join: %v", err)
	}
	if _, err := rmap.Join(e.ctx, l, e.name, texts{Timeout: 50 * time.Millisecond}); !errors.Is(err, rmap.ErrUnavailable) {
		e.Fatalf("join without a deadline: %v", err)
	}
	done := make(chan error)
	go func() {
		m, err := rmap.Join(e.ctx, l, e.name, texts{})
		if err == nil {
			m.Close()
		}
		done <- err
	}()
	l.mend()
	if err := <-done; err != nil {
		e.Fatalf("join while the link came back: %v", err)
	}
}

// Whoever waits when the map is closed gets an answer.
func awayClose(e *env) {
	l := newLink(e.first)
	m := joined(e, l, texts{})
	r := e.did(m.SetAndWait(e.ctx, "k", "v"))
	l.cut()
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			if err := m.Sync(e.ctx); !errors.Is(err, rmap.ErrClosed) {
				e.Errorf("Sync: %v", err)
			}
		})
		group.Go(func() {
			future := r
			future.Number++
			if err := m.WaitFor(e.ctx, future); !errors.Is(err, rmap.ErrClosed) {
				e.Errorf("WaitFor: %v", err)
			}
		})
	}
	e.pass(20 * time.Millisecond) // so that most of them wait; those that come later get the same answer
	m.Close()
	group.Wait()
	shows(e, m, map[string]string{"k": "v"})
	if lag := m.Lag(); lag.State != rmap.Closed || lag.Err != nil {
		e.Fatalf("Lag is %+v", lag)
	}
}
