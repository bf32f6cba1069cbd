package rmaptest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// scans checks what a scan hands over.
func scans() []test {
	return []test{
		{"OfNothing", scanNothing},
		{"All", scanAll},
		{"UnderWrites", scanUnderWrites},
		{"ErrorOfYield", scanStops},
	}
}

func scanNothing(e *env) {
	for range 2 {
		if got := e.scan(e.second, e.name); len(got) != 0 {
			e.Fatalf("a map with nothing in it has %+v", got)
		}
		e.write(write(set("k", "v"), reset()))
	}
	e.change(write(destroy()))
	if got := e.scan(e.second, e.name); len(got) != 0 {
		e.Fatalf("a destroyed map has %+v", got)
	}
}

// fill sets n keys, a batch at a time.
func (e *env) fill(n int, prefix string) {
	e.Helper()
	for from := 0; from < n; from += 500 {
		var w rmap.Write
		for i := from; i < min(from+500, n); i++ {
			w.Ops = append(w.Ops, set(fmt.Sprint(prefix, i), fmt.Sprint("value ", i)))
		}
		if _, err := e.first.Write(e.ctx, e.name, w); err != nil {
			e.Fatal(err)
		}
	}
}

func scanAll(e *env) {
	e.change(write(put("i", integer("5")), put("l", list("a")), lasting(long, set("ttl", "v")), set("p", "v")))
	e.fill(3000, "key ")
	told := make(map[string]rmap.Entry)
	for _, c := range e.w.told() {
		for _, s := range c.Steps {
			told[s.Entry.Key] = s.Entry
		}
	}
	e.head()
	stored := e.scan(e.second, e.name)
	if len(stored) != 3004 || !reflect.DeepEqual(stored, e.w.copyAt(e.head())) {
		e.Fatalf("3004 entries, and a scan has %d: %s", len(stored), difference(told, stored))
	}
}

// Whatever was there from beginning to end is handed over, while others come and go.
func scanUnderWrites(e *env) {
	e.fill(2000, "stays ")
	ctx, stop := context.WithCancel(e.ctx)
	var busy sync.WaitGroup
	begun := make(chan struct{})
	busy.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			var w rmap.Write
			for j := range 50 {
				w.Ops = append(w.Ops, set(fmt.Sprint("goes ", i, " ", j), "x"), del(fmt.Sprint("goes ", i-3, " ", j)))
			}
			e.second.Write(ctx, e.name, w) // it fails when it is to end
			if i == 0 {
				close(begun)
			}
		}
	})
	<-begun
	for range 10 {
		seen := make(map[string]string)
		err := e.first.Scan(e.ctx, e.name, func(chunk []rmap.Entry) error {
			for _, x := range chunk {
				seen[x.Key] = x.Value.Data
			}
			return nil
		})
		if err != nil {
			e.Errorf("scan: %v", err)
		}
		for i := range 2000 {
			if got := seen[fmt.Sprint("stays ", i)]; got != fmt.Sprint("value ", i) {
				e.Errorf("an entry that was there all the time was handed over as %q", got)
				break
			}
		}
	}
	stop()
	busy.Wait()
}

func scanStops(e *env) {
	e.fill(3000, "key ")
	boom := errors.New("enough")
	calls := 0
	err := e.first.Scan(e.ctx, e.name, func([]rmap.Entry) error {
		calls++
		return boom
	})
	if !errors.Is(err, boom) || calls != 1 {
		e.Fatalf("a scan that was to stop returned %v after %d calls", err, calls)
	}
	ctx, stop := context.WithCancel(e.ctx)
	n := 0
	err = e.first.Scan(ctx, e.name, func(chunk []rmap.Entry) error {
		stop()
		n += len(chunk)
		return nil
	})
	if n < 3000 && !errors.Is(err, context.Canceled) {
		e.Fatalf("a scan whose context ended returned %v after %d entries", err, n)
	}
}

// sinces checks the log of changes.
func sinces() []test {
	return []test{
		{"WhatFollowed", sinceFollowed},
		{"NotOfAnotherPast", sinceForeign},
		{"LongAgo", sinceLongAgo},
	}
}

func (e *env) since(r rmap.Revision) []rmap.Change {
	e.Helper()
	got, err := e.second.Since(e.ctx, e.name, r)
	if err != nil {
		e.Fatalf("since %v: %v", r, err)
	}
	return got
}

