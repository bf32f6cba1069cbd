package rmaptest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapWrites checks every write of one key and of the whole map: what it does, its revision, and how it fails.
func mapWrites() []test {
	return []test{
		{"Set", mapSet},
		{"Swap", mapSwap},
		{"SetIfAbsent", mapSetIfAbsent},
		{"CompareAndSet", mapCompareAndSet},
		{"AtRevision", mapAtRevision},
		{"Delete", mapDelete},
		{"Take", mapTake},
		{"Reset", mapReset},
		{"TestAndReset", mapTestAndReset},
		{"Destroy", mapDestroy},
		{"EndedContext", writesEnded},
		{"Counted", writesCounted},
	}
}

// conflict checks that a write failed because of what is there.
func (e *env) conflicts(present bool, at rmap.Revision) func(rmap.Revision, error) {
	return func(r rmap.Revision, err error) {
		e.Helper()
		e.failed(err, rmap.ErrConflict, rmap.NotApplied)
		var c *rmap.ConflictError
		if !errors.As(err, &c) || c.Key == "" {
			e.Fatalf("%v is no ConflictError with a key", err)
		}
		if c.Present != present || c.Current != at {
			e.Fatalf("the conflict is %+v, want present %t at %v", c, present, at)
		}
	}
}

// next checks that a change has the revision after another one.
func (e *env) next(r, after rmap.Revision) rmap.Revision {
	e.Helper()
	if r.Generation != after.Generation || r.Number != after.Number+1 || r.Nonce == after.Nonce || r.Nonce == 0 {
		e.Fatalf("%v came after %v", r, after)
	}
	return r
}

func mapSet(e *env) {
	a, b := pair(e, texts{})
	r1 := e.did(a.Set(e.ctx, "k", "v"))
	r2 := e.next(e.did(b.Set(e.ctx, "k", "v")), r1) // the same value is a change
	r3 := e.next(e.did(a.Set(e.ctx, "k", "w")), r2)
	if err := b.WaitFor(e.ctx, r3); err != nil {
		e.Fatal(err)
	}
	shows(e, b, map[string]string{"k": "w"})
	if got := b.Lag().Revision; got != r3 {
		e.Fatalf("the copy is at %v, want %v", got, r3)
	}
}

func mapSwap(e *env) {
	m := joined(e, e.first, texts{})
	old, existed, r1, err := m.Swap(e.ctx, "k", "v")
	if old != "" || existed || r1.IsZero() || err != nil {
		e.Fatalf("of nothing: %q, %t, %v, %v", old, existed, r1, err)
	}
	old, existed, r2, err := m.Swap(e.ctx, "k", "w")
	if old != "v" || !existed || err != nil {
		e.Fatalf("of v: %q, %t, %v", old, existed, err)
	}
	e.next(r2, r1)
	_, _, _, err = m.Swap(e.ctx, "", "w")
	e.failed(err, rmap.ErrInvalid, rmap.NotApplied)
}

func mapSetIfAbsent(e *env) {
	a, b := pair(e, texts{})
	r := e.did(a.SetIfAbsent(e.ctx, "k", "v"))
	e.conflicts(true, r)(b.SetIfAbsent(e.ctx, "k", "w"))
	e.did(a.Delete(e.ctx, "k"))
	e.did(b.SetIfAbsent(e.ctx, "k", "w"))
	e.synced(a)
	shows(e, a, map[string]string{"k": "w"})
}

func mapCompareAndSet(e *env) {
	a, b := pair(e, texts{})
	e.conflicts(false, rmap.Revision{})(a.CompareAndSet(e.ctx, "k", "", "v"))
	r1 := e.did(a.Set(e.ctx, "k", "v"))
	e.conflicts(true, r1)(b.CompareAndSet(e.ctx, "k", "", "w"))
	e.conflicts(true, r1)(b.CompareAndSet(e.ctx, "k", "V", "w"))
	r2 := e.next(e.did(b.CompareAndSet(e.ctx, "k", "v", "w")), r1)
	e.conflicts(true, r2)(a.CompareAndDelete(e.ctx, "k", "v"))
	r3 := e.next(e.did(a.CompareAndDelete(e.ctx, "k", "w")), r2)
	e.conflicts(false, r3)(a.CompareAndDelete(e.ctx, "k", "w"))
	e.conflicts(false, r3)(a.CompareAndSet(e.ctx, "k", "w", "v"))
	// Values are the same when their encodings are.
	j := joined(e, e.first, rmap.Options[string, shape]{})
	e.did(j.Set(e.ctx, "j", shape{Name: "x", Tags: map[string]any{"a": 1, "b": 2}}))
	e.did(j.CompareAndSet(e.ctx, "j", shape{Name: "x", Tags: map[string]any{"b": 2.0, "a": 1.0}}, shape{Name: "y"}))
	// A number as text is not the number.
	n := joined(e, e.first, numbers{})
	r := e.did(n.Set(e.ctx, "n", 7))
	e.conflicts(true, r)(a.CompareAndSet(e.ctx, "n", "7", "8"))
}

