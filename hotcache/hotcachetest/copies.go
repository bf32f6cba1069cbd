package hotcachetest

import (
	"context"
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func copies() []test {
	return []test{
		{name: "Put", fn: putCopy},
		{name: "OlderDoesNotReplace", fn: olderCopy},
		{name: "TimesPass", fn: copyTimes},
		{name: "AreNoItems", fn: copiesAreNoItems},
	}
}

func (e *env) copyIs(key string, want *hotcache.Copy) *hotcache.Copy {
	e.Helper()
	c, err := e.second.GetCopy(e.ctx, key)
	switch {
	case err != nil:
		e.Fatalf("copy of %q: %v", key, err)
	case (c == nil) != (want == nil), c != nil && (!same(c.Item, want.Item) || c.Stamp != want.Stamp):
		e.Fatalf("the copy is %+v, want %+v", c, want)
	}
	return c
}

func (e *env) putCopy(key string, c hotcache.Copy) {
	e.Helper()
	if err := e.first.PutCopy(e.ctx, key, c); err != nil {
		e.Fatalf("put a copy of %q: %v", key, err)
	}
}

func copied(generation, number uint64, data string) hotcache.Copy {
	return hotcache.Copy{Item: row(7, data), Times: fine(), Stamp: hotcache.Stamp{Generation: generation, Number: number}}
}

func putCopy(e *env) {
	e.copyIs("k", nil)
	c := copied(1<<63+1, 1<<60+3, "v")
	e.putCopy("k", c)
	e.copyIs("k", &c)
	e.copyIs("j", nil)
	c = hotcache.Copy{Item: hotcache.Item{Version: 1, Absent: true}, Times: fine(), Stamp: c.Stamp}
	e.putCopy("j", c)
	e.copyIs("j", &c)
}

func olderCopy(e *env) {
	const big = 1<<60 + 1
	first := copied(5, big, "first")
	e.putCopy("k", first)
	e.putCopy("k", copied(5, big-1, "older"))
	e.copyIs("k", &first)
	same := copied(5, big, "same")
	e.putCopy("k", same)
	e.copyIs("k", &same)
	newer := copied(5, big+1, "newer")
	e.putCopy("k", newer)
	e.copyIs("k", &newer)
	other := copied(4, 0, "of another generation")
	e.putCopy("k", other)
	e.copyIs("k", &other)
}

func copyTimes(e *env) {
	c := copied(1, 1, "v")
	c.Times = hotcache.Times{Soft: -1, Hard: short, Keep: long}
	before := time.Now()
	e.putCopy("k", c)
	e.until("a copy is past its hard time", func() bool {
		got, err := e.second.GetCopy(e.ctx, "k")
		if err != nil {
			e.Fatal(err)
		}
		if got != nil && (got.Times.Hard > c.Times.Hard+near || got.Times.Soft > near) {
			e.Fatalf("the times are %+v, of %+v", got.Times, c.Times)
		}
		return got == nil
	})
	if took := time.Since(before); took < short-near {
		e.Errorf("a copy was gone after %v", took)
	}
	c.Times = hotcache.Times{Soft: -1, Hard: 0, Keep: long}
	e.putCopy("k", c)
	e.copyIs("k", nil)
	c.Times = fine()
	e.putCopy("k", c)
	got := e.copyIs("k", &c)
	if least := c.Times.Minus(time.Since(before) + near); got.Times.Soft < least.Soft || got.Times.Soft > c.Times.Soft+near ||
		got.Times.Hard < least.Hard || got.Times.Keep < least.Keep {
		e.Errorf("the times are %+v, of %+v", got.Times, c.Times)
	}
}

// copiesAreNoItems: whether a copy may still be used is decided by who reads it.
func copiesAreNoItems(e *env) {
	c := copied(1, 1, "copy")
	e.putCopy("k", c)
	e.is(e.ask("k", 0, 0), core.Miss)
	e.put("k", row(9, "item"), fine())
	e.copyIs("k", &c)
	e.holds(e.state("k", core.Hit), row(9, "item"))
	e.hears(e.w, e.invalidate("k", 0))
	e.copyIs("k", &c)
	e.is(e.ask("k", 0, 0), core.Miss)
}

func contexts() []test {
	return []test{{name: "EndedBefore", fn: endedBefore}}
}

// endedBefore: what is asked in a context that has ended is not done.
func endedBefore(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	a := e.lease("k")
	n := e.first
	for what, do := range map[string]func() error{
		"ask": func() error { _, err := n.Ask(ctx, hotcache.Ask{Key: "j", Token: e.token()}); return err },
		"fill": func() error {
			_, err := n.Fill(ctx, hotcache.Fill{Key: "k", Token: a.Token, Times: fine()})
			return err
		},
		"renew":      func() error { _, err := n.Renew(ctx, "k", a.Token); return err },
		"fail":       func() error { return n.Fail(ctx, "k", a.Token, "because", long) },
		"invalidate": func() error { _, _, err := n.Invalidate(ctx, "k", 0, ""); return err },
		"get a copy": func() error { _, err := n.GetCopy(ctx, "k"); return err },
		"beat":       func() error { _, err := e.w.feed.Beat(ctx, long); return err },
		"tell":       func() error { return e.other.feed.Tell(ctx, "first", "text") },
		"put a copy": func() error { return n.PutCopy(ctx, "k", copied(1, 1, "")) },
	} {
		if err := do(); !errors.Is(err, context.Canceled) {
			e.Errorf("%s: %v, want %v", what, err, context.Canceled)
		}
	}
	if p := e.beat(e.other); p.Number != 0 {
		e.Errorf("it was invalidated all the same: %+v", p)
	}
	if !e.renew("k", a.Token) {
		e.Error("the lease is gone")
	}
	e.lease("j")
	e.copyIs("k", nil)
	e.toldTo(e.w)
}
