package rmaptest

import (
	"github.com/latchkey-go/latchkey/rmap"
)

// conditions checks what each test asks, and what a conflict tells and leaves.
func conditions() []test {
	return []test{
		{"Each", eachCondition},
		{"OfAnExpiredEntry", expiredCondition},
		{"TheFirstIsTold", firstConflict},
		{"OnTheStateBefore", conditionsBefore},
		{"OfAnotherKey", otherKey},
		{"OfAMapThatIsNotThere", conditionOfNothing},
		{"NoncesAreOfEntries", nonceOfEntry},
	}
}

func eachCondition(e *env) {
	c := e.change(write(put("p", plain("5")), put("i", integer("5")), put("l", list("5")), put("e", plain(""))))
	nonce := c.Revision.Nonce
	for what, tt := range map[string]struct {
		c     rmap.Condition
		holds bool
	}{
		"absent, of none":              {absent("none"), true},
		"absent, of one":               {absent("p"), false},
		"absent, of an empty one":      {absent("e"), false},
		"present, of none":             {present("none"), false},
		"present, of one":              {present("p"), true},
		"value":                        {value("p", plain("5")), true},
		"value of an integer":          {value("i", integer("5")), true},
		"value of a list":              {value("l", list("5")), true},
		"other value":                  {value("p", plain("6")), false},
		"longer value":                 {value("p", plain("5 ")), false},
		"empty value":                  {value("p", plain("")), false},
		"value, of none":               {value("none", plain("")), false},
		"integer where text is":        {value("p", integer("5")), false},
		"text where an integer is":     {value("i", plain("5")), false},
		"text where a list is":         {value("l", plain(list("5").Data)), false},
		"nonce":                        {written("p", nonce), true},
		"other nonce":                  {written("p", nonce+1), false},
		"zero nonce":                   {written("p", 0), false},
		"zero nonce, of none":          {written("none", 0), false},
		"nonce, of none":               {written("none", nonce), false},
		"nonce with all bits":          {written("p", ^uint64(0)), false},
		"nonce that a double confuses": {written("p", nonce^1), false},
	} {
		r := e.write(given(tt.c, del("none")))
		entry, there := e.entries()[tt.c.Key]
		switch {
		case tt.holds && r.Conflict != 0, !tt.holds && r.Conflict != 1:
			e.Errorf("%s: conflict %d, but that it holds is %t", what, r.Conflict, tt.holds)
		case tt.holds && r.Current != nil:
			e.Errorf("%s: no conflict, but the current entry is told", what)
		case !tt.holds && (r.Current != nil) != there, !tt.holds && there && *r.Current != entry:
			e.Errorf("%s: the current entry is told as %+v, and is %+v", what, r.Current, entry)
		}
	}
}

func expiredCondition(e *env) {
	for _, holds := range []bool{true, false} {
		c := e.change(write(lasting(short, set("k", "v"))))
		e.reach(c.Steps[0].Entry.Deadline)
		if holds {
			e.change(given(absent("k"), set("k", "new")))
			continue
		}
		for _, cond := range []rmap.Condition{present("k"), value("k", plain("v")), written("k", c.Revision.Nonce)} {
			if now := e.conflict(1, given(cond, set("k", "new"))); now != nil {
				e.Fatalf("an entry past its deadline is told as %+v", now)
			}
		}
	}
}

func firstConflict(e *env) {
	e.change(write(set("a", "1"), lasting(long, set("b", "2"))))
	before := e.entries()
	now := e.conflict(2, rmap.Write{If: []rmap.Condition{present("a"), value("b", plain("x")), absent("a")},
		Ops: []rmap.Op{set("a", "9"), set("c", "9")}, WantOld: true})
	if now == nil || *now != before["b"] {
		e.Fatalf("the entry of the second condition is told as %+v, and is %+v", now, before["b"])
	}
	e.has(map[string]rmap.Value{"a": plain("1"), "b": plain("2")})
}

// All conditions are about what was there before the first operation.
func conditionsBefore(e *env) {
	e.change(rmap.Write{If: []rmap.Condition{absent("a"), absent("a"), absent("b")}, Ops: []rmap.Op{set("a", "1"), set("b", "2")}})
	e.change(rmap.Write{If: []rmap.Condition{value("a", plain("1")), value("b", plain("2"))},
		Ops: []rmap.Op{set("a", "2"), set("b", "1")}})
	e.has(map[string]rmap.Value{"a": plain("2"), "b": plain("1")})
}

func otherKey(e *env) {
	e.change(write(set("leader", "me")))
	e.change(given(value("leader", plain("me")), set("work", "done")))
	e.conflict(1, given(value("leader", plain("you")), set("work", "undone")))
	e.has(map[string]rmap.Value{"leader": plain("me"), "work": plain("done")})
}

func conditionOfNothing(e *env) {
	r := e.write(given(present("k"), set("k", "v")))
	if r.Conflict != 1 || r.Current != nil || r.Changed || !r.Revision.IsZero() {
		e.Fatalf("a failed condition on a map that was never written told %+v", r)
	}
	if h := e.head(); !h.Revision.IsZero() {
		e.Fatalf("a failed condition began a map at %v", h.Revision)
	}
	e.change(given(absent("k"), set("k", "v")))
}

// The nonce of a condition is that of the change that wrote the entry, and not of the map.
func nonceOfEntry(e *env) {
	first := e.change(write(set("k", "v")))
	second := e.change(write(set("other", "w")))
	e.conflict(1, given(written("k", second.Revision.Nonce), set("k", "x")))
	third := e.change(given(written("k", first.Revision.Nonce), set("k", "x")))
	e.conflict(1, given(written("k", first.Revision.Nonce), set("k", "y")))
	e.change(given(written("k", third.Revision.Nonce), del("k")))
	e.conflict(1, given(written("k", third.Revision.Nonce), set("k", "z")))
}
