package hotcachetest

import (
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func asks() []test {
	return []test{
		{name: "OneLease", fn: oneLease},
		{name: "LookGrantsNothing", fn: lookGrantsNothing},
		{name: "Hit", fn: hit},
		{name: "TimesPass", fn: timesPass},
		{name: "Soft", fn: soft},
		{name: "Hard", fn: hard},
		{name: "Keep", fn: keep},
		{name: "Min", fn: minimum},
		{name: "Fresh", fn: fresh},
		{name: "Absent", fn: absent},
		{name: "AnyBytes", fn: anyBytes},
	}
}

func oneLease(e *env) {
	a := e.lease("k")
	if a.Item != nil {
		e.Errorf("there is an item: %v", a.Item)
	}
	for _, n := range []hotcache.Node{e.first, e.second} {
		b := e.askOf(n, "k", 0, e.token())
		e.is(b, core.Busy)
		if b.Retry > e.rules.LeaseTTL {
			e.Errorf("a lease of %v ends in %v", e.rules.LeaseTTL, b.Retry)
		}
	}
	e.lease("another")
}

func lookGrantsNothing(e *env) {
	e.is(e.ask("k", 0, 0), core.Miss)
	e.lease("k")
	e.is(e.ask("k", 0, 0), core.Miss)
	e.fail("other", e.lease("other").Token, "because", long)
	e.is(e.ask("other", 0, 0), core.Miss)
}

func hit(e *env) {
	e.put("k", row(7, "data"), fine())
	for _, n := range []hotcache.Node{e.first, e.second} {
		for _, token := range []hotcache.Token{0, e.token()} {
			a := e.askOf(n, "k", 0, token)
			e.is(a, core.Hit)
			e.holds(a, row(7, "data"))
			if a.Token != 0 {
				e.Error("a refresh is asked for long before its time")
			}
		}
	}
}

// near allows for the digits of a clock that is not as fine as that of this process.
const near = 2 * time.Millisecond

func timesPass(e *env) {
	given := hotcache.Times{Soft: long, Hard: 2 * long, Keep: 3 * long}
	before := time.Now()
	e.put("k", row(1, ""), given)
	for range 3 {
		time.Sleep(short) // so that there is something to see
		asked := time.Now()
		a := e.state("k", core.Hit)
		least, most := given.Minus(time.Since(before)+near), given.Minus(time.Until(asked)-near)
		for _, d := range []struct{ least, is, most time.Duration }{
			{least.Soft, a.Times.Soft, most.Soft}, {least.Hard, a.Times.Hard, most.Hard}, {least.Keep, a.Times.Keep, most.Keep},
		} {
			if d.is < d.least || d.is > d.most {
				e.Fatalf("the times are %+v, want between %+v and %+v", a.Times, least, most)
			}
		}
	}
	if a := e.state("k", core.Hit); a.Times.Soft > given.Soft-3*short+near {
		e.Errorf("times do not pass: %+v", a.Times)
	}
}

// soft: one of those who ask refreshes, the others are served.
func soft(e *env) {
	e.put("k", row(1, "old"), hotcache.Times{Soft: -1, Hard: long, Keep: long})
	if a := e.ask("k", 0, 0); a.State != core.Hit || a.Token != 0 {
		e.Fatalf("a look got %+v", a)
	}
	a := e.state("k", core.Hit)
	e.holds(a, row(1, "old"))
	if a.Token == 0 {
		e.Fatal("nobody is to refresh it")
	}
	for _, n := range []hotcache.Node{e.first, e.second} {
		if b := e.askOf(n, "k", 0, e.token()); b.State != core.Hit || b.Token != 0 {
			e.Fatalf("while it is refreshed, another one got %+v", b)
		}
	}
	if r := e.fill("k", a.Token, row(1, "new"), fine()); r.Refusal != core.Stored {
		e.Fatalf("the refresh was not stored: %+v", r)
	}
	e.holds(e.state("k", core.Hit), row(1, "new"))
}

// hard: it is told, for those who may serve it, and has to be loaded.
func hard(e *env) {
	e.put("k", row(1, "old"), hotcache.Times{Soft: -2, Hard: -1, Keep: long})
	for _, a := range []hotcache.Answer{e.ask("k", 0, 0), e.lease("k"), e.state("k", core.Busy)} {
		e.holds(a, row(1, "old"))
		if a.Times.Hard > 0 || a.Times.Keep <= 0 || a.Times.Keep > long {
			e.Errorf("the times are %+v", a.Times)
		}
	}
}

func keep(e *env) {
	e.put("k", row(1, "old"), hotcache.Times{Soft: long, Hard: long, Keep: 0})
	if a := e.lease("k"); a.Item != nil {
		e.Errorf("an item that was never good is given out: %+v", a)
	}
	e.put("j", row(1, "old"), hotcache.Times{Soft: -1, Hard: -1, Keep: short})
	e.until("an item is gone", func() bool { return e.ask("j", 0, 0).Item == nil })
	// One whose time is over takes the place of another all the same.
	e.put("i", row(1, "old"), fine())
	e.put("i", row(1, "new"), hotcache.Times{Soft: long, Hard: long, Keep: -1})
	if a := e.lease("i"); a.Item != nil {
		e.Errorf("an item that was replaced is given out: %+v", a)
	}
}

// minimum: an item below the least version is none.
func minimum(e *env) {
	const big = 1<<63 + 1<<40 // no float knows the difference to the next
	e.put("k", row(big, "v"), fine())
	for _, min := range []hotcache.Version{0, 1, big - 1, big} {
		a := e.ask("k", min, e.token())
		e.is(a, core.Hit)
		e.holds(a, row(big, "v"))
	}
	if a := e.ask("k", big+1, 0); a.State != core.Miss || a.Item != nil {
		e.Errorf("asked for more than there is: %+v", a)
	}
	a := e.ask("k", big+1, e.token())
	e.is(a, core.Lease)
	if a.Item != nil || a.Min < big+1 {
		e.Errorf("asked for more than there is: %+v", a)
	}
	e.is(e.ask("k", big+1, e.token()), core.Busy)
	e.is(e.ask("k", big, e.token()), core.Hit)
}

func fresh(e *env) {
	e.put("k", row(1, "v"), fine())
	a := e.ask("k", hotcache.Fresh, e.token())
	e.is(a, core.Lease)
	if a.Item != nil || a.Min != hotcache.Fresh {
		e.Errorf("asked for it fresh: %+v", a)
	}
}

func absent(e *env) {
	gone := hotcache.Item{Version: 3, Absent: true}
	e.put("k", gone, fine())
	a := e.state("k", core.Hit)
	e.holds(a, gone)
	if len(a.Item.Data) != 0 {
		e.Errorf("a row that is not there has data: %q", a.Item.Data)
	}
}

func anyBytes(e *env) {
	for _, key := range []string{" ", "\x00", "a\nb", "{x}", "ключ", "\xff\xfe", "?", "u", strings.Repeat("k", hotcache.MaxKey)} {
		for _, data := range []string{"", "\x00\r\n ", strings.Repeat("\xff", 1<<20)} {
			e.put(key, row(1, data), fine())
			e.holds(e.state(key, core.Hit), row(1, data))
		}
		if h := e.hears(e.other, e.invalidate(key, 2)); h.Key != key {
			e.Errorf("the key %.20q was heard as %.20q", key, h.Key)
		}
		e.is(e.ask(key, 0, 0), core.Miss)
	}
}
