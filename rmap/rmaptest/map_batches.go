package rmaptest

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapBatches checks that a batch is one step and one change.
func mapBatches() []test {
	return []test{
		{"OneChange", batchOneChange},
		{"Conditions", batchConditions},
		{"Empty", batchEmpty},
		{"Once", batchOnce},
		{"FirstError", batchFirstError},
		{"InOrder", batchInOrder},
	}
}

func batchOneChange(e *env) {
	a, b := pair(e, texts{})
	r1 := e.did(a.Batch().Set("x", "1").Set("y", "2").SetTTL("z", "3", long).Write(e.ctx))
	r2 := e.next(e.did(a.Batch().Delete("x").Set("y", "3").SetKeepTTL("z", "4").Delete("none").Write(e.ctx)), r1)
	if err := b.WaitFor(e.ctx, r2); err != nil {
		e.Fatal(err)
	}
	shows(e, b, map[string]string{"y": "3", "z": "4"})
	s := b.Snapshot()
	y, _ := s.RevisionOf("y")
	z, _ := s.RevisionOf("z")
	if y != r2 || z != r2 {
		e.Fatalf("written by %v and %v, want %v", y, z, r2)
	}
}

func batchConditions(e *env) {
	m := joined(e, e.first, texts{})
	rx := e.did(m.Set(e.ctx, "x", "1"))
	good := func() *rmap.Batch[string, string] {
		return m.Batch().IfPresent("x").IfAbsent("none").IfValue("x", "1").IfRevision("x", rx).IfRevision("none", rmap.Revision{})
	}
	e.did(good().Set("y", "1").Write(e.ctx))
	for name, b := range map[string]*rmap.Batch[string, string]{
		"none":  good().IfPresent("none"),
		"x":     good().IfAbsent("x"),
		"y":     good().IfValue("y", "2"),
		"other": good().IfRevision("other", rx),
	} {
		_, err := b.Set("x", "lost").Write(e.ctx)
		e.failed(err, rmap.ErrConflict, rmap.NotApplied)
		var c *rmap.ConflictError
		if !errors.As(err, &c) || c.Key != fmt.Sprintf("%q", name) {
			e.Errorf("the conflict of %q is %v", name, err)
		}
	}
	e.did(good().IfValue("y", "1").Reset().Set("x", "2").Write(e.ctx))
	e.synced(m)
	shows(e, m, map[string]string{"x": "2"})
}

func batchEmpty(e *env) {
	m := joined(e, e.first, texts{})
	if r := e.did(m.Batch().Write(e.ctx)); !r.IsZero() {
		e.Fatalf("on nothing: %v", r)
	}
	r1 := e.did(m.Set(e.ctx, "k", "v"))
	if r := e.did(m.Batch().Write(e.ctx)); r != r1 {
		e.Fatalf("it is %v, want %v", r, r1)
	}
	if r := e.did(m.Batch().IfPresent("k").Write(e.ctx)); r != r1 {
		e.Fatalf("with a condition it is %v, want %v", r, r1)
	}
	e.conflicts(true, r1)(m.Batch().IfAbsent("k").Write(e.ctx))
}

func batchOnce(e *env) {
	m := joined(e, e.first, texts{})
	b := m.Batch().Set("k", "v")
	r := e.did(b.Write(e.ctx))
	e.fails(rmap.ErrInvalid)(b.Write(e.ctx))
	e.fails(rmap.ErrInvalid)(b.Set("l", "v").Write(e.ctx))
	if err := m.WaitFor(e.ctx, r); err != nil || m.Len() != 1 || m.Lag().Revision != r {
		e.Fatalf("%v, %d entries at %v", err, m.Len(), m.Lag().Revision)
	}
}

func batchFirstError(e *env) {
	m := joined(e, e.first, texts{})
	w := e.fails(rmap.ErrInvalid)(m.Batch().Set("fine", "v").Set("", "v").SetTTL("k", "v", -1).Write(e.ctx))
	if !strings.Contains(w.Error(), "empty") {
		e.Fatalf("the error is not the first: %v", w)
	}
	e.fails(rmap.ErrInvalid)(m.Batch().IfAbsent("").Set("k", "v").Write(e.ctx))
	e.synced(m)
	shows(e, m, nil)
}

func batchInOrder(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.Batch().Set("k", "1").Delete("k").Set("k", "2").Set("gone", "1").Reset().Set("k", "3").Set("l", "1").Delete("l").Write(e.ctx))
	e.synced(m)
	shows(e, m, map[string]string{"k": "3"})
}

// mapLimits checks that what exceeds a limit is refused by name, and that what does not is taken.
func mapLimits() []test {
	return []test{
		{"Keys", limitKeys},
		{"Values", limitValues},
		{"Batch", limitBatch},
		{"Entries", limitEntries},
		{"TTL", limitTTL},
		{"Lists", limitLists},
	}
}

