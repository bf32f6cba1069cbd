package leasetest

import (
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// sights checks what the service shows: who holds, who waits, in which order.
func sights() []test {
	return []test{
		{"Holders", showsHolders},
		{"Waiters", showsWaiters},
		{"Selection", listSelection},
		{"Pages", listPages},
		{"Contended", listContended},
		{"Brief", listBrief},
		{"BadQuery", badQuery},
		{"Counters", countersCount},
		{"ListsAreCopies", listsAreCopies},
	}
}

// A holder is shown with session, host, pid, label, mode, token, since and until,
// in the order of the grants.
func showsHolders(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Host: "h1", PID: 1})
	b := e.joinAs(lease.SessionOptions{Name: "b", Host: "h2", PID: 2})
	r := lasting(time.Minute, counted(5, "k"))
	r.Label = "first"
	la := a.get(r)
	e.pass(10 * time.Second)
	r = lasting(lease.Forever, counted(3, "k"))
	r.Detach = true
	lb := b.get(r)
	e.pass(5 * time.Second)
	got := e.show("k").Holders
	if len(got) != 2 {
		e.Fatalf("%d holders, want 2", len(got))
	}
	want := []lease.Holder{
		{Party: lease.Party{Session: "a", Host: "h1", PID: 1, Label: "first"}, Mode: lease.Counted, Limit: 5,
			Token: la.Token(), Since: 15 * time.Second, TTL: time.Minute, Remaining: 45 * time.Second},
		{Party: lease.Party{Session: "b", Host: "h2", PID: 2}, Mode: lease.Counted, Limit: 3,
			Token: lb.Token(), Since: 5 * time.Second, TTL: lease.Forever, Remaining: lease.Forever, Detached: true},
	}
	for i, h := range got {
		e.about("since", h.Since, want[i].Since)
		if d := want[i].Remaining - h.Remaining; d < 0 || d > slack {
			e.Errorf("holder %d has %v left, want %v", i, h.Remaining, want[i].Remaining)
		}
		h.Since, h.Remaining = want[i].Since, want[i].Remaining
		if h != want[i] {
			e.Errorf("holder %d: %+v, want %+v", i, h, want[i])
		}
	}
}

// Waiters are shown in order of arrival with their age and what is left of their
// bound, for each of their keys.
func showsWaiters(e *env) {
	a := e.join("a")
	b := e.joinAs(lease.SessionOptions{Name: "b", Host: "h2", PID: 2, Grace: time.Hour})
	a.hold("k")
	r := shared("k", "j")
	r.Label, r.Wait = "reader", time.Minute
	b.ask(r)
	e.pass(3 * time.Second)
	b.ask(counted(4, "k"))
	e.pass(2 * time.Second)
	b.suspend()
	k := e.show("k")
	if len(k.Waiters) != 2 || k.Waiting != 2 {
		e.Fatalf("key: %+v, want two waiters", k)
	}
	one, two := k.Waiters[0], k.Waiters[1]
	e.about("age", one.Age, 5*time.Second)
	e.about("age", two.Age, 2*time.Second)
	if one.Party != (lease.Party{Session: "b", Host: "h2", PID: 2, Label: "reader"}) || one.Mode != lease.Shared ||
		one.Keys != 2 || !one.Broken || one.Left > 55*time.Second || one.Left < 55*time.Second-slack {
		e.Errorf("first waiter: %+v", one)
	}
	if two.Mode != lease.Counted || two.Limit != 4 || two.Keys != 1 || two.Left != lease.Forever {
		e.Errorf("second waiter: %+v", two)
	}
	if j := e.show("j"); len(j.Waiters) != 1 || len(j.Holders) != 0 {
		e.Errorf("key j: %+v, want the first waiter only", j)
	}
}

func keysOf(l lease.Listing) []string {
	var keys []string
	for _, k := range l.Keys {
		keys = append(keys, k.Key)
	}
	return keys
}

// A listing is sorted and has the keys that match, no others.
func listSelection(e *env) {
	a := e.join("a")
	for _, k := range []string{"b/2", "a", "b/1", "c", "b", "b/10", "ü"} {
		a.hold(k)
	}
	for _, tt := range []struct {
		q    lease.Query
		want []string
	}{
		{lease.Query{}, []string{"a", "b", "b/1", "b/10", "b/2", "c", "ü"}},
		{lease.Query{Key: "b"}, []string{"b"}},
		{lease.Query{Key: "nothing"}, nil},
		{lease.Query{Prefix: "b/"}, []string{"b/1", "b/10", "b/2"}},
		{lease.Query{Prefix: "b", After: "b/1"}, []string{"b/10", "b/2"}},
		{lease.Query{After: "b/2"}, []string{"c", "ü"}},
		{lease.Query{After: "ü"}, nil},
		{lease.Query{Prefix: "x"}, nil},
		{lease.Query{Contended: true}, nil},
	} {
		if got := keysOf(e.list(tt.q)); !slices.Equal(got, tt.want) {
			e.Errorf("list %+v: %q, want %q", tt.q, got, tt.want)
		}
	}
}