func mapAtRevision(e *env) {
	a, b := pair(e, texts{})
	r1 := e.did(a.SetAtRevision(e.ctx, "k", rmap.Revision{}, "v"))
	e.conflicts(true, r1)(b.SetAtRevision(e.ctx, "k", rmap.Revision{}, "w"))
	r2 := e.did(b.SetAtRevision(e.ctx, "k", r1, "v"))
	e.conflicts(true, r2)(a.SetAtRevision(e.ctx, "k", r1, "w")) // an equal value, but another one
	e.conflicts(true, r2)(a.DeleteAtRevision(e.ctx, "k", r1))
	r3 := e.did(a.Set(e.ctx, "other", "v"))
	e.conflicts(true, r2)(a.SetAtRevision(e.ctx, "k", r3, "w"))
	r4 := e.next(e.did(a.DeleteAtRevision(e.ctx, "k", r2)), r3)
	e.conflicts(false, r4)(a.DeleteAtRevision(e.ctx, "k", r2))
	if _, err := a.DeleteAtRevision(e.ctx, "k", rmap.Revision{}); !errors.Is(err, rmap.ErrInvalid) {
		e.Errorf("DeleteAtRevision of no revision: %v, want ErrInvalid", err)
	}
	e.conflicts(false, r4)(a.SetAtRevision(e.ctx, "k", r2, "w"))
	e.synced(b)
	shows(e, b, map[string]string{"other": "v"})
}

func mapDelete(e *env) {
	a, b := pair(e, texts{})
	if r := e.did(a.Delete(e.ctx, "k")); !r.IsZero() {
		e.Fatalf("of what never was: %v", r)
	}
	r1 := e.did(a.Set(e.ctx, "k", "v"))
	if r := e.did(a.Delete(e.ctx, "x")); r != r1 {
		e.Fatalf("of what is not there: %v, want %v", r, r1)
	}
	r2 := e.next(e.did(b.Delete(e.ctx, "k")), r1)
	if r := e.did(a.Delete(e.ctx, "k")); r != r2 {
		e.Fatalf("again: %v, want %v", r, r2)
	}
	if err := a.WaitFor(e.ctx, r2); err != nil {
		e.Fatal(err)
	}
	shows(e, a, nil)
}

func mapTake(e *env) {
	m := joined(e, e.first, texts{})
	old, existed, r, err := m.Take(e.ctx, "k")
	if old != "" || existed || !r.IsZero() || err != nil {
		e.Fatalf("of nothing: %q, %t, %v, %v", old, existed, r, err)
	}
	r1 := e.did(m.Set(e.ctx, "k", ""))
	old, existed, r, err = m.Take(e.ctx, "k")
	if old != "" || !existed || err != nil {
		e.Fatalf("of an empty value: %q, %t, %v", old, existed, err)
	}
	e.next(r, r1)
}

func mapReset(e *env) {
	a, b := pair(e, texts{})
	if r := e.did(a.Reset(e.ctx)); !r.IsZero() {
		e.Fatalf("of nothing: %v", r)
	}
	e.did(a.Set(e.ctx, "k", "v"))
	r2 := e.did(a.Set(e.ctx, "l", "v"))
	r3 := e.next(e.did(b.Reset(e.ctx)), r2) // the generation and the numbers go on
	if r := e.did(b.Reset(e.ctx)); r != r3 {
		e.Fatalf("again: %v, want %v", r, r3)
	}
	e.synced(a)
	shows(e, a, nil)
	e.next(e.did(a.Set(e.ctx, "k", "w")), r3)
}

func mapTestAndReset(e *env) {
	a, b := pair(e, texts{})
	e.fails(rmap.ErrInvalid)(a.TestAndReset(e.ctx, nil))
	e.did(a.Batch().Set("x", "1").Set("y", "2").Set("z", "3").Write(e.ctx))
	e.fails(rmap.ErrConflict)(b.TestAndReset(e.ctx, map[string]string{"x": "1", "y": "3"}))
	e.fails(rmap.ErrConflict)(b.TestAndReset(e.ctx, map[string]string{"x": "1", "none": ""}))
	e.fails(rmap.ErrInvalid)(b.TestAndReset(e.ctx, map[string]string{"x": "1", "": ""}))
	e.synced(b)
	shows(e, b, map[string]string{"x": "1", "y": "2", "z": "3"})
	r := e.did(b.TestAndReset(e.ctx, map[string]string{"x": "1", "y": "2"}))
	if err := a.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	shows(e, a, nil)
}

