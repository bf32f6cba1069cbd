package rmaptest

import (
	"github.com/latchkey-go/latchkey/rmap"
)

// ops checks what each action does, and that what does nothing makes no change.
func ops() []test {
	return []test{
		{"Set", setTells},
		{"SetReplacesAnyKind", setReplaces},
		{"SetTheSameIsAChange", setSame},
		{"Delete", deleteTells},
		{"DeleteOfNothing", deleteNothing},
		{"Clear", clearTells},
		{"ClearOfNothing", clearNothing},
		{"NoOperations", noOperations},
		{"Old", oldEntries},
		{"EmptyAndAbsentDiffer", emptyValue},
	}
}

func setTells(e *env) {
	c := e.change(write(set("k", "v")))
	e.steps(c, did("k", plain("v")))
	want := rmap.Entry{Key: "k", Value: plain("v"), Number: c.Revision.Number, Nonce: c.Revision.Nonce}
	equal(e, "the entry", e.entries()["k"], want)
	equal(e, "the entry that was told", c.Steps[0].Entry, want)
}

func setReplaces(e *env) {
	kinds := []rmap.Value{plain("p"), integer("7"), list("a", "b")}
	for _, from := range kinds {
		for _, to := range kinds {
			e.change(write(put("k", from)))
			e.change(write(put("k", to)))
			e.has(map[string]rmap.Value{"k": to})
		}
	}
}

func setSame(e *env) {
	first := e.change(write(set("k", "v")))
	second := e.change(write(set("k", "v")))
	if first.Revision == second.Revision || e.entries()["k"].Nonce != second.Revision.Nonce {
		e.Fatalf("a second set of the same value went from %v to %v, and the entry is %+v", first.Revision, second.Revision, e.entries()["k"])
	}
}

func deleteTells(e *env) {
	e.change(write(set("k", "v"), set("other", "w")))
	c := e.change(write(del("k")))
	e.steps(c, gone("k"))
	e.has(map[string]rmap.Value{"other": plain("w")})
	// The last entry goes, and the map is still the same life.
	last := e.change(write(del("other")))
	e.has(nil)
	again := e.change(write(set("k", "v")))
	if again.Revision.Generation != c.Revision.Generation || again.Prev != last.Revision.Nonce {
		e.Fatalf("after the last entry was deleted at %v, the next change is %v after %x", last.Revision, again.Revision, again.Prev)
	}
}

func deleteNothing(e *env) {
	if r := e.same(write(del("k"))); !r.Revision.IsZero() {
		e.Fatalf("a deletion in a map that was never written found it at %v", r.Revision)
	}
	c := e.change(write(set("other", "w")))
	equal(e, "the revision", e.same(write(del("k"))).Revision, c.Revision)
	e.change(write(set("k", "v")))
	e.change(write(del("k")))
	e.same(write(del("k"), del("k")))
}

func clearTells(e *env) {
	begin := e.change(write(set("a", "1"), set("b", "2")))
	equal(e, "Cleared before any", e.head().Cleared, 0)
	c := e.change(write(reset()))
	e.steps(c, whole(rmap.DoClear))
	e.has(nil)
	equal(e, "the generation", c.Revision.Generation, begin.Revision.Generation)
	equal(e, "Cleared", e.head().Cleared, c.Revision.Number)
	e.change(write(set("a", "3")))
	equal(e, "Cleared after a set", e.head().Cleared, c.Revision.Number)
	e.has(map[string]rmap.Value{"a": plain("3")})
}

func clearNothing(e *env) {
	if r := e.same(write(reset())); !r.Revision.IsZero() {
		e.Fatalf("a clear of a map that was never written found it at %v", r.Revision)
	}
	e.change(write(set("a", "1")))
	e.change(write(del("a")))
	e.same(write(reset()))
	equal(e, "Cleared", e.head().Cleared, 0)
}

func noOperations(e *env) {
	if r := e.same(rmap.Write{}); !r.Revision.IsZero() {
		e.Fatalf("a map that was never written is at %v", r.Revision)
	}
	c := e.change(write(set("k", "v")))
	equal(e, "the revision", e.same(rmap.Write{}).Revision, c.Revision)
	equal(e, "the revision", e.same(given(present("k"))).Revision, c.Revision)
}

func oldEntries(e *env) {
	r := e.write(want(set("a", "1"), del("b"), add("n", 5), app("l", "x")))
	if len(r.Old) != 4 || r.Old[0] != nil || r.Old[1] != nil || r.Old[2] != nil || r.Old[3] != nil {
		e.Fatalf("before the first write there was %+v", r.Old)
	}
	before := e.entries()
	r = e.write(want(set("a", "2"), del("a"), set("a", "3"), add("n", 1), app("l", "y"), set("fresh", "")))
	for i, want := range []rmap.Entry{before["a"],
		{Key: "a", Value: plain("2"), Number: r.Revision.Number, Nonce: r.Revision.Nonce},
		{}, before["n"], before["l"], {}} {
		if len(r.Old) != 6 {
			e.Fatalf("six operations have %d old entries", len(r.Old))
		}
		if got := r.Old[i]; want.Key == "" && got != nil || want.Key != "" && (got == nil || *got != want) {
			e.Fatalf("before operation %d there was %+v, want %+v", i+1, got, want)
		}
	}
	if r = e.write(want(del("nothing"))); len(r.Old) != 1 || r.Old[0] != nil || r.Changed {
		e.Fatalf("a deletion of nothing told %+v", r)
	}
}

func emptyValue(e *env) {
	e.change(write(set("k", "")))
	e.has(map[string]rmap.Value{"k": plain("")})
	e.conflict(1, given(absent("k"), del("k")))
	e.change(given(value("k", plain("")), set("k", "v")))
	if now := e.conflict(1, given(value("other", plain("")), set("k", "w"))); now != nil {
		e.Fatalf("an absent key has the entry %+v", now)
	}
}