func sinceFollowed(e *env) {
	e.change(write(set("k", "v")))
	e.change(write(add("n", 1), lasting(long, app("l", "x", "")), set("\x00\n", "\xff")))
	c := e.change(write(lasting(short, set("gone", "soon"))))
	e.reach(deadline(c))
	e.change(write(set("k", "w"), del("n")))
	e.change(write(reset()))
	e.change(living(rmap.Lifetime{}, set("k", "x")))
	e.change(write(destroy()))
	e.change(living(rmap.Lifetime{TTL: long}, set("k", "y"), put("empty", plain(""))))
	e.change(write(expire("k"), set("last", "")))
	told := e.w.told()
	// The first of all positions is the beginning of the generation, which has no number and no nonce.
	at := []rmap.Revision{{Generation: told[0].Revision.Generation}}
	for _, c := range told {
		at = append(at, c.Revision)
	}
	for i, r := range at {
		got, rest := e.since(r), told[i:]
		if len(got) == 0 && e.subject.Remembers < len(rest) {
			continue
		}
		if len(got) != len(rest) || len(rest) > 0 && !reflect.DeepEqual(got, rest) {
			e.Fatalf("since %v there were %+v, want %+v", r, got, rest)
		}
	}
}

// A revision that the store never had, and one of a past that is no more, are followed by nothing.
func sinceForeign(e *env) {
	if got := e.since(rmap.Revision{Generation: 1, Number: 1, Nonce: 1}); len(got) != 0 {
		e.Fatalf("a map that was never written has the changes %+v", got)
	}
	a := e.change(write(set("k", "v"))).Revision
	b := e.change(write(set("k", "w"))).Revision
	c := e.change(write(set("k", "x"))).Revision
	for _, r := range []rmap.Revision{
		{}, {Number: 1}, {Generation: a.Generation, Nonce: a.Nonce}, {Generation: a.Generation, Number: 1},
		{Generation: a.Generation ^ 1},
		{Generation: a.Generation ^ 1, Number: a.Number, Nonce: a.Nonce},
		{Generation: a.Generation, Number: a.Number, Nonce: a.Nonce ^ 1},
		{Generation: a.Generation, Number: b.Number, Nonce: a.Nonce},
		{Generation: a.Generation, Number: a.Number, Nonce: b.Nonce},
		{Generation: a.Generation, Number: c.Number, Nonce: b.Nonce},
		{Generation: a.Generation, Number: c.Number + 1, Nonce: c.Nonce},
		{Generation: a.Generation, Number: ^uint64(0), Nonce: c.Nonce},
		{Generation: a.Generation, Number: 1 << 63, Nonce: c.Nonce},
	} {
		if got := e.since(r); len(got) != 0 {
			e.Fatalf("%+v, which the store never had, was followed by %+v", r, got)
		}
	}
}

func sinceLongAgo(e *env) {
	n := 3*max(e.subject.Remembers, 100) + 10
	for i := range n {
		if _, err := e.first.Write(e.ctx, e.name, write(set("k", fmt.Sprint(i)))); err != nil {
			e.Fatal(err)
		}
	}
	e.head()
	told := e.w.told()
	if got := e.since(rmap.Revision{Generation: told[0].Revision.Generation}); len(got) != 0 && len(got) != n {
		e.Fatalf("of %d changes, %d were given since the beginning, want all or none", n, len(got))
	}
	for _, i := range []int{0, 1, n / 2, n - 1 - e.subject.Remembers, n - 2, n - 1} {
		got := e.since(told[i].Revision)
		if len(got) == 0 && (e.subject.Remembers < n-1-i) {
			continue
		}
		if rest := told[i+1:]; len(got) != len(rest) || len(rest) > 0 && !reflect.DeepEqual(got, rest) {
			e.Fatalf("of %d changes, %d were given since number %d, want all %d or none", n, len(got), i+1, len(rest))
		}
	}
}

// contexts checks that a call whose context has ended before does nothing.
func contexts() []test {
	return []test{{"EndedBefore", contextEnded}}
}

func contextEnded(e *env) {
	c := e.change(write(set("k", "v")))
	cancelled, stop := context.WithCancel(e.ctx)
	stop()
	late, stop := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
	defer stop()
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		_, writeErr := e.first.Write(ctx, e.name, write(set("k", "w")))
		_, sinceErr := e.first.Since(ctx, e.name, c.Revision)
		_, headErr := e.w.feed.Head(ctx)
		scanErr := e.first.Scan(ctx, e.name, func([]rmap.Entry) error { return nil })
		for what, err := range map[string]error{"write": writeErr, "since": sinceErr, "head": headErr, "scan": scanErr} {
			if !errors.Is(err, want) || errors.Is(err, rmap.ErrUnknown) {
				e.Errorf("%s with an ended context: %v, want %v and no unknown outcome", what, err, want)
			}
		}
	}
	e.has(map[string]rmap.Value{"k": plain("v")})
	equal(e, "the head", e.head().Revision, c.Revision)
}
