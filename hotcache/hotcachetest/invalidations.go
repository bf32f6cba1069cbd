package hotcachetest

import (
	"fmt"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func invalidations() []test {
	return []test{
		{name: "Numbers", fn: numbers},
		{name: "RemovesWhatIsOlder", fn: removesWhatIsOlder},
		{name: "VoidsAnyLease", fn: voidsAnyLease},
		{name: "VoidsALeaseForLess", rules: hotcache.Rules{FloorTTL: while}, fn: voidsALeaseForLess},
		{name: "IsHeard", fn: isHeard},
		{name: "Twice", fn: twice},
		{name: "OthersStay", fn: othersStay},
	}
}

func numbers(e *env) {
	before := e.beat(e.w)
	for range 5 {
		inv := e.invalidate("k", 1)
		if inv.Generation != before.Generation || inv.Number != before.Number+1 || inv.Prev != before.Nonce ||
			inv.Nonce == 0 || inv.Nonce == before.Nonce || inv.Key != "k" || inv.Version != 1 {
			e.Fatalf("after %+v came %+v", before, inv)
		}
		if before = e.beat(e.other); before != inv.Position {
			e.Fatalf("after %+v the position is %+v", inv, before)
		}
	}
}

func removesWhatIsOlder(e *env) {
	const big = 1<<63 + 1<<40
	for i, c := range []struct {
		item, invalidated hotcache.Version
		stays             bool
	}{
		{1, 2, false}, {2, 2, true}, {3, 2, true}, {0, 1, false}, {1, 0, false}, {0, 0, false}, {big, big + 1, false}, {big, big, true},
		{big, 1, true}, {1, big, false}, {9, 10, false}, {10, 9, true}, {1<<32 - 1, 1 << 32, false}, {1 << 32, 1<<32 - 1, true},
	} {
		for j, times := range []hotcache.Times{fine(), {Soft: -1, Hard: -1, Keep: long}} {
			key := fmt.Sprint(i, j)
			e.put(key, row(c.item, "v"), times)
			e.invalidate(key, c.invalidated)
			if a := e.ask(key, 0, 0); (a.Item != nil) != c.stays {
				e.Errorf("version %d after an invalidation of %d: %+v", c.item, c.invalidated, a)
			}
		}
	}
}

func voidsAnyLease(e *env) {
	for _, min := range []hotcache.Version{0, 7, hotcache.Fresh} {
		a := e.ask("k", min, e.token())
		e.is(a, core.Lease)
		e.invalidate("k", 0)
		e.lost("k", a.Token)
	}
}

// voidsALeaseForLess: a load that asks for at least the version that is written may go on.
func voidsALeaseForLess(e *env) {
	since := e.settle()
	for _, c := range []struct {
		min, written hotcache.Version
		void         bool
	}{{0, 5, true}, {4, 5, true}, {5, 5, false}, {6, 5, false}, {hotcache.Fresh, 5, false}, {1 << 63, 1<<63 + 1, true}} {
		key := string(rune('a' + c.min%16))
		a := e.ask(key, c.min, e.token())
		e.is(a, core.Lease)
		if a.Min != c.min {
			e.slow(since)
			e.Fatalf("asked for %d, the load is to ask for %d", c.min, a.Min)
		}
		e.invalidate(key, c.written)
		if held := e.renew(key, a.Token); held == c.void {
			e.Errorf("a load of at least %d is under way when %d is written, and is held: %t", c.min, c.written, held)
		}
	}
}

func isHeard(e *env) {
	for i, by := range []hotcache.Member{"first", "second", "stranger", ""} {
		inv, _ := e.invalidateBy("k", hotcache.Version(i), by)
		for _, w := range []*witness{e.w, e.other} {
			if h := e.hears(w, inv); h.Invalidation != inv || h.by != by {
				e.Errorf("%+v by %q was heard by %s as %+v by %q", inv, by, w.as, h.Invalidation, h.by)
			}
		}
	}
}

// twice: whatever is asked of a node can be done again without harm.
func twice(e *env) {
	e.put("k", row(1, "v"), fine())
	one, two := e.invalidate("k", 2), e.invalidate("k", 2)
	if two.Number != one.Number+1 || two.Prev != one.Nonce {
		e.Errorf("after %+v came %+v", one, two)
	}
	if a := e.lease("k"); a.Floor != 2 {
		e.Errorf("the floor is %d", a.Floor)
	}
}

func othersStay(e *env) {
	for _, key := range []string{"k", "kk", "K"} {
		e.put(key, row(1, key), fine())
	}
	a := e.lease("loading")
	e.invalidate("k", 0)
	e.is(e.ask("k", 0, 0), core.Miss)
	for _, key := range []string{"kk", "K"} {
		e.holds(e.state(key, core.Hit), row(1, key))
	}
	if !e.renew("loading", a.Token) {
		e.Error("the lease of another key was voided")
	}
}
