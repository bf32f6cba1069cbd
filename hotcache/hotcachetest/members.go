package hotcachetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

func members() []test {
	return []test{
		{name: "Beat", fn: beatRegisters},
		{name: "Lapse", fn: lapse},
		{name: "Close", fn: closeTakesOff},
		{name: "Longer", fn: longer},
	}
}

// waits returns who has to be waited for, without those that the suite does not know: a node that may have forgotten
// somebody names one that nobody is.
func (e *env) waits(by hotcache.Member) []hotcache.Member {
	e.Helper()
	inv, got := e.invalidateBy("k", 1, by)
	e.hears(e.w, inv)
	var out []hotcache.Member
	for _, m := range got {
		if m == by {
			e.Errorf("%q is to wait for itself", by)
		}
		if slices.Contains(out, m) {
			e.Errorf("%q is named twice", m)
		}
		if slices.ContainsFunc(e.all, func(w *witness) bool { return w.as == m }) {
			out = append(out, m)
		}
	}
	slices.Sort(out)
	return out
}

func (e *env) waitsFor(by hotcache.Member, want ...hotcache.Member) {
	e.Helper()
	if got := e.waits(by); !slices.Equal(got, want) {
		e.Errorf("%q is to wait for %q, want %q", by, got, want)
	}
}

func beatRegisters(e *env) {
	e.waitsFor("stranger")
	e.beat(e.w)
	e.waitsFor("stranger", "first")
	e.waitsFor("first")
	e.beat(e.other)
	e.waitsFor("stranger", "first", "second")
	e.waitsFor("", "first", "second")
	e.waitsFor("first", "second")
	e.waitsFor("second", "first")
}

func lapse(e *env) {
	e.beat(e.w)
	if _, err := e.other.feed.Beat(e.ctx, short); err != nil {
		e.Fatal(err)
	}
	e.until("a member is off the list", func() bool { return !slices.Contains(e.waits(""), "second") })
	e.waitsFor("", "first")
	e.beat(e.other)
	e.waitsFor("", "first", "second")
}

// longer: the last beat counts.
func longer(e *env) {
	before := time.Now()
	for _, trust := range []time.Duration{short, while} {
		if _, err := e.other.feed.Beat(e.ctx, trust); err != nil {
			e.Fatal(err)
		}
	}
	time.Sleep(2 * short) // more than the first
	if got := e.waits(""); !slices.Contains(got, "second") {
		if time.Since(before) > while*9/10 {
			e.Skip("the machine is too slow to judge this")
		}
		e.Errorf("a member was taken off the list by its beat before the last: %q", got)
	}
}

func closeTakesOff(e *env) {
	e.beat(e.w)
	e.beat(e.other)
	third := e.follow(e.second, "third")
	e.beat(third)
	e.waitsFor("", "first", "second", "third")
	third.close()
	e.waitsFor("", "first", "second")
}

func feeds() []test {
	return []test{
		{name: "BeatIsInOrder", fn: beatIsInOrder},
		{name: "BeatOfWhatWasDone", fn: beatOfWhatWasDone},
		{name: "Tell", fn: tell},
		{name: "TellAnything", fn: tellAnything},
		{name: "CloseIsTheEnd", fn: closeIsTheEnd},
	}
}

// beatIsInOrder: when a position is there, everything up to it has been heard, while others write.
func beatIsInOrder(e *env) {
	const writers, each = 4, 50
	done := make(chan error, writers)
	for i := range writers {
		go func() {
			for range each {
				if _, _, err := e.second.Invalidate(e.ctx, fmt.Sprint(i), 1, ""); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for left := writers; left > 0; {
		select {
		case err := <-done:
			left--
			if err != nil {
				e.Error(err)
			}
		default:
		}
		for _, w := range []*witness{e.w, e.other} {
			p := e.beat(w)
			w.mu.Lock()
			if n := len(w.heard); p.Number > 0 && (n == 0 || w.heard[n-1].Number < p.Number) {
				w.complain("number %d was given, and %d heard", p.Number, n)
			}
			w.mu.Unlock()
		}
	}
	if p := e.beat(e.w); p.Number != writers*each {
		e.Errorf("after %d invalidations the number is %d", writers*each, p.Number)
	}
}

// beatOfWhatWasDone: a beat that begins after an invalidation has returned is not before it.
func beatOfWhatWasDone(e *env) {
	for range 50 {
		inv := e.invalidate("k", 0)
		if p := e.beat(e.other); p != inv.Position {
			e.Fatalf("after %+v the position is %+v", inv, p)
		}
		if n := e.other.count(); n == 0 || e.other.heard[n-1].Position != inv.Position {
			e.Fatalf("a beat returned before the last invalidation was heard")
		}
	}
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.heard)
}

func (e *env) tell(from *witness, to hotcache.Member, text string) {
	e.Helper()
	if err := from.feed.Tell(e.ctx, to, text); err != nil {
		e.Fatal(err)
	}
}

func (e *env) toldTo(w *witness, want ...string) {
	e.Helper()
	e.until("it was told", func() bool { return w.look(func() bool { return len(w.told) >= len(want) }) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.told, want) {
		e.Errorf("%s was told %.100q, want %.100q", w.as, w.told, want)
	}
}

func tell(e *env) {
	third := e.follow(e.second, "third")
	e.tell(e.w, "second", "one")
	e.tell(third, "first", "two")
	e.tell(e.w, "nobody", "lost")
	e.toldTo(e.other, "one")
	e.toldTo(e.w, "two")
	e.tell(e.other, hotcache.Everybody, "all")
	e.toldTo(e.w, "two", "all")
	e.toldTo(e.other, "one", "all")
	e.toldTo(third, "all")
}

func tellAnything(e *env) {
	var want []string
	for _, text := range []string{"", "\n", "a b\nc", "\x00\xff"} {
		e.tell(e.w, "second", text)
		want = append(want, text)
		e.toldTo(e.other, want...)
	}
}

func closeIsTheEnd(e *env) {
	third := e.follow(e.second, "third")
	inv := e.invalidate("k", 1)
	e.hears(third, inv)
	third.close()
	third.feed.Close()
	for range 10 {
		e.hears(e.other, e.invalidate("k", 1))
	}
	e.tell(e.w, hotcache.Everybody, "after")
	e.tell(e.w, "third", "after")
	e.toldTo(e.other, "after")
	if n := third.count(); n != 1 {
		e.Errorf("%d invalidations were heard, want one", n)
	}
	if _, err := third.feed.Beat(e.ctx, long); err == nil {
		e.waitsFor("")
	}
}