// Pages put together are the whole, each key once.
func listPages(e *env) {
	a := e.join("a")
	var want []string
	for i := range 25 {
		k := fmt.Sprintf("k%02d", i)
		a.hold(k)
		want = append(want, k)
	}
	var got []string
	q := lease.Query{Prefix: "k", Limit: 10}
	for pages := 1; ; pages++ {
		l := e.list(q)
		if len(l.Keys) > 10 || pages > 4 {
			e.Fatalf("page %d has %d keys, want at most 10 and 3 pages", pages, len(l.Keys))
		}
		got = append(got, keysOf(l)...)
		if !l.More {
			break
		}
		q.After = got[len(got)-1]
	}
	if !slices.Equal(got, want) {
		e.Fatalf("pages: %q, want %q", got, want)
	}
}

// The contended keys come with the longest queue first.
func listContended(e *env) {
	a := e.join("a")
	for i, n := range []int{1, 3, 0, 2} {
		k := fmt.Sprint("k", i)
		a.hold(k)
		for range n {
			a.want(k)
		}
	}
	l := e.list(lease.Query{Contended: true, Limit: 2})
	if got := keysOf(l); !slices.Equal(got, []string{"k1", "k3"}) || !l.More {
		e.Fatalf("contended: %q more %v, want k1 k3 and more", got, l.More)
	}
	if got := keysOf(e.list(lease.Query{Contended: true})); !slices.Equal(got, []string{"k1", "k3", "k0"}) {
		e.Fatalf("contended: %q, want k1 k3 k0", got)
	}
}

// A brief listing counts the waiters, and tells the rest as ever.
func listBrief(e *env) {
	a := e.join("a")
	a.hold("k")
	a.want("k")
	a.want("k")
	for _, q := range []lease.Query{{Key: "k", Brief: true}, {Brief: true}, {Contended: true, Brief: true}} {
		l := e.list(q)
		if len(l.Keys) != 1 || l.Keys[0].Waiting != 2 || len(l.Keys[0].Waiters) != 0 || len(l.Keys[0].Holders) != 1 {
			e.Errorf("list %+v: %+v, want a holder and two waiters that are not told", q, l.Keys)
		}
	}
}

func badQuery(e *env) {
	for _, q := range []lease.Query{{Limit: -1}, {Limit: lease.MaxListed + 1}} {
		if _, err := e.svc.List(e.ctx, q); lease.CodeOf(err) != lease.ErrRefused {
			e.Errorf("list %+v: %v, want refused", q, err)
		}
	}
}

// Gauges and counters follow what happens.
func countersCount(e *env) {
	a, b := e.join("a"), e.join("b")
	s := e.stats()
	if s.Keys+s.Holds+s.Waiters != 0 || s.Fencing == "" || s.Durability == "" || s.Failed != "" {
		e.Fatalf("stats of an empty service: %+v", s)
	}
	l := a.hold("x", "y")
	a.get(shared("s"))
	b.get(shared("s"))
	w := b.ask(named("w", exclusive("x")))
	w.waits()
	s = e.stats()
	for what, pair := range map[string][2]int{
		"keys": {s.Keys, 3}, "holds": {s.Holds, 4}, "shared": {s.SharedHolds, 2}, "many": {s.ManyHolds, 1},
		"waiters": {s.Waiters, 1}, "contended": {s.ContendedKeys, 1}, "broken": {s.Broken, 0},
	} {
		if pair[0] != pair[1] {
			e.Errorf("%s: %d, want %d", what, pair[0], pair[1])
		}
	}
	if s.Sessions < 2 || s.LastToken < l.Holds[1].Token {
		e.Errorf("%d sessions, last token %d", s.Sessions, s.LastToken)
	}
	e.pass(time.Second)
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "w"})
	b.ask(try(exclusive("x"))).failed(lease.ErrBusy)
	a.release(l)
	e.force(lease.ForceRequest{Key: "s"})
	s = e.stats()
	for what, pair := range map[string][2]uint64{
		"granted": {s.Granted, 3}, "released": {s.Released, 2}, "forced": {s.Forced, 2}, "queued": {s.Queued, 1},
		"cancelled": {s.Cancelled, 1}, "busy": {s.Busy, 1}, "ended holds": {s.Hold.Count, 4},
	} {
		if pair[0] != pair[1] {
			e.Errorf("%s: %d, want %d", what, pair[0], pair[1])
		}
	}
	if s.Keys+s.Holds+s.Waiters != 0 || s.Uptime < time.Second {
		e.Errorf("stats after all: %+v", s)
	}
}

// What a listing returned does not change afterwards.
func listsAreCopies(e *env) {
	a := e.join("a")
	l := a.hold("k")
	before := e.list(lease.Query{})
	a.release(l)
	a.get(shared("k"))
	if h := before.Keys[0].Holders[0]; h.Mode != lease.Exclusive || h.Token != l.Token() {
		e.Fatalf("a listing changed after the fact: %+v", h)
	}
}
