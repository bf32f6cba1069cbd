package rmaptest

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapReads checks the ways to read a copy.
func mapReads() []test {
	return []test{
		{"NeverWritten", neverWritten},
		{"SnapshotStays", snapshotStays},
		{"SnapshotIsOneRevision", oneRevision},
		{"ZeroSnapshot", zeroSnapshot},
		{"AllSeesNoChange", allSeesNoChange},
		{"RevisionOf", revisionOf},
		{"ReadsDoNotAllocate", noAllocation},
	}
}

func neverWritten(e *env) {
	m := joined(e, e.first, texts{})
	e.synced(m)
	shows(e, m, nil)
	if v, ok := m.Get("k"); ok || v != "" {
		e.Fatalf("Get is %q, %t", v, ok)
	}
	if _, err := m.Lookup("k"); !errors.Is(err, rmap.ErrAbsent) {
		e.Fatalf("Lookup: %v", err)
	}
	if r := m.Snapshot().Revision(); !r.IsZero() || r.String() != "none" {
		e.Fatalf("the revision is %v", r)
	}
	if lag := m.Lag(); lag.State != rmap.Live || !lag.Revision.IsZero() || lag.Err != nil {
		e.Fatalf("Lag is %+v", lag)
	}
	if m.Name() != e.name {
		e.Fatalf("Name is %q", m.Name())
	}
	if s := m.Stats(); s.Reloaded(rmap.ReloadGap)+s.Reloaded(rmap.ReloadGeneration)+s.Reloaded(rmap.ReloadRollback) != 0 {
		e.Fatalf("the copy was read anew: %+v", s)
	}
}

func snapshotStays(e *env) {
	m := joined(e, e.first, numbers{})
	want := make(map[string]int)
	var held []rmap.Snapshot[string, int]
	var copies []map[string]int
	for i := range 300 {
		key := fmt.Sprint("key ", i%97)
		switch {
		case i%7 == 3:
			e.did(m.Delete(e.ctx, key))
			delete(want, key)
		case i%101 == 100:
			e.did(m.Reset(e.ctx))
			clear(want)
		default:
			e.did(m.Set(e.ctx, key, i))
			want[key] = i
		}
		e.synced(m)
		held, copies = append(held, m.Snapshot()), append(copies, maps.Clone(want))
	}
	e.did(m.Destroy(e.ctx))
	e.synced(m)
	shows(e, m, nil)
	for i, s := range held {
		if got := maps.Collect(s.All()); !maps.Equal(got, copies[i]) || s.Len() != len(copies[i]) {
			e.Fatalf("snapshot %d became %s, was %s", i, text(got), text(copies[i]))
		}
		for key, v := range copies[i] {
			if got, ok := s.Get(key); got != v || !ok {
				e.Fatalf("snapshot %d has %d under %q, had %d", i, got, key, v)
			}
		}
	}
}

// A writer moves a sum around in batches, and no snapshot ever shows another sum, nor a revision that goes back.
func oneRevision(e *env) {
	a, b := pair(e, numbers{})
	e.did(a.Batch().Set("x", 100).Set("y", 0).Write(e.ctx))
	e.synced(b)
	done := make(chan error, 1)
	go func() {
		for i := range 200 {
			if _, err := a.Batch().Set("x", 100-i).Set("y", i).Write(e.ctx); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	var last rmap.Revision
	for going := true; going; {
		select {
		case err := <-done:
			if err != nil {
				e.Fatal(err)
			}
			going = false
		default:
		}
		s := b.Snapshot()
		x, _ := s.Get("x")
		y, _ := s.Get("y")
		if x+y != 100 {
			e.Fatalf("at %v the sum is %d", s.Revision(), x+y)
		}
		if s.Revision().Number < last.Number {
			e.Fatalf("the copy went from %v back to %v", last, s.Revision())
		}
		last = s.Revision()
	}
}

func zeroSnapshot(e *env) {
	var s rmap.Snapshot[string, int]
	_, ok := s.Get("k")
	_, has := s.RevisionOf("k")
	for range s.All() {
		e.Error("it yields")
	}
	for range s.Broken() {
		e.Error("it has something broken")
	}
	if ok || has || s.Len() != 0 || !s.Revision().IsZero() {
		e.Fatal("the zero Snapshot is not empty")
	}
}

func allSeesNoChange(e *env) {
	m := joined(e, e.first, numbers{})
	for i := range 50 {
		e.did(m.Set(e.ctx, fmt.Sprint(i), i))
	}
	e.synced(m)
	n := 0
	for key, v := range m.All() {
		if n == 0 {
			e.did(m.Reset(e.ctx))
			e.did(m.Set(e.ctx, "new", 1))
			e.synced(m)
		}
		if key != fmt.Sprint(v) {
			e.Fatalf("it yields %q with %d", key, v)
		}
		n++
	}
	if n != 50 {
		e.Fatalf("it yielded %d, want 50", n)
	}
	for range m.All() {
		break // ends early, and harms nothing
	}
	shows(e, m, map[string]int{"new": 1})
}

func revisionOf(e *env) {
	a, b := pair(e, texts{})
	r1 := e.did(a.Set(e.ctx, "k", "v"))
	r2 := e.did(a.Set(e.ctx, "other", "v"))
	e.synced(b)
	s := b.Snapshot()
	got1, ok1 := s.RevisionOf("k")
	got2, ok2 := s.RevisionOf("other")
	if got1 != r1 || got2 != r2 || !ok1 || !ok2 || s.Revision() != r2 {
		e.Fatalf("written by %v and %v, told %v and %v at %v", r1, r2, got1, got2, s.Revision())
	}
	if _, ok := s.RevisionOf("nothing"); ok {
		e.Fatal("what is not there has a revision")
	}
	if r1.Generation != r2.Generation || r1.Number+1 != r2.Number || r1.Nonce == r2.Nonce || r1.Number != 1 {
		e.Fatalf("the first two revisions are %v and %v", r1, r2)
	}
	for _, r := range []rmap.Revision{r1, r2, {}} {
		text, _ := r.MarshalText()
		var back rmap.Revision
		if err := back.UnmarshalText(text); err != nil || back != r {
			e.Fatalf("%v came back from text as %v: %v", r, back, err)
		}
	}
}

func noAllocation(e *env) {
	m := joined(e, e.first, texts{})
	for i := range 1000 {
		e.did(m.Set(e.ctx, fmt.Sprint(i), "v"))
	}
	e.synced(m)
	for what, fn := range map[string]func(){
		"Get":      func() { m.Get("500") },
		"a miss":   func() { m.Get("none") },
		"Snapshot": func() { m.Snapshot().Get("1") },
		"Len":      func() { m.Len() },
	} {
		if got := allocations(fn); got > 0 {
			e.Errorf("%s allocates %v times", what, got)
		}
	}
}

// allocations is how often fn allocates, whole times a run: what else goes on in the process does not count.
func allocations(fn func()) float64 { return testing.AllocsPerRun(1000, fn) }
