package rmaptest

import (
	"math"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/rmap"
)

// integers checks that arithmetic is exact, to the ends of the range.
func integers() []test {
	return []test{
		{"Add", addTells},
		{"Exact", addExact},
		{"OutOfRange", addOutOfRange},
		{"OtherKinds", addOtherKinds},
	}
}

func addTells(e *env) {
	e.steps(e.change(write(add("n", 5))), did("n", integer("5")))
	e.steps(e.change(write(add("n", -7))), did("n", integer("-2")))
	e.steps(e.change(write(add("n", 2))), did("n", integer("0")))
	e.change(write(put("n", integer("41")), add("n", 1)))
	e.has(map[string]rmap.Value{"n": integer("42")})
}

func addExact(e *env) {
	// A double has 53 bits: around its limits, and those of the type itself, is where sums go wrong.
	edges := []int64{0, 1, -1, 10, 1 << 51, 1<<52 - 1, 1 << 52, 1<<53 - 1, 1 << 53, 1<<53 + 1, -(1 << 53) - 1, 1<<62 + 1,
		1e15, 1e17 + 1, math.MaxInt64 - 1, math.MaxInt64, math.MinInt64 + 1, math.MinInt64}
	for _, n := range edges {
		for _, delta := range edges {
			sum := n + delta
			if delta == 0 || (sum > n) != (delta > 0) {
				continue
			}
			e.change(write(put("n", integer(strconv.FormatInt(n, 10))), add("n", delta)))
			if got := e.w.last().Steps[1].Entry.Value; got != integer(strconv.FormatInt(sum, 10)) {
				e.Fatalf("%d + %d is %v, want %d", n, delta, got, sum)
			}
		}
		if n != 0 {
			e.change(write(del("n"), add("n", n)))
			e.has(map[string]rmap.Value{"n": integer(strconv.FormatInt(n, 10))})
		}
	}
}

func addOutOfRange(e *env) {
	for _, tt := range []struct{ n, delta int64 }{{math.MaxInt64, 1}, {math.MinInt64, -1}, {1, math.MaxInt64},
		{-1, math.MinInt64}, {math.MaxInt64, math.MaxInt64}, {math.MinInt64, math.MinInt64}, {1 << 62, 1 << 62}} {
		e.change(write(put("n", integer(strconv.FormatInt(tt.n, 10)))))
		e.refuse(write(add("n", tt.delta)), rmap.ErrRange)
		e.refuse(write(set("k", "v"), add("n", tt.delta), set("n", "0")), rmap.ErrRange)
	}
}

func addOtherKinds(e *env) {
	for _, v := range []rmap.Value{plain("5"), plain(""), plain("text"), list(), list("5")} {
		e.change(write(put("k", v)))
		e.refuse(write(add("k", 1)), rmap.ErrKind)
		e.has(map[string]rmap.Value{"k": v})
	}
}

// lists checks the operations on lists, and that no item can break them.
func lists() []test {
	return []test{
		{"Append", appendTells},
		{"AppendUnique", appendUnique},
		{"Remove", removeItems},
		{"NothingToDo", listNothing},
		{"OtherKinds", listOtherKinds},
		{"AnyItem", anyItem},
		{"TooLarge", listTooLarge},
	}
}

func appendTells(e *env) {
	e.steps(e.change(write(app("l", "a"))), did("l", list("a")))
	e.steps(e.change(write(app("l", "b", "a", "c"))), did("l", list("a", "b", "a", "c")))
	e.change(write(put("l", list("x")), app("l", "x")))
	e.has(map[string]rmap.Value{"l": list("x", "x")})
}

func appendUnique(e *env) {
	e.steps(e.change(write(uniq("l", "a", "b", "a"))), did("l", list("a", "b")))
	e.steps(e.change(write(uniq("l", "b", "c"))), did("l", list("a", "b", "c")))
	e.same(write(uniq("l", "c", "a")))
	e.change(write(app("l", "a")))
	e.steps(e.change(write(uniq("l", "d"))), did("l", list("a", "b", "c", "a", "d")))
}

func removeItems(e *env) {
	e.change(write(app("l", "a", "b", "a", "c", "b")))
	e.steps(e.change(write(strip("l", "a", "nothing"))), did("l", list("b", "c", "b")))
	c := e.change(write(strip("l", "c", "b")))
	e.steps(c, gone("l"))
	e.has(nil)
	e.same(write(strip("l", "b")))
}

func listNothing(e *env) {
	e.same(write(strip("l", "x")))
	c := e.change(write(lasting(long, app("l", "a", "b"))))
	for _, op := range []rmap.Op{strip("l", "c"), strip("l"), uniq("l", "b", "a"), uniq("l"), app("l")} {
		e.same(write(op))
	}
	equal(e, "the entry", e.entries()["l"], c.Steps[0].Entry)
}

func listOtherKinds(e *env) {
	for _, v := range []rmap.Value{plain(""), plain("a"), plain(list("a").Data), plain("a,b"), plain(`["a"]`), integer("1")} {
		e.change(write(put("k", v)))
		for _, op := range []rmap.Op{app("k", "a"), uniq("k", "a"), strip("k", "a")} {
			e.refuse(write(op), rmap.ErrKind)
		}
		e.has(map[string]rmap.Value{"k": v})
	}
}

func anyItem(e *env) {
	items := []string{"", ":", "1:", "3:abc", "0:", "\x00", "\xff\xfe", "a,b", `["a"]`, "{}", "\n", "nil", "0", " ", "é", "12:34:56"}
	var have []string
	for _, item := range items {
		e.change(write(uniq("l", item)))
		have = append(have, item)
		e.has(map[string]rmap.Value{"l": list(have...)})
		e.same(write(uniq("l", item)))
	}
	for len(have) > 1 {
		e.change(write(strip("l", have[0])))
		have = have[1:]
		e.has(map[string]rmap.Value{"l": list(have...)})
	}
	e.change(write(app("l", items...), strip("l", "")))
	e.change(write(strip("l", items...)))
	e.has(nil)
}

func listTooLarge(e *env) {
	half := strings.Repeat("x", rmap.MaxValue/2-16)
	e.change(write(app("l", half)))
	e.change(write(app("l", half)))
	e.refuse(write(app("l", half)), rmap.ErrTooLarge)
	e.refuse(write(set("k", "v"), uniq("l", half+"y")), rmap.ErrTooLarge)
	e.change(write(strip("l", half)))
}
