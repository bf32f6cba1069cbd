package hotcachetest

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func leases() []test {
	return []test{
		{name: "OfAnother", fn: ofAnother},
		{name: "EndsWithTheFill", fn: endsWithTheFill},
		{name: "Ends", rules: hotcache.Rules{LeaseTTL: short}, fn: leaseEnds},
		{name: "Renewed", rules: hotcache.Rules{LeaseTTL: while / 3}, fn: renewed},
		{name: "WakesByFill", fn: wakesByFill},
		{name: "WakesByFail", fn: wakesByFail},
		{name: "WakesNobody", fn: wakesNobody},
	}
}

// lost checks that a lease is of no use any more, and that what its holder does changes nothing.
func (e *env) lost(key string, t hotcache.Token) {
	e.Helper()
	if e.renew(key, t) {
		e.Error("a lease that is over was renewed")
	}
	before := e.ask(key, 0, 0)
	if r := e.fill(key, t, row(1<<60, "late"), fine()); r.Refusal != core.LostLease {
		e.Errorf("a late fill got %+v", r)
	}
	e.fail(key, t, "late", long)
	after := e.ask(key, 0, 0)
	if after.State != before.State || (after.Item == nil) != (before.Item == nil) || after.Item != nil && !same(*after.Item, *before.Item) {
		e.Errorf("a late filler changed %+v to %+v", before, after)
	}
}

func ofAnother(e *env) {
	a := e.lease("k")
	e.lost("k", a.Token+1000)
	e.is(e.ask("k", 0, e.token()), core.Busy)
	if !e.renew("k", a.Token) {
		e.Error("the lease is not held any more")
	}
	if r := e.fill("k", a.Token, row(1, "v"), fine()); r.Refusal != core.Stored {
		e.Errorf("the holder could not fill: %+v", r)
	}
	e.lost("nobody", e.token())
	e.is(e.ask("nobody", 0, e.token()), core.Lease)
}

func endsWithTheFill(e *env) {
	a := e.lease("k")
	if r := e.fill("k", a.Token, row(1, "v"), fine()); r.Refusal != core.Stored {
		e.Fatalf("not stored: %+v", r)
	}
	e.lost("k", a.Token)
	e.holds(e.state("k", core.Hit), row(1, "v"))
	b := e.lease("j")
	e.fail("j", b.Token, "because", 0)
	e.lost("j", b.Token)
	e.lease("j")
}

func leaseEnds(e *env) {
	before := e.lease("j")
	a := e.lease("k")
	var b hotcache.Answer
	e.until("somebody else gets the lease", func() bool {
		b = e.ask("k", 0, e.token())
		return b.State == core.Lease
	})
	e.lost("k", a.Token)
	e.fail("j", before.Token, "because", long) // that lease is over too, since it began before the other
	e.lost("j", before.Token)
	e.lease("j")
}

func renewed(e *env) {
	a := e.lease("k")
	last := time.Now()
	for begin := last; time.Since(begin) < 3*e.rules.LeaseTTL; {
		time.Sleep(e.rules.LeaseTTL / 10) // as its holder would
		held, gap := e.renew("k", a.Token), time.Since(last)
		if gap > e.rules.LeaseTTL*9/10 {
			e.Skip("the machine is too slow to judge this")
		}
		if !held {
			e.Fatalf("the lease of %v was lost %v after it was renewed", e.rules.LeaseTTL, gap)
		}
		last = time.Now()
	}
	if r := e.fill("k", a.Token, row(1, "v"), fine()); r.Refusal != core.Stored {
		e.Errorf("not stored: %+v", r)
	}
}

func wakesByFill(e *env) {
	for i, version := range []hotcache.Version{5, 4} { // stored, and refused
		key := []string{"k", "j"}[i]
		a := e.lease(key)
		e.is(e.askOf(e.second, key, 0, e.token()), core.Busy)
		if i == 1 {
			e.invalidate(key, 5)
		}
		e.fill(key, a.Token, row(version, ""), fine())
		for _, w := range []*witness{e.w, e.other} {
			if woken := e.wakes(w); !slices.Contains(woken, key) {
				e.Errorf("%s was not woken for %q: %q", w.as, key, woken)
			}
		}
	}
}