func limitKeys(e *env) {
	m := joined(e, e.first, texts{})
	e.fails(rmap.ErrInvalid)(m.Set(e.ctx, "", "v"))
	key := strings.Repeat("k", rmap.MaxKey)
	e.did(m.SetAndWait(e.ctx, key, "v"))
	shows(e, m, map[string]string{key: "v"})
	w := e.fails(rmap.ErrTooLarge)(m.Set(e.ctx, key+"k", "v"))
	if len(w.Error()) > 500 || !strings.Contains(w.Error(), fmt.Sprint(rmap.MaxKey)) {
		e.Fatalf("the error is %s", text(w.Error()))
	}
	_, err := m.Lookup("")
	if !errors.Is(err, rmap.ErrAbsent) {
		e.Fatalf("Lookup of an empty key: %v", err)
	}
	_, err = m.Lookup(key + "k")
	if !errors.Is(err, rmap.ErrAbsent) || len(err.Error()) > 500 {
		e.Fatalf("Lookup of a key that is too long: %.500v", err)
	}
}

func limitValues(e *env) {
	m := joined(e, e.first, texts{})
	v := strings.Repeat("v", rmap.MaxValue)
	e.did(m.SetAndWait(e.ctx, "k", v))
	shows(e, m, map[string]string{"k": v})
	w := e.fails(rmap.ErrTooLarge)(m.Set(e.ctx, "k", v+"v"))
	if len(w.Error()) > 500 || !strings.Contains(w.Error(), fmt.Sprint(rmap.MaxValue)) {
		e.Fatalf("the error is %s", text(w.Error()))
	}
	e.fails(rmap.ErrTooLarge)(m.CompareAndSet(e.ctx, "k", v+"v", "w"))
}

func limitBatch(e *env) {
	m := joined(e, e.first, texts{})
	b := m.Batch().IfAbsent("a").IfAbsent("b")
	for i := range rmap.MaxOps - 2 {
		b.Set(fmt.Sprint(i), "v")
	}
	e.did(b.Write(e.ctx))
	e.synced(m)
	if m.Len() != rmap.MaxOps-2 {
		e.Fatalf("there are %d entries", m.Len())
	}
	b = m.Batch().IfAbsent("a")
	for range rmap.MaxOps {
		b.Set("k", "v")
	}
	e.fails(rmap.ErrTooLarge)(b.Write(e.ctx))
	v := strings.Repeat("v", rmap.MaxValue)
	b = m.Batch().Reset()
	for i := range 4 {
		b.Set(fmt.Sprint(i), v[:rmap.MaxValue-1])
	}
	e.did(b.Write(e.ctx))
	b = m.Batch()
	for i := range 4 {
		b.Set(fmt.Sprint(i), v)
	}
	e.fails(rmap.ErrTooLarge)(b.Write(e.ctx))
	e.synced(m)
	if m.Len() != 4 {
		e.Fatalf("there are %d entries", m.Len())
	}
}

func limitEntries(e *env) {
	m := joined(e, e.first, texts{MaxEntries: 3})
	free := joined(e, e.first, texts{})
	e.did(m.Batch().Set("a", "v").Set("b", "v").Set("c", "v").Write(e.ctx))
	e.did(m.Set(e.ctx, "a", "w"))
	e.fails(rmap.ErrTooLarge)(m.Set(e.ctx, "d", "v"))
	e.fails(rmap.ErrTooLarge)(m.SetIfAbsent(e.ctx, "d", "v"))
	e.did(m.Batch().Delete("a").Set("d", "v").Write(e.ctx))
	e.did(free.Set(e.ctx, "e", "v"))
	e.did(m.Set(e.ctx, "b", "w")) // over the limit by another's doing, it can be changed and made smaller
	e.did(m.Delete(e.ctx, "b"))
	e.synced(m)
	shows(e, m, map[string]string{"c": "v", "d": "v", "e": "v"})
}

func limitTTL(e *env) {
	m := joined(e, e.first, texts{})
	for _, bad := range []time.Duration{0, -1, -time.Second, time.Microsecond, rmap.MinTTL - 1, rmap.MinTTL + 1, time.Second + time.Nanosecond,
		1500 * time.Microsecond, rmap.MaxTTL + time.Millisecond, math.MaxInt64, math.MinInt64} {
		w := e.fails(rmap.ErrInvalid)(m.SetTTL(e.ctx, "k", "v", bad))
		if !strings.Contains(w.Error(), "ttl") {
			e.Errorf("the error for %v is %v", bad, w)
		}
		if bad == 0 {
			continue
		}
		if _, err := rmap.Join(e.ctx, e.first, e.name, texts{TTL: bad}); !errors.Is(err, rmap.ErrInvalid) {
			e.Errorf("join with the ttl %v: %v", bad, err)
		}
	}
	e.did(m.SetTTL(e.ctx, "k", "v", rmap.MaxTTL))
	r := e.did(m.SetTTL(e.ctx, "l", "v", rmap.MinTTL))
	if err := m.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	e.until("the shortest ttl has passed", func() bool { _, ok := m.Get("l"); return !ok })
	e.synced(m)
	shows(e, m, map[string]string{"k": "v"})
}

func limitLists(e *env) {
	m := joined(e, e.first, listings{})
	half := strings.Repeat("x", rmap.MaxValue/2)
	if _, _, err := rmap.Append(e.ctx, m, "k", half); err != nil {
		e.Fatal(err)
	}
	_, _, err := rmap.Append(e.ctx, m, "k", half)
	e.failed(err, rmap.ErrTooLarge, rmap.NotApplied)
	e.fails(rmap.ErrTooLarge)(m.Set(e.ctx, "k", []string{half, half}))
	e.synced(m)
	shows(e, m, map[string][]string{"k": {half}})
}
