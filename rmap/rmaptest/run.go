package rmaptest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// A Subject is a store under test.
type Subject struct {
	// Open returns a store without any map, twice: the second is what another process has that opens the same data. A
	// store that is for one process returns itself twice. What Open starts ends by t.Cleanup.
	Open func(t *testing.T) (first, second rmap.Store)
	// Bubble runs every test in a bubble of testing/synctest, for stores that live by package time alone.
	Bubble bool
	// Remembers is how many small changes Since is able to tell, at least. Zero is for a store that promises none.
	Remembers int
}

// A test is one promise of the contract.
type test struct {
	name string
	fn   func(e *env)
}

type group struct {
	name  string
	tests []test
}

func suite() []group {
	return []group{
		{"ops", ops()},
		{"conditions", conditions()},
		{"batches", batches()},
		{"integers", integers()},
		{"lists", lists()},
		{"ttl", ttls()},
		{"lifetime", lifetimes()},
		{"generations", generations()},
		{"limits", limits()},
		{"keys", keys()},
		{"scan", scans()},
		{"since", sinces()},
		{"feeds", feeds()},
		{"context", contexts()},
		{"model", models()},
		{"histories", histories()},
	}
}

// Run checks that stores made by s.Open keep the contract. Each test opens its own.
func Run(t *testing.T, s Subject) {
	for _, g := range suite() {
		t.Run(g.name, func(t *testing.T) {
			for _, tt := range g.tests {
				t.Run(tt.name, func(t *testing.T) {
					if !s.Bubble {
						one(t, s, tt)
						return
					}
					synctest.Test(t, func(t *testing.T) { one(t, s, tt) })
				})
			}
		})
	}
}

func one(t *testing.T, s Subject, tt test) {
	e := &env{T: t, subject: s, ctx: t.Context(), name: "m"}
	e.first, e.second = s.Open(t)
	e.w = e.follow(e.first, e.name)
	e.other = e.follow(e.second, e.name)
	defer e.finish()
	tt.fn(e)
}

// env is one test with its store. Only the goroutine of the test uses it, but for the stores.
type env struct {
	*testing.T
	subject       Subject
	ctx           context.Context
	first, second rmap.Store
	name          string   // of the map that the helpers work on
	w, other      *witness // of that map, at the first store and at the second
	all           []*witness
}

// Times to live: one that passes while a test waits, and one that does not, however slow the machine.
const (
	short = 15 * time.Millisecond
	long  = time.Hour
)

// finish closes all subscriptions after a last look: what the witnesses have made of the changes is what there is.
func (e *env) finish() {
	if p := recover(); p != nil {
		panic(p) // a store that panicked may hold a lock for ever
	}
	for _, w := range e.all {
		if !w.isClosed() && !e.Failed() {
			e.compare(w)
		}
		w.close()
	}
	for _, w := range e.all {
		for _, p := range w.problems() {
			e.Errorf("follower of %q: %s", w.name, p)
		}
	}
}