func mapDestroy(e *env) {
	a, b := pair(e, texts{})
	if r := e.did(a.Destroy(e.ctx)); !r.IsZero() {
		e.Fatalf("of nothing: %v", r)
	}
	r1 := e.did(a.Set(e.ctx, "k", "v"))
	r2 := e.next(e.did(b.Destroy(e.ctx)), r1)
	if err := a.WaitFor(e.ctx, r2); err != nil {
		e.Fatal(err)
	}
	shows(e, a, nil)
	if r := e.did(a.Destroy(e.ctx)); r != r2 {
		e.Fatalf("again: %v, want %v", r, r2)
	}
	e.did(a.Delete(e.ctx, "k"))
	e.next(e.did(a.Set(e.ctx, "k", "w")), r2)
	e.synced(b)
	shows(e, b, map[string]string{"k": "w"})
}

func writesEnded(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.Set(e.ctx, "k", "v"))
	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	for op, write := range writers(ended, m) {
		r, err := write()
		w := e.failed(err, context.Canceled, rmap.NotApplied)
		if w.Op != op || !r.IsZero() || !strings.HasPrefix(w.Error(), "rmap: "+op) {
			e.Errorf("%s with an ended context: %v, %v", op, r, err)
		}
	}
	e.synced(m)
	shows(e, m, map[string]string{"k": "v"})
}

// writers are all methods that write, by their names. Each would change something.
func writers(ctx context.Context, m *rmap.Map[string, string]) map[string]func() (rmap.Revision, error) {
	return map[string]func() (rmap.Revision, error){
		"Set":           func() (rmap.Revision, error) { return m.Set(ctx, "k", "w") },
		"SetTTL":        func() (rmap.Revision, error) { return m.SetTTL(ctx, "k", "w", long) },
		"Swap":          func() (rmap.Revision, error) { _, _, r, err := m.Swap(ctx, "k", "w"); return r, err },
		"SetIfAbsent":   func() (rmap.Revision, error) { return m.SetIfAbsent(ctx, "new", "w") },
		"CompareAndSet": func() (rmap.Revision, error) { return m.CompareAndSet(ctx, "k", "v", "w") },
		"SetAtRevision": func() (rmap.Revision, error) { return m.SetAtRevision(ctx, "new", rmap.Revision{}, "w") },
		"Delete":        func() (rmap.Revision, error) { return m.Delete(ctx, "k") },
		"Take":          func() (rmap.Revision, error) { _, _, r, err := m.Take(ctx, "k"); return r, err },
		"CompareAndDelete": func() (rmap.Revision, error) {
			return m.CompareAndDelete(ctx, "k", "v")
		},
		"DeleteAtRevision": func() (rmap.Revision, error) {
			r, ok := m.Snapshot().RevisionOf("k")
			if !ok {
				r = rmap.Revision{Generation: 1, Number: 1, Nonce: 1}
			}
			return m.DeleteAtRevision(ctx, "k", r)
		},
		"Reset": func() (rmap.Revision, error) { return m.Reset(ctx) },
		"TestAndReset": func() (rmap.Revision, error) {
			return m.TestAndReset(ctx, map[string]string{"k": "v"})
		},
		"Destroy": func() (rmap.Revision, error) { return m.Destroy(ctx) },
		"Update": func() (rmap.Revision, error) {
			_, r, err := m.Update(ctx, "k", func(string, bool) (string, error) { return "w", nil })
			return r, err
		},
		"Batch": func() (rmap.Revision, error) { return m.Batch().Set("k", "w").Write(ctx) },
	}
}

func writesCounted(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.Set(e.ctx, "k", "v"))
	e.did(m.Delete(e.ctx, "none"))
	e.fails(rmap.ErrConflict)(m.SetIfAbsent(e.ctx, "k", "w"))
	e.fails(rmap.ErrInvalid)(m.Set(e.ctx, "", "w"))
	if s := m.Stats(); s.Writes != 2 || s.Conflicts != 1 || s.Failures != 1 || s.Unknown != 0 {
		e.Fatalf("Stats are %+v", s)
	}
}

