package rmaptest

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapIntegers checks Inc: the sum is made in the store, and nothing but an integer is ever touched.
func mapIntegers() []test {
	return []test{
		{"Sum", incSum},
		{"Contended", incContended},
		{"OtherKinds", incOtherKinds},
		{"OtherCodec", incOtherCodec},
		{"Range", incRange},
		{"NarrowType", incNarrow},
	}
}

func incSum(e *env) {
	m := joined(e, e.first, numbers{})
	want, last := 0, rmap.Revision{}
	for i, delta := range []int{5, -7, 0, 1 << 52, 1 << 52, 1, math.MinInt32} {
		want += delta
		got, r, err := rmap.Inc(e.ctx, m, "n", delta)
		if got != want || err != nil {
			e.Fatalf("Inc by %d is %d, %v, want %d", delta, got, err, want)
		}
		if i > 0 {
			e.next(r, last)
		}
		last = r
	}
	e.synced(m)
	shows(e, m, map[string]int{"n": want})
	named := joined(e, e.second, rmap.Options[string, stamp]{})
	if got, _, err := rmap.Inc(e.ctx, named, "n", 1); got != stamp(want+1) || err != nil {
		e.Fatalf("Inc of a named type: %v, %v", got, err)
	}
	_, _, err := rmap.Inc(e.ctx, m, "", 1)
	e.failed(err, rmap.ErrInvalid, rmap.NotApplied)
}

// No two callers get the same sum, and none is left out.
func incContended(e *env) {
	const callers, each = 6, 40
	a, b := pair(e, numbers{})
	var group sync.WaitGroup
	var mu sync.Mutex
	var sums []int
	for i := range callers {
		m := []*rmap.Map[string, int]{a, b}[i%2]
		group.Go(func() {
			for range each {
				got, _, err := rmap.Inc(e.ctx, m, "n", 1)
				if err != nil {
					e.Error(err)
					return
				}
				mu.Lock()
				sums = append(sums, got)
				mu.Unlock()
			}
		})
	}
	group.Wait()
	slices.Sort(sums)
	for i, got := range sums {
		if got != i+1 {
			e.Fatalf("sum %d is %d", i+1, got)
		}
	}
	e.synced(a, b)
	shows(e, a, map[string]int{"n": callers * each})
	shows(e, b, map[string]int{"n": callers * each})
}

// otherThanInt and otherThanList are what an operation could take for its own kind.
func otherThanInt() []rmap.Value {
	return []rmap.Value{plain(""), plain("7"), plain("0"), plain("null"), plain(`{"a":1}`), list(), list("7"), list("1", "2")}
}

func otherThanList() []rmap.Value {
	return []rmap.Value{plain(""), plain("a,b"), plain(`["a"]`), plain(`[1,2]`), plain(`{"a":"b"}`), plain(rmap.EncodeList([]string{"a"})),
		integer("7"), integer("1")}
}

func incOtherKinds(e *env) {
	raw := joined(e, e.first, raws{})
	m := joined(e, e.second, numbers{})
	for _, v := range otherThanInt() {
		r := e.did(raw.Set(e.ctx, "k", v))
		_, _, err := rmap.Inc(e.ctx, m, "k", 1)
		if w := e.failed(err, rmap.ErrKind, rmap.NotApplied); w.Key != `"k"` {
			e.Errorf("the error is of %s", w.Key)
		}
		e.synced(raw)
		if got, _ := raw.Get("k"); got != v || raw.Lag().Revision != r {
			e.Fatalf("%v became %v", v, got)
		}
	}
}

// A map that keeps its numbers in another form must not get integers that it cannot read.
func incOtherCodec(e *env) {
	m := joined(e, e.first, numbers{Values: rmap.JSON[int]()})
	_, _, err := rmap.Inc(e.ctx, m, "k", 1)
	e.failed(err, rmap.ErrKind, rmap.NotApplied)
	e.did(m.Set(e.ctx, "k", 1))
	_, _, err = rmap.Inc(e.ctx, m, "k", 1)
	e.failed(err, rmap.ErrKind, rmap.NotApplied)
	e.synced(m)
	shows(e, m, map[string]int{"k": 1})
}

