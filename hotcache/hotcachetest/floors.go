package hotcachetest

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func floors() []test {
	return []test{
		{name: "Young", fn: young},
		{name: "Raised", rules: hotcache.Rules{FloorTTL: while}, fn: raised},
		{name: "NeverLowered", rules: hotcache.Rules{FloorTTL: while}, fn: neverLowered},
		{name: "OneWithoutAVersion", rules: hotcache.Rules{FloorTTL: while}, fn: withoutAVersion},
		{name: "Remembered", rules: hotcache.Rules{FloorTTL: 300 * time.Millisecond}, fn: rememberedFloors},
		{name: "TooMany", rules: hotcache.Rules{MaxFloors: 8}, fn: tooMany},
		{name: "TooManyOfOneKey", rules: hotcache.Rules{MaxFloors: 8}, fn: tooManyOfOne},
	}
}

// young: what was invalidated before this generation is not known, so everything is loaded fresh.
func young(e *env) {
	if a := e.lease("k"); a.Min != hotcache.Fresh || a.Floor != 0 {
		e.Errorf("a young node has %d loaded, with a floor of %d", a.Min, a.Floor)
	}
	e.invalidate("j", 5)
	if a := e.lease("j"); a.Min != hotcache.Fresh || a.Floor != 5 {
		e.Errorf("a young node has %d loaded, with a floor of %d", a.Min, a.Floor)
	}
}

// load asks for a lease with a least version and gives it back.
func (e *env) load(key string, min hotcache.Version) hotcache.Answer {
	e.Helper()
	a := e.ask(key, min, e.token())
	e.is(a, core.Lease)
	e.fail(key, a.Token, "", 0)
	return a
}

// wants checks what a load must ask for, and what may be stored.
func (e *env) wants(since time.Time, key string, min, load, store hotcache.Version) {
	e.Helper()
	if a := e.load(key, min); a.Min != load || a.Floor != store {
		e.slow(since)
		e.Fatalf("a load of %q that wants %d must bring %d, and %d to be stored; want %d and %d", key, min, a.Min, a.Floor, load, store)
	}
}

func raised(e *env) {
	since := e.settle()
	e.wants(since, "k", 0, 0, 0)
	e.wants(since, "k", 5, 5, 0)
	e.wants(since, "k", hotcache.Fresh, hotcache.Fresh, 0)
	e.invalidate("k", 7)
	e.wants(since, "k", 0, 7, 7)
	e.wants(since, "k", 7, 7, 7)
	e.wants(since, "k", 8, 8, 7)
	e.wants(since, "k", hotcache.Fresh, hotcache.Fresh, 7)
	e.wants(since, "j", 0, 0, 0)
	a := e.lease("k")
	if r := e.fill("k", a.Token, row(9, ""), fine()); r.Refusal != core.Stored || r.Floor != 7 {
		e.slow(since)
		e.Errorf("a fill above the floor got %+v", r)
	}
}

func neverLowered(e *env) {
	since := e.settle()
	const big = 1<<63 + 5
	for _, v := range []hotcache.Version{7, 3, 7, big, 8, big - 1} {
		e.invalidate("k", v)
	}
	e.wants(since, "k", 0, big, big)
	e.put("k", row(big, ""), fine())
	e.is(e.ask("k", 0, 0), core.Hit)
	e.wants(since, "k", big+1, big+1, big)
}

// withoutAVersion: no version is known to be new enough, and none is forgotten.
func withoutAVersion(e *env) {
	since := e.settle()
	e.invalidate("k", 0)
	e.wants(since, "k", 0, hotcache.Fresh, 0)
	e.wants(since, "k", 5, hotcache.Fresh, 0)
	e.invalidate("k", 5)
	e.wants(since, "k", 0, hotcache.Fresh, 5)
	e.invalidate("j", 6)
	e.wants(since, "j", 0, 6, 6)
	e.invalidate("j", 0)
	e.wants(since, "j", 0, hotcache.Fresh, 6)
	e.invalidate("j", 4)
	e.wants(since, "j", 9, hotcache.Fresh, 6)
	a := e.lease("j")
	if r := e.fill("j", a.Token, row(5, ""), fine()); r.Refusal != core.Outdated {
		e.slow(since)
		e.Errorf("a version that was named was forgotten: %+v", r)
	}
}

// rememberedFloors: a floor is known for FloorTTL at least and twice that at most, or rather until the next question: a
// node need not look before it is asked, so where the machine is busy the time between two questions counts too.
func rememberedFloors(e *env) {
	e.settle()
	for i := range 4 {
		key := fmt.Sprint(i)
		before := time.Now()
		e.invalidate(key, 5)
		after := time.Now()
		for last, gap := before, near; ; {
			asked := time.Now()
			a := e.load(key, 0)
			gap, last = max(gap, time.Since(last)), asked
			if a.Floor != 0 {
				if asked.Sub(after) > 2*e.rules.FloorTTL+gap {
					e.Fatalf("a floor is known after %v", asked.Sub(after))
				}
				e.put("other", row(1, ""), fine())
				time.Sleep(near) // it takes a while
				continue
			}
			if since := time.Since(before); since < e.rules.FloorTTL {
				e.Fatalf("a floor was forgotten after %v", since)
			}
			break
		}
		time.Sleep(e.rules.FloorTTL * time.Duration(i) / 3) // so that the next comes at another point of the halves
	}
}

func tooMany(e *env) {
	first := e.beat(e.w)
	e.put("item", row(1, "v"), fine())
	e.fail("failed", e.lease("failed").Token, "because", long)
	a := e.lease("loading")
	var last hotcache.Invalidation
	most := e.rules.MaxFloors
	for i := range most {
		last = e.invalidate(fmt.Sprint(i), 1)
	}
	if last.Generation != first.Generation || last.Number != uint64(most) {
		e.Fatalf("%d floors made %+v of %+v", most, last, first)
	}
	e.is(e.ask("item", 0, 0), core.Hit)
	inv := e.invalidate("one more", 1)
	if inv.Generation == first.Generation || inv.Number != 1 || inv.Prev == 0 {
		e.Fatalf("one floor too many made %+v of %+v", inv, last)
	}
	e.hears(e.other, inv)
	if p := e.beat(e.other); p != inv.Position {
		e.Errorf("the position is %+v after %+v", p, inv)
	}
	if b := e.lease("item"); b.Item != nil || b.Min != hotcache.Fresh {
		e.Errorf("something of another generation is left: %+v", b)
	}
	e.lost("loading", a.Token)
	e.lease("loading")
	e.lease("failed")
	if b := e.lease("0"); b.Floor != 0 {
		e.Errorf("a floor is left: %+v", b)
	}
	if b := e.lease("one more"); b.Floor != 1 {
		e.Errorf("the last invalidation left no floor: %+v", b)
	}
}

// tooManyOfOne: a key has one floor, however often it is invalidated.
func tooManyOfOne(e *env) {
	first := e.invalidate("k", 1)
	for i := range 5 * e.rules.MaxFloors {
		if inv := e.invalidate("k", hotcache.Version(i)); inv.Generation != first.Generation {
			e.Fatalf("a generation began at %d floors of one key", i+2)
		}
	}
}