// until waits for a condition. Only a store that breaks its word makes it wait in vain.
func (e *env) until(what string, cond func() bool) {
	e.Helper()
	for begin := time.Now(); !cond(); {
		if time.Since(begin) > 20*time.Second {
			e.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks; what counts is the condition
	}
}

// reach waits until the store's clock is at a deadline.
func (e *env) reach(deadline int64) {
	e.Helper()
	if deadline == 0 {
		e.Fatal("there is no deadline to wait for")
	}
	e.until("the store's clock reaches a deadline", func() bool { return e.head().Now >= deadline })
}

// head asks for the head of the map at the first store.
func (e *env) head() rmap.Head {
	e.Helper()
	return e.headOf(e.w)
}

func (e *env) headOf(w *witness) rmap.Head {
	e.Helper()
	h, err := w.feed.Head(e.ctx)
	if err != nil {
		e.Fatalf("head of %q: %v", w.name, err)
	}
	return h
}

// write does a write that nobody else is beside of, and checks that exactly what the result says has been broadcast.
func (e *env) write(w rmap.Write) rmap.Result {
	e.Helper()
	before := e.head()
	r, err := e.first.Write(e.ctx, e.name, w)
	if err != nil {
		e.Fatalf("write: %v", err)
	}
	after := e.head()
	last := e.w.last()
	over := last.Expires != 0 && last.Expires <= after.Now // the map has ended since
	switch {
	case over && r.Revision == last.Revision:
	case r.Changed && (r.Revision != after.Revision || r.Revision != last.Revision):
		e.Fatalf("the change got revision %v, the head is %v, and the follower was told %v", r.Revision, after.Revision, last.Revision)
	case r.Changed && r.Revision.Generation == before.Revision.Generation && r.Revision.Number != before.Revision.Number+1:
		e.Fatalf("one change went from %v to %v", before.Revision, r.Revision)
	case !r.Changed && r.Revision != after.Revision:
		e.Fatalf("nothing changed at %v, but the head is %v", r.Revision, after.Revision)
	case !r.Changed && !r.Revision.IsZero() && r.Revision != before.Revision:
		e.Fatalf("nothing changed, but the head went from %v to %v", before.Revision, r.Revision)
	}
	if !w.WantOld && len(r.Old) != 0 {
		e.Fatalf("what was there before was not asked for, and is %+v", r.Old)
	}
	return r
}

// change does a write that must change something, and returns what was broadcast.
func (e *env) change(w rmap.Write) rmap.Change {
	e.Helper()
	r := e.write(w)
	if !r.Changed || r.Conflict != 0 {
		e.Fatalf("changed %t with conflict %d, want a change without conflict", r.Changed, r.Conflict)
	}
	return e.w.last()
}

// same does a write that must change nothing.
func (e *env) same(w rmap.Write) rmap.Result {
	e.Helper()
	r := e.write(w)
	if r.Changed || r.Conflict != 0 {
		e.Fatalf("changed %t with conflict %d, want no change and no conflict", r.Changed, r.Conflict)
	}
	return r
}

// refuse does a write that must fail with one of the errors, and leave everything as it was.
func (e *env) refuse(w rmap.Write, want ...error) {
	e.Helper()
	e.refuseIn(e.name, w, want...)
}

func (e *env) refuseIn(name string, w rmap.Write, want ...error) {
	e.Helper()
	before := e.head().Revision
	_, err := e.first.Write(e.ctx, name, w)
	if !slices.ContainsFunc(want, func(s error) bool { return errors.Is(err, s) }) || errors.Is(err, rmap.ErrUnknown) {
		e.Fatalf("write: %v, want one of %q", err, want)
	}
	if after := e.head().Revision; after != before {
		e.Fatalf("a refused write moved the head from %v to %v", before, after)
	}
	e.compare(e.w)
}

// conflict does a write whose condition i (from 1) must not hold, and returns what is there instead.
func (e *env) conflict(i int, w rmap.Write) *rmap.Entry {
	e.Helper()
	r := e.write(w)
	if r.Conflict != i || len(r.Old) != 0 {
		e.Fatalf("conflict %d with %d old entries, want conflict %d alone", r.Conflict, len(r.Old), i)
	}
	return r.Current
}

// entries returns what is in the map, without what is past its deadline.
func (e *env) entries() map[string]rmap.Entry {
	e.Helper()
	return alive(e.scan(e.first, e.name), e.head().Now)
}

func (e *env) scan(s rmap.Store, name string) map[string]rmap.Entry {
	e.Helper()
	out := make(map[string]rmap.Entry)
	err := s.Scan(e.ctx, name, func(chunk []rmap.Entry) error {
		for _, x := range chunk {
			if seen, twice := out[x.Key]; twice && seen != x {
				e.Errorf("key %q was handed over twice, with different entries, though nothing changed", x.Key)
			}
			out[x.Key] = x
		}
		return nil
	})
	if err != nil {
		e.Fatalf("scan of %q: %v", name, err)
	}
	return out
}

func alive(entries map[string]rmap.Entry, now int64) map[string]rmap.Entry {
	maps.DeleteFunc(entries, func(_ string, x rmap.Entry) bool { return x.Deadline != 0 && x.Deadline <= now })
	return entries
}

// compare holds the copy of a follower against both stores. Nobody may write meanwhile.
func (e *env) compare(w *witness) {
	e.Helper()
	stored := e.scan(e.first, w.name)
	again := e.scan(e.second, w.name)
	h := e.headOf(w)
	got := w.copyAt(h)
	alive(stored, h.Now)
	if !maps.Equal(stored, alive(again, h.Now)) {
		e.Fatalf("the two stores of %q differ: %s", w.name, difference(stored, again))
	}
	if w.isPartial() {
		return
	}
	if !maps.Equal(stored, got) {
		e.Fatalf("the copy that was made of the changes of %q differs from the store: %s", w.name, difference(stored, got))
	}
	if last := w.last().Revision; !h.Revision.IsZero() && last != h.Revision {
		e.Fatalf("the head of %q is %v, and the last change that was handed over %v", w.name, h.Revision, last)
	}
}

// has checks that the map has these values and no other.
func (e *env) has(want map[string]rmap.Value) {
	e.Helper()
	got := make(map[string]rmap.Value)
	for key, x := range e.entries() {
		got[key] = x.Value
	}
	if !maps.Equal(got, want) {
		e.Fatalf("the map is %s, want %s", shown(got), shown(want))
	}
}

// equal fails unless two things that may be large are alike.
func equal[T comparable](e *env, what string, got, want T) {
	e.Helper()
	if got != want {
		e.Fatalf("%s is %.200s, want %.200s", what, text(got), text(want))
	}
}

// steps checks what a change came to.
func (e *env) steps(c rmap.Change, want ...rmap.Step) {
	e.Helper()
	got := slices.Clone(c.Steps)
	for i := range got {
		// The witness has checked these already.
		got[i].Entry.Number, got[i].Entry.Nonce, got[i].Entry.Deadline = 0, 0, 0
	}
	if !slices.Equal(got, want) {
		e.Fatalf("the change has the steps %.500s, want %.500s", text(got), text(want))
	}
}

func shown(m map[string]rmap.Value) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, text(key)+": "+text(m[key]))
	}
	return strings.Join(parts, ", ")
}
