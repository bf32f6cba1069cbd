package rmaptest

import (
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// lifetimes checks the ttl of whole maps.
func lifetimes() []test {
	return []test{
		{"Absolute", absoluteLifetime},
		{"Sliding", slidingLifetime},
		{"NothingDoneSlidesNothing", slidingIdle},
		{"TheEndBeginsAnother", lifetimeEnds},
		{"Mismatch", lifetimeMismatch},
		{"NilGoesAlong", lifetimeNil},
		{"ForEver", lifetimeForEver},
		{"ToTheMillisecond", lifetimeGrain},
		{"EntryAndMap", entryOutlivesMap},
	}
}

func (e *env) expires(want int64) {
	e.Helper()
	equal(e, "the end that the head tells", e.head().Expires, want)
}

func absoluteLifetime(e *env) {
	l := rmap.Lifetime{TTL: long}
	c := e.change(living(l, set("k", "v")))
	end := c.Now + long.Milliseconds()
	equal(e, "the end of the map", c.Expires, end)
	equal(e, "the lifetime", e.head().Lifetime, l)
	e.until("the clock goes on", func() bool { return e.head().Now > c.Now })
	for _, w := range []rmap.Write{living(l, set("k", "w")), write(add("n", 1)), write(del("k")), living(l, reset()),
		living(l, set("k", "x")), write(lasting(2*long, set("k", "y")))} {
		equal(e, "the end of the map", e.change(w).Expires, end)
		e.expires(end)
		equal(e, "the lifetime", e.head().Lifetime, l)
	}
}

func slidingLifetime(e *env) {
	l := rmap.Lifetime{TTL: long, Sliding: true}
	for _, w := range []rmap.Write{living(l, set("k", "v")), living(l, set("k", "w")), write(add("n", 1)), write(del("k")), write(reset()), write(set("k", "v"))} {
		now := e.head().Now
		e.until("the clock goes on", func() bool { return e.head().Now > now })
		c := e.change(w)
		equal(e, "the end of the map", c.Expires, c.Now+long.Milliseconds())
		e.expires(c.Expires)
		equal(e, "the lifetime", e.head().Lifetime, l)
	}
}

func slidingIdle(e *env) {
	l := rmap.Lifetime{TTL: long, Sliding: true}
	c := e.change(living(l, set("k", "v"), app("l", "x")))
	e.until("the clock goes on", func() bool { return e.head().Now > c.Now })
	e.conflict(1, given(absent("k"), set("k", "w")))
	e.same(living(l, del("nothing")))
	e.same(write(app("l")))
	e.same(write(uniq("l", "x")))
	e.same(rmap.Write{})
	e.refuse(write(add("k", 1)), rmap.ErrKind)
	e.scan(e.first, e.name)
	e.expires(c.Expires)
}

// What ends by its lifetime is gone as a whole, and the next write begins another life that knows nothing of it.
func lifetimeEnds(e *env) {
	for _, sliding := range []bool{false, true} {
		l := rmap.Lifetime{TTL: short, Sliding: sliding}
		c := e.change(living(l, set("k", "v"), set("old", "o")))
		equal(e, "the end of the map", c.Expires, c.Now+short.Milliseconds())
		e.reach(c.Expires)
		if h := e.head(); h != (rmap.Head{Now: h.Now}) {
			e.Fatalf("past its end the map is %+v", h)
		}
		if got := e.entries(); len(got) != 0 {
			e.Fatalf("past its end the map has %+v", got)
		}
		if got := e.since(c.Revision); len(got) != 0 {
			e.Fatalf("past its end the map has changes: %+v", got)
		}
		if r := e.same(want(del("k"))); !r.Revision.IsZero() || r.Old[0] != nil {
			e.Fatalf("past its end the map told %+v", r)
		}
		if now := e.conflict(1, given(written("k", c.Revision.Nonce), set("k", "w"))); now != nil {
			e.Fatalf("past its end an entry is %+v", now)
		}
		next := e.change(write(set("new", "n")))
		if next.Revision.Generation == c.Revision.Generation || next.Revision.Number != 1 || next.Prev != 0 || next.Expires != 0 {
			e.Fatalf("after the end of %v came %+v", c.Revision, next)
		}
		e.has(map[string]rmap.Value{"new": plain("n")})
		if h := e.head(); h.Cleared != 0 || h.Lifetime != (rmap.Lifetime{}) {
			e.Fatalf("the new life has the head %+v", h)
		}
		if got := e.since(c.Revision); len(got) != 0 {
			e.Fatalf("the new life follows from the old one: %+v", got)
		}
		// Destroyed, so that the next round begins with a lifetime of its own.
		e.change(write(destroy()))
	}
}

func lifetimeMismatch(e *env) {
	e.change(living(rmap.Lifetime{TTL: long}, set("k", "v")))
	for _, l := range []rmap.Lifetime{{}, {TTL: 2 * long}, {TTL: long, Sliding: true}, {TTL: long + time.Millisecond}} {
		e.refuse(living(l, set("k", "w")), rmap.ErrLifetime)
		e.refuse(living(l, destroy()), rmap.ErrLifetime)
		e.refuse(living(l), rmap.ErrLifetime)
		// That the writer is wrong about the map comes before what it asks of it.
		w := given(absent("k"), set("k", "w"))
		w.Lifetime = &l
		e.refuse(w, rmap.ErrLifetime)
	}
	e.has(map[string]rmap.Value{"k": plain("v")})
	e.change(living(rmap.Lifetime{TTL: long}, set("k", "w")))
}

func lifetimeNil(e *env) {
	c := e.change(living(rmap.Lifetime{TTL: long}, set("k", "v")))
	e.change(write(set("k", "w")))
	e.expires(c.Expires)
	equal(e, "the lifetime", e.head().Lifetime, rmap.Lifetime{TTL: long})
}

func lifetimeForEver(e *env) {
	c := e.change(write(set("k", "v")))
	equal(e, "the end of the map", c.Expires, 0)
	e.expires(0)
	equal(e, "the lifetime", e.head().Lifetime, rmap.Lifetime{})
	e.change(living(rmap.Lifetime{}, set("k", "w")))
	e.refuse(living(rmap.Lifetime{TTL: long}, set("k", "x")), rmap.ErrLifetime)
	e.refuse(living(rmap.Lifetime{TTL: long, Sliding: true}, set("k", "x")), rmap.ErrLifetime)
	// Neither a clear nor the deletion of everything begins anew.
	e.change(write(reset()))
	e.refuse(living(rmap.Lifetime{TTL: long}, set("k", "x")), rmap.ErrLifetime)
}

func lifetimeGrain(e *env) {
	for _, ttl := range []time.Duration{1500 * time.Millisecond, 2999 * time.Millisecond, 1234567 * time.Millisecond, rmap.MaxTTL} {
		l := rmap.Lifetime{TTL: ttl}
		c := e.change(living(l, set("k", "v")))
		equal(e, "the end of the map", c.Expires, c.Now+ttl.Milliseconds())
		equal(e, "the lifetime", e.head().Lifetime, l)
		e.change(write(destroy()))
	}
}

func entryOutlivesMap(e *env) {
	l := rmap.Lifetime{TTL: short}
	c := e.change(living(l, lasting(long, set("k", "v"))))
	e.reach(c.Expires)
	e.has(nil)
	e.change(write(set("other", "w")))
	e.has(map[string]rmap.Value{"other": plain("w")})
	e.same(write(expire("k")))
}