func incRange(e *env) {
	m := joined(e, e.first, rmap.Options[string, int64]{})
	for _, tt := range []struct{ start, delta int64 }{
		{math.MaxInt64, 1}, {1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64}, {math.MinInt64, -1}, {-1, math.MinInt64},
		{math.MaxInt64 - 5, 6}, {math.MinInt64 + 5, -6},
	} {
		e.did(m.Set(e.ctx, "k", tt.start))
		_, _, err := rmap.Inc(e.ctx, m, "k", tt.delta)
		e.failed(err, rmap.ErrRange, rmap.NotApplied)
		e.synced(m)
		shows(e, m, map[string]int64{"k": tt.start})
	}
	for _, tt := range []struct{ start, delta, want int64 }{
		{math.MaxInt64 - 5, 5, math.MaxInt64}, {math.MinInt64 + 5, -5, math.MinInt64}, {math.MaxInt64, math.MinInt64, -1},
		{math.MinInt64, math.MaxInt64, -1}, {1<<53 + 1, 1, 1<<53 + 2}, {-(1<<53 + 1), -2, -(1<<53 + 3)},
	} {
		e.did(m.Set(e.ctx, "k", tt.start))
		if got, _, err := rmap.Inc(e.ctx, m, "k", tt.delta); got != tt.want || err != nil {
			e.Fatalf("%d + %d is %d, %v", tt.start, tt.delta, got, err)
		}
		e.synced(m)
		shows(e, m, map[string]int64{"k": tt.want})
	}
}

// What does not fit into the type is written all the same, since others may have a wider one, and the error says so.
func incNarrow(e *env) {
	wide := joined(e, e.first, numbers{})
	m := joined(e, e.first, rmap.Options[string, int8]{})
	e.did(m.Set(e.ctx, "k", 120))
	_, r, err := rmap.Inc(e.ctx, m, "k", 100)
	if w := e.failed(err, rmap.ErrRange, rmap.Applied); w.Revision != r || r.IsZero() {
		e.Fatalf("Inc: %v, %v", r, err)
	}
	e.synced(wide, m)
	shows(e, wide, map[string]int{"k": 220})
	isBroken(e, m, "k")
	if got, _, err := rmap.Inc(e.ctx, m, "k", -100); got != 120 || err != nil {
		e.Fatalf("Inc back: %d, %v", got, err)
	}
	e.synced(m)
	shows(e, m, map[string]int8{"k": 120})
}

// mapLists checks Append, AppendUnique and Remove.
func mapLists() []test {
	return []test{
		{"Items", listItems},
		{"Contended", listContended},
		{"OtherKinds", mapListKinds},
		{"OtherCodec", listOtherCodec},
		{"NoItems", listNoItems},
		{"TypedItems", listTyped},
		{"DoesNotDecode", listBroken},
	}
}

func listItems(e *env) {
	m := joined(e, e.first, listings{})
	last := rmap.Revision{}
	step := func(what string, want []string) func([]string, rmap.Revision, error) {
		return func(got []string, r rmap.Revision, err error) {
			e.Helper()
			if !slices.Equal(got, want) || err != nil {
				e.Fatalf("%s is %q, %v, want %q", what, got, err, want)
			}
			if !last.IsZero() && r != last {
				e.next(r, last)
			}
			last = r
			if err := m.WaitFor(e.ctx, r); err != nil {
				e.Fatal(err)
			}
			if v, ok := m.Get("k"); !slices.Equal(v, want) || ok != (len(want) > 0) {
				e.Fatalf("after %s the copy has %q, %t", what, v, ok)
			}
		}
	}
	step("Append to nothing", []string{"a", "", "a,b", `["c"]`})(rmap.Append(e.ctx, m, "k", "a", "", "a,b", `["c"]`))
	step("Append", []string{"a", "", "a,b", `["c"]`, "a"})(rmap.Append(e.ctx, m, "k", "a"))
	step("AppendUnique", []string{"a", "", "a,b", `["c"]`, "a", "x"})(rmap.AppendUnique(e.ctx, m, "k", "a", "x", "x", ""))
	step("AppendUnique of nothing new", []string{"a", "", "a,b", `["c"]`, "a", "x"})(rmap.AppendUnique(e.ctx, m, "k", "a", "x"))
	step("Remove", []string{"", `["c"]`, "x"})(rmap.Remove(e.ctx, m, "k", "a", "a,b", "none"))
	step("Remove of nothing", []string{"", `["c"]`, "x"})(rmap.Remove(e.ctx, m, "k", "a"))
	step("Remove of the rest", nil)(rmap.Remove(e.ctx, m, "k", "", `["c"]`, "x"))
	step("Remove from nothing", nil)(rmap.Remove(e.ctx, m, "k", "a"))
	step("AppendUnique to nothing", []string{"a", "b"})(rmap.AppendUnique(e.ctx, m, "k", "a", "b", "a"))
}