func wakesByFail(e *env) {
	for i, pause := range []time.Duration{long, 0} {
		key := []string{"k", "j"}[i]
		a := e.lease(key)
		e.is(e.ask(key, 0, e.token()), core.Busy)
		e.fail(key, a.Token, "because", pause)
		if woken := e.wakes(e.other); !slices.Contains(woken, key) {
			e.Errorf("nobody was woken: %q", woken)
		}
	}
}

func wakesNobody(e *env) {
	e.put("k", row(1, ""), fine())
	e.fail("j", e.lease("j").Token, "because", long)
	a := e.lease("i")
	e.renew("i", a.Token)
	e.ask("i", 0, 0)
	e.fill("i", a.Token, row(1, ""), fine())
	if woken := e.wakes(e.w); len(woken) != 0 {
		e.Errorf("somebody was woken for %q, and nobody waited", woken)
	}
}

func failures() []test {
	return []test{
		{name: "Shared", fn: failureShared},
		{name: "Ends", fn: failureEnds},
		{name: "LetsServe", fn: failureLetsServe},
		{name: "LongReason", fn: longReason},
		{name: "EndsByInvalidation", fn: failureInvalidated},
	}
}

func failureShared(e *env) {
	e.fail("k", e.lease("k").Token, "because of that", long)
	for _, n := range []hotcache.Node{e.first, e.second} {
		a := e.askOf(n, "k", 0, e.token())
		e.is(a, core.Failed)
		if a.Why != "because of that" || a.Retry > long {
			e.Errorf("it failed because of %q for %v", a.Why, a.Retry)
		}
	}
	e.lease("another")
	e.put("stale", row(1, "old"), hotcache.Times{Soft: -1, Hard: -1, Keep: long})
	e.fail("stale", e.lease("stale").Token, "because", long)
	e.holds(e.state("stale", core.Failed), row(1, "old"))
}

func failureEnds(e *env) {
	e.fail("k", e.lease("k").Token, "because", short)
	e.until("it may be loaded again", func() bool { return e.ask("k", 0, e.token()).State == core.Lease })
	e.fail("j", e.lease("j").Token, "because", 0)
	e.lease("j")
}

// failureLetsServe: a refresh that failed does not keep anybody from what is there.
func failureLetsServe(e *env) {
	e.put("k", row(1, "v"), hotcache.Times{Soft: -1, Hard: long, Keep: long})
	e.fail("k", e.state("k", core.Hit).Token, "because", long)
	a := e.state("k", core.Hit)
	e.holds(a, row(1, "v"))
	if a.Token != 0 {
		e.Error("it is to be refreshed again, right after that failed")
	}
}

func longReason(e *env) {
	e.fail("k", e.lease("k").Token, strings.Repeat("why ", 10_000), long)
	if a := e.state("k", core.Failed); !strings.HasPrefix(a.Why, "why ") || len(a.Why) > 4096 {
		e.Errorf("of a long reason, %d bytes were kept", len(a.Why))
	}
	for _, before := range []string{"", "x", "xx", "xxx"} { // whatever the limit is, one of them has it inside of a character
		e.fail("j"+before, e.lease("j"+before).Token, before+strings.Repeat("\U0001F512", 2_000), long)
		if a := e.state("j"+before, core.Failed); !utf8.ValidString(a.Why) {
			e.Errorf("a long reason was cut inside of a character: it ends with %q", a.Why[len(a.Why)-4:])
		}
	}
}

func failureInvalidated(e *env) {
	for _, v := range []hotcache.Version{0, 5} {
		e.fail("k", e.lease("k").Token, "because", long)
		e.invalidate("k", v)
		e.fail("k", e.lease("k").Token, "because", 0)
	}
}