// mapUpdates checks the retrying read-modify-write.
func mapUpdates() []test {
	return []test{
		{"Values", updateValues},
		{"Contended", updateContended},
		{"FnFails", updateFnFails},
		{"ContextEnds", updateContextEnds},
		{"StaleCopy", updateStaleCopy},
	}
}

func updateValues(e *env) {
	m := joined(e, e.first, texts{})
	v, r1, err := m.Update(e.ctx, "k", func(old string, ok bool) (string, error) {
		if old != "" || ok {
			e.Errorf("fn got %q, %t of nothing", old, ok)
		}
		return "", nil
	})
	if v != "" || err != nil {
		e.Fatalf("Update: %q, %v", v, err)
	}
	e.synced(m) // otherwise fn is shown an older copy first
	v, r2, err := m.Update(e.ctx, "k", func(old string, ok bool) (string, error) {
		if old != "" || !ok {
			e.Errorf("fn got %q, %t of an empty value", old, ok)
		}
		return "w", nil
	})
	if v != "w" || err != nil {
		e.Fatalf("Update: %q, %v", v, err)
	}
	e.next(r2, r1)
}

// Several maps add to one number: the sum is right, and the runs of fn that did not count are seen.
func updateContended(e *env) {
	const writers, each = 6, 30
	var group sync.WaitGroup
	var calls atomic.Int64
	var all []*rmap.Map[string, int]
	for i := range writers {
		s := []rmap.Store{e.first, e.second}[i%2]
		all = append(all, joined(e, s, numbers{}))
	}
	for _, m := range all {
		group.Go(func() {
			for range each {
				if _, _, err := m.Update(e.ctx, "sum", func(old int, _ bool) (int, error) { calls.Add(1); return old + 1, nil }); err != nil {
					e.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	for _, m := range all {
		e.synced(m)
		shows(e, m, map[string]int{"sum": writers * each})
	}
	if calls.Load() < writers*each {
		e.Fatalf("fn ran %d times", calls.Load())
	}
}

func updateFnFails(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.Set(e.ctx, "k", "v"))
	mine := errors.New("mine")
	v, r, err := m.Update(e.ctx, "k", func(string, bool) (string, error) { return "w", mine })
	if v != "" || !r.IsZero() || err != mine { //nolint:errorlint // it is returned as it is
		e.Fatalf("Update: %q, %v, %v", v, r, err)
	}
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				e.Errorf("the panic of fn became %v", p)
			}
		}()
		_, _, _ = m.Update(e.ctx, "k", func(string, bool) (string, error) { panic("mine") })
	}()
	e.synced(m)
	shows(e, m, map[string]string{"k": "v"})
	e.did(m.Set(e.ctx, "k", "w")) // nothing was left locked
}

// fn always loses, until the context ends.
func updateContextEnds(e *env) {
	a, b := pair(e, texts{})
	e.did(a.Set(e.ctx, "k", "v"))
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	calls := 0
	_, r, err := a.Update(ctx, "k", func(string, bool) (string, error) {
		e.did(b.Set(e.ctx, "k", fmt.Sprint("b", calls)))
		if calls++; calls == 5 {
			cancel()
		}
		return "a", nil
	})
	e.failed(err, context.Canceled, rmap.NotApplied)
	if !r.IsZero() || calls != 5 {
		e.Fatalf("Update: %v after %d calls", r, calls)
	}
	e.synced(a)
	shows(e, a, map[string]string{"k": "b4"})
}

// The copy from which Update begins may be old, gone, or have what is not there any more.
func updateStaleCopy(e *env) {
	l := newLink(e.first)
	m := joined(e, l, texts{})
	other := joined(e, e.second, texts{})
	e.did(m.SetAndWait(e.ctx, "k", "old"))
	l.cut()
	e.did(other.Set(e.ctx, "k", "new"))
	add := func(old string, ok bool) (string, error) { return fmt.Sprintf("%s %t", old, ok), nil }
	if v, _, err := m.Update(e.ctx, "k", add); v != "new true" || err != nil {
		e.Fatalf("Update: %q, %v", v, err)
	}
	e.did(other.Delete(e.ctx, "k"))
	if v, _, err := m.Update(e.ctx, "k", add); v != " false" || err != nil {
		e.Fatalf("Update: %q, %v", v, err)
	}
	e.did(other.Destroy(e.ctx))
	if v, _, err := m.Update(e.ctx, "k", add); v != " false" || err != nil {
		e.Fatalf("Update: %q, %v", v, err)
	}
	l.mend()
	e.synced(m)
	shows(e, m, map[string]string{"k": " false"})
}
