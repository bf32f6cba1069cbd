package rmaptest

import (
	"fmt"

	"github.com/latchkey-go/latchkey/rmap"
)

// generations checks how a map begins, is emptied, is destroyed, and begins again.
func generations() []test {
	return []test{
		{"Begin", begins},
		{"ResetGoesOn", resetGoesOn},
		{"Destroy", destroyTells},
		{"DestroyOfNothing", destroyNothing},
		{"DestroyOfAnEmptyMap", destroyEmpty},
		{"AfterDestroy", afterDestroy},
		{"DestroyInsideABatch", destroyInside},
		{"MapsAreApart", mapsApart},
		{"BothStoresAreOne", bothStores},
	}
}

func begins(e *env) {
	if h := e.head(); h != (rmap.Head{Now: h.Now}) || h.Now <= 0 {
		e.Fatalf("a map that was never written has the head %+v", h)
	}
	c := e.change(write(set("k", "v")))
	if c.Revision.Generation == 0 || c.Revision.Number != 1 || c.Revision.Nonce == 0 || c.Prev != 0 || c.Now <= 0 {
		e.Fatalf("the first change is %+v", c)
	}
	h := e.head()
	if h.Now < c.Now {
		e.Fatalf("the clock went from %d back to %d", c.Now, h.Now)
	}
	equal(e, "the head", h, rmap.Head{Revision: c.Revision, Now: h.Now})
	for i := range 50 {
		next := e.change(write(set("k", fmt.Sprint(i))))
		if next.Prev != c.Revision.Nonce || next.Revision.Number != c.Revision.Number+1 || next.Revision.Generation != c.Revision.Generation {
			e.Fatalf("after %v came %v, behind %x", c.Revision, next.Revision, next.Prev)
		}
		c = next
	}
}

func resetGoesOn(e *env) {
	a := e.change(write(set("k", "v")))
	b := e.change(write(reset()))
	c := e.change(write(set("k", "w")))
	if b.Prev != a.Revision.Nonce || c.Prev != b.Revision.Nonce || c.Revision.Number != 3 || c.Revision.Generation != a.Revision.Generation {
		e.Fatalf("around a reset the revisions are %v, %v, %v", a.Revision, b.Revision, c.Revision)
	}
}

func destroyTells(e *env) {
	a := e.change(living(rmap.Lifetime{TTL: long}, set("k", "v"), lasting(long, set("l", "w"))))
	b := e.change(write(destroy()))
	e.steps(b, whole(rmap.DoDestroy))
	e.has(nil)
	if b.Revision.Generation != a.Revision.Generation || b.Revision.Number != 2 || b.Prev != a.Revision.Nonce {
		e.Fatalf("%v was destroyed by %v", a.Revision, b.Revision)
	}
	h := e.head()
	if h.Revision != b.Revision || h.Cleared != b.Revision.Number || h.Lifetime != (rmap.Lifetime{}) || h.Expires != b.Expires {
		e.Fatalf("after %+v the head is %+v", b, h)
	}
}

func destroyNothing(e *env) {
	if r := e.same(write(destroy())); !r.Revision.IsZero() {
		e.Fatalf("a map that was never written was destroyed at %v", r.Revision)
	}
	e.change(write(set("k", "v")))
	c := e.change(write(destroy()))
	for _, op := range []rmap.Op{destroy(), reset(), del("k"), expire("k"), strip("k", "x")} {
		equal(e, "the revision", e.same(write(op)).Revision, c.Revision)
	}
	if r := e.write(given(present("k"), set("k", "v"))); r.Conflict != 1 || r.Changed || r.Revision != c.Revision {
		e.Fatalf("a condition on a destroyed map told %+v", r)
	}
}

func destroyEmpty(e *env) {
	e.change(write(set("k", "v")))
	e.change(write(del("k")))
	e.steps(e.change(write(destroy())), whole(rmap.DoDestroy))
}

