package hotcachetest

import (
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func fills() []test {
	return []test{
		{name: "BelowTheFloor", fn: belowTheFloor},
		{name: "BelowTheItem", fn: belowTheItem},
		{name: "BelowWhatIsGone", fn: belowWhatIsGone},
		{name: "Unversioned", fn: unversioned},
		{name: "Stamp", fn: fillStamp},
	}
}

func belowTheFloor(e *env) {
	const v = 1<<63 + 9
	e.invalidate("k", v)
	for i, version := range []hotcache.Version{0, 1, v - 1} {
		a := e.lease("k")
		if a.Floor != v {
			e.Fatalf("the floor is %d, want %d", a.Floor, uint64(v))
		}
		if r := e.fill("k", a.Token, row(version, "old"), fine()); r.Refusal != core.Outdated || r.Floor != v {
			e.Fatalf("fill %d below the floor got %+v", i, r)
		}
		e.is(e.ask("k", 0, 0), core.Miss)
	}
	for _, version := range []hotcache.Version{v, v + 1} {
		e.put("k", row(version, "new"), fine())
		e.holds(e.state("k", core.Hit), row(version, "new"))
	}
}

func belowTheItem(e *env) {
	e.put("k", row(7, "v"), fine())
	a := e.ask("k", hotcache.Fresh, e.token())
	if r := e.fill("k", a.Token, row(6, "old"), fine()); r.Refusal != core.Outdated || r.Floor != 7 {
		e.Errorf("a fill below the item got %+v", r)
	}
	e.holds(e.state("k", core.Hit), row(7, "v"))
	e.put("k", row(7, "again"), fine())
	e.holds(e.state("k", core.Hit), row(7, "again"))
	// A negative entry hides no insert, nor the other way round.
	e.put("k", hotcache.Item{Version: 8, Absent: true}, fine())
	a = e.ask("k", hotcache.Fresh, e.token())
	if r := e.fill("k", a.Token, row(7, "deleted"), fine()); r.Refusal != core.Outdated {
		e.Errorf("a row that was deleted came back: %+v", r)
	}
	e.put("k", row(9, "inserted"), fine())
	e.holds(e.state("k", core.Hit), row(9, "inserted"))
}

// belowWhatIsGone: an item that is not kept any more is none, whoever looked at it last.
func belowWhatIsGone(e *env) {
	e.put("k", row(7, "v"), hotcache.Times{Soft: short, Hard: short, Keep: short})
	a := e.ask("k", hotcache.Fresh, e.token())
	time.Sleep(2 * short) // more than it is kept; to ask whether it is would change what is tested
	if r := e.fill("k", a.Token, row(6, "older"), fine()); r.Refusal != core.Stored {
		e.Fatalf("a fill below what is gone got %+v", r)
	}
	e.holds(e.state("k", core.Hit), row(6, "older"))
}

func unversioned(e *env) {
	e.put("k", row(0, "a"), fine())
	e.holds(e.state("k", core.Hit), row(0, "a"))
	a := e.ask("k", hotcache.Fresh, e.token())
	e.invalidate("k", 0)
	e.is(e.ask("k", 0, 0), core.Miss)
	e.lost("k", a.Token)
	e.put("k", row(0, "b"), fine())
	e.holds(e.state("k", core.Hit), row(0, "b"))
}

func fillStamp(e *env) {
	for i := range 3 {
		a := e.lease("k")
		r := e.fill("k", a.Token, row(5, ""), fine())
		if r.Stamp != a.Stamp || r.Stamp != e.ask("k", 0, 0).Stamp {
			e.Errorf("the answer has the stamp %+v, the fill %+v", a.Stamp, r.Stamp)
		}
		if i > 0 && r.Stamp.Number != uint64(i) {
			e.Errorf("after %d invalidations the number is %d", i, r.Stamp.Number)
		}
		inv := e.invalidate("k", 0)
		if got := e.ask("k", 0, 0).Stamp; got != core.StampOf(inv.Position) {
			e.Errorf("after %+v the stamp is %+v", inv.Position, got)
		}
	}
}