func listContended(e *env) {
	a, b := pair(e, listings{})
	var group sync.WaitGroup
	for i := range 6 {
		m := []*rmap.Map[string, []string]{a, b}[i%2]
		group.Go(func() {
			for j := range 20 {
				mine := fmt.Sprint(i, " ", j)
				if _, _, err := rmap.Append(e.ctx, m, "all", mine); err != nil {
					e.Error(err)
				}
				if _, _, err := rmap.AppendUnique(e.ctx, m, "set", fmt.Sprint(j), mine); err != nil {
					e.Error(err)
				}
				if _, _, err := rmap.Remove(e.ctx, m, "set", mine); err != nil {
					e.Error(err)
				}
			}
		})
	}
	group.Wait()
	e.synced(a, b)
	for _, m := range []*rmap.Map[string, []string]{a, b} {
		all, _ := m.Get("all")
		set, _ := m.Get("set")
		if slices.Sort(all[:len(all):len(all)]); len(slices.Compact(slices.Clone(all))) != 120 || len(set) != 20 {
			e.Fatalf("%d were appended, and %d are unique: %q", len(all), len(set), set)
		}
	}
}

func mapListKinds(e *env) {
	raw := joined(e, e.first, raws{})
	m := joined(e, e.second, listings{})
	for _, v := range otherThanList() {
		r := e.did(raw.Set(e.ctx, "k", v))
		for op, do := range listOps() {
			for _, items := range [][]string{{"a"}, {"b", "1"}, nil} {
				_, _, err := do(e.ctx, m, "k", items...)
				if w := e.failed(err, rmap.ErrKind, rmap.NotApplied); w.Op != op || w.Key != `"k"` {
					e.Errorf("the error of %s is %v", op, w)
				}
			}
		}
		e.synced(raw)
		if got, _ := raw.Get("k"); got != v || raw.Lag().Revision != r {
			e.Fatalf("%v became %v", v, got)
		}
	}
}

func listOps() map[string]listOp {
	return map[string]listOp{
		"Append": rmap.Append[string, string], "AppendUnique": rmap.AppendUnique[string, string], "Remove": rmap.Remove[string, string],
	}
}

func listOtherCodec(e *env) {
	m := joined(e, e.first, listings{Values: rmap.JSON[[]string]()})
	e.did(m.Set(e.ctx, "k", []string{"a"}))
	for _, do := range listOps() {
		for _, key := range []string{"k", "new"} {
			_, _, err := do(e.ctx, m, key, "b")
			e.failed(err, rmap.ErrKind, rmap.NotApplied)
		}
	}
	e.synced(m)
	shows(e, m, map[string][]string{"k": {"a"}})
}

func listNoItems(e *env) {
	m := joined(e, e.first, listings{})
	for _, do := range listOps() {
		if got, r, err := do(e.ctx, m, "k"); len(got) != 0 || !r.IsZero() || err != nil {
			e.Fatalf("no items to nothing: %q, %v, %v", got, r, err)
		}
	}
	r := e.did(m.Set(e.ctx, "k", []string{"a"}))
	for _, do := range listOps() {
		if got, at, err := do(e.ctx, m, "k"); !slices.Equal(got, []string{"a"}) || at != r || err != nil {
			e.Fatalf("no items: %q, %v, %v", got, at, err)
		}
	}
}

func listTyped(e *env) {
	m := joined(e, e.first, rmap.Options[string, []int]{Values: rmap.Lists(rmap.Ints[int]())})
	if got, _, err := rmap.Append(e.ctx, m, "k", 1, -2, 1); !slices.Equal(got, []int{1, -2, 1}) || err != nil {
		e.Fatalf("Append: %v, %v", got, err)
	}
	if got, _, err := rmap.Remove(e.ctx, m, "k", 1); !slices.Equal(got, []int{-2}) || err != nil {
		e.Fatalf("Remove: %v, %v", got, err)
	}
	e.synced(m)
	shows(e, m, map[string][]int{"k": {-2}})
}

// The operation does not care what the items mean. What it returns does.
func listBroken(e *env) {
	words := joined(e, e.first, listings{})
	m := joined(e, e.first, rmap.Options[string, []int]{Values: rmap.Lists(rmap.Ints[int]())})
	e.did(words.Set(e.ctx, "k", []string{"one"}))
	_, r, err := rmap.Append(e.ctx, m, "k", 2)
	if w := e.failed(err, rmap.ErrDecode, rmap.Applied); w.Revision != r || r.IsZero() {
		e.Fatalf("Append: %v, %v", r, err)
	}
	e.synced(words, m)
	shows(e, words, map[string][]string{"k": {"one", "2"}})
	isBroken(e, m, "k")
}