func afterDestroy(e *env) {
	e.change(living(rmap.Lifetime{TTL: long}, set("k", "v")))
	for i, l := range []rmap.Lifetime{{TTL: 2 * long, Sliding: true}, {}, {TTL: long}} {
		d := e.change(write(destroy()))
		c := e.change(living(l, set("k", fmt.Sprint(i))))
		if c.Revision.Generation != d.Revision.Generation || c.Revision.Number != d.Revision.Number+1 || c.Prev != d.Revision.Nonce {
			e.Fatalf("after %v came %v, behind %x", d.Revision, c.Revision, c.Prev)
		}
		h := e.head()
		if h.Lifetime != l || h.Expires != c.Expires || h.Cleared != d.Revision.Number {
			e.Fatalf("after a destroy, and a write of lifetime %+v, the head is %+v", l, h)
		}
		end := int64(0)
		if l.TTL > 0 {
			end = c.Now + l.TTL.Milliseconds()
		}
		equal(e, "the end of the map", c.Expires, end)
		e.has(map[string]rmap.Value{"k": plain(fmt.Sprint(i))})
	}
	e.change(write(destroy()))
	equal(e, "the end without a lifetime", e.change(write(set("k", "v"))).Expires, 0)
}

func destroyInside(e *env) {
	e.change(living(rmap.Lifetime{TTL: long}, set("k", "v"), set("other", "w")))
	c := e.change(write(set("k", "w"), destroy(), set("k", "x")))
	e.steps(c, did("k", plain("w")), whole(rmap.DoDestroy), did("k", plain("x")))
	e.has(map[string]rmap.Value{"k": plain("x")})
	h := e.head()
	if c.Expires != 0 || h.Expires != 0 || h.Lifetime != (rmap.Lifetime{}) || h.Cleared != c.Revision.Number {
		e.Fatalf("begun anew without a lifetime, the map is %+v", h)
	}
	c = e.change(write(reset(), destroy()))
	e.steps(c, whole(rmap.DoClear), whole(rmap.DoDestroy))
	c = e.change(write(set("k", "v"), destroy(), destroy()))
	e.steps(c, did("k", plain("v")), whole(rmap.DoDestroy))
	e.same(write(destroy()))
}

// Maps share nothing: neither entries nor numbers nor followers, however alike their names.
func mapsApart(e *env) {
	names := []string{"m", "M", "m:", "m:due", "m:log", "{m}", "m}", "m ", "é", "m\x00", "map", "a/b", "a*", "[m]", "m\n"}
	witnesses := make(map[string]*witness)
	for _, name := range names {
		witnesses[name] = e.follow(e.second, name)
	}
	for round := range 3 {
		for _, name := range names {
			if _, err := e.first.Write(e.ctx, name, write(set("name", name), add("n", 1))); err != nil {
				e.Fatalf("write to map %q: %v", name, err)
			}
		}
		for _, name := range names {
			got := e.scan(e.second, name)
			if len(got) != 2 || got["name"].Value != plain(name) || got["n"].Value != integer(fmt.Sprint(round+1)) {
				e.Fatalf("map %q is %+v", name, got)
			}
			e.compare(witnesses[name])
			if n := e.headOf(witnesses[name]).Revision.Number; n != uint64(round+1) {
				e.Fatalf("map %q is at number %d, want %d", name, n, round+1)
			}
		}
	}
	seen := make(map[uint64]bool)
	for _, w := range witnesses {
		seen[w.last().Revision.Generation] = true
	}
	if len(seen) != len(names) {
		e.Fatalf("%d maps have %d generations", len(names), len(seen))
	}
}

func bothStores(e *env) {
	var last rmap.Revision
	for i, s := range []rmap.Store{e.first, e.second, e.second, e.first} {
		r, err := s.Write(e.ctx, e.name, write(set(fmt.Sprint(i), "v")))
		if err != nil {
			e.Fatal(err)
		}
		if r.Revision.Number != uint64(i+1) || i > 0 && r.Revision.Generation != last.Generation {
			e.Fatalf("write %d made %v after %v", i+1, r.Revision, last)
		}
		last = r.Revision
		if h := e.headOf(e.other); h.Revision != last {
			e.Fatalf("after write %d the head at the second store is %v, want %v", i+1, h.Revision, last)
		}
	}
	e.compare(e.other)
}
