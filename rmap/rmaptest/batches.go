package rmaptest

import (
	"fmt"

	"github.com/latchkey-go/latchkey/rmap"
)

// batches checks that the operations of a write are done one after the other, and all or none.
func batches() []test {
	return []test{
		{"OneChange", oneChange},
		{"OneAfterTheOther", sequential},
		{"ClearInside", clearInside},
		{"AllOrNone", allOrNone},
		{"NothingLeftIsStillAChange", nothingLeft},
		{"AsManyAsAllowed", fullBatch},
	}
}

func oneChange(e *env) {
	c := e.change(write(set("a", "1"), add("n", 2), app("l", "x"), set("b", "2")))
	equal(e, "the number", c.Revision.Number, 1)
	e.steps(c, did("a", plain("1")), did("n", integer("2")), did("l", list("x")), did("b", plain("2")))
	for key, x := range e.entries() {
		if x.Number != 1 || x.Nonce != c.Revision.Nonce {
			e.Errorf("%q is of number %d and nonce %x, and was written by %v", key, x.Number, x.Nonce, c.Revision)
		}
	}
	c = e.change(write(del("a"), del("nothing"), set("b", "3")))
	e.steps(c, gone("a"), did("b", plain("3")))
}

func sequential(e *env) {
	c := e.change(write(add("n", 1), add("n", 2), set("k", "1"), del("k"), set("k", "2"), app("l", "x"), app("l", "y"), strip("l", "x")))
	e.steps(c, did("n", integer("1")), did("n", integer("3")), did("k", plain("1")), gone("k"), did("k", plain("2")),
		did("l", list("x")), did("l", list("x", "y")), did("l", list("y")))
	e.has(map[string]rmap.Value{"n": integer("3"), "k": plain("2"), "l": list("y")})
	c = e.change(write(strip("l", "y"), app("l", "z"), del("n"), add("n", -1)))
	e.steps(c, gone("l"), did("l", list("z")), gone("n"), did("n", integer("-1")))
	// The kind that an operation meets is the one that the operation before left.
	e.change(write(put("n", integer("10")), add("n", 1), set("n", "text"), put("n", list()), app("n", "a")))
	e.has(map[string]rmap.Value{"n": list("a"), "k": plain("2"), "l": list("z")})
}

func clearInside(e *env) {
	e.change(write(set("a", "1"), set("b", "2")))
	r := e.write(want(set("c", "3"), reset(), set("a", "4"), del("b")))
	if len(r.Old) != 4 || r.Old[2] != nil || r.Old[3] != nil {
		e.Fatalf("behind a clear there was %+v", r.Old)
	}
	c := e.w.last()
	e.steps(c, did("c", plain("3")), whole(rmap.DoClear), did("a", plain("4")))
	e.has(map[string]rmap.Value{"a": plain("4")})
	equal(e, "Cleared", e.head().Cleared, c.Revision.Number)
	// What is cleared and comes again with a deadline has that one alone.
	e.change(write(lasting(long, set("a", "5"))))
	e.change(write(reset(), keeping(set("a", "6"))))
	equal(e, "the deadline", e.entries()["a"].Deadline, 0)
	e.same(write(del("x"), del("y")))
	e.change(write(reset()))
	c = e.change(write(reset(), set("a", "7"), reset()))
	e.steps(c, did("a", plain("7")), whole(rmap.DoClear))
}

func allOrNone(e *env) {
	e.change(write(set("text", "abc"), set("a", "1"), put("n", integer("9223372036854775807"))))
	before := e.entries()
	for what, w := range map[string]rmap.Write{
		"kind":   write(set("a", "2"), set("b", "3"), del("n"), add("text", 1)),
		"list":   write(reset(), set("a", "2"), set("text", "still none"), app("text", "x")),
		"clear":  write(destroy(), set("text", "again"), add("text", 1)),
		"second": write(add("fresh", 1), set("fresh", "text"), add("fresh", 1)),
	} {
		e.refuse(w, rmap.ErrKind)
		if got := e.entries(); len(got) != len(before) || got["a"] != before["a"] {
			e.Fatalf("%s: a batch that failed in its last operation left %+v", what, got)
		}
	}
	e.refuse(write(set("a", "2"), add("n", 1)), rmap.ErrRange)
	e.refuse(write(set("a", "2"), set("", "no key")), rmap.ErrInvalid)
	e.change(write(set("a", "2")))
}

// That a batch ends where it began does not make it nothing: followers have seen it pass.
func nothingLeft(e *env) {
	c := e.change(write(set("k", "v"), del("k")))
	e.steps(c, did("k", plain("v")), gone("k"))
	equal(e, "the head", e.head().Revision, c.Revision)
	e.has(nil)
}

func fullBatch(e *env) {
	var w rmap.Write
	for i := range rmap.MaxOps / 2 {
		w.If = append(w.If, absent(fmt.Sprint("key ", i)))
		w.Ops = append(w.Ops, set(fmt.Sprint("key ", i), fmt.Sprint(i)))
	}
	c := e.change(w)
	if len(c.Steps) != rmap.MaxOps/2 || len(e.entries()) != rmap.MaxOps/2 {
		e.Fatalf("%d operations made %d steps and %d entries", rmap.MaxOps/2, len(c.Steps), len(e.entries()))
	}
	e.conflict(1, w)
	w.If, w.WantOld = nil, true
	w.Ops = append(w.Ops, w.Ops...)
	if r := e.write(w); len(r.Old) != rmap.MaxOps {
		e.Fatalf("%d operations have %d old entries", rmap.MaxOps, len(r.Old))
	}
}
