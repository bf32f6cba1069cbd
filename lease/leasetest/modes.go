package leasetest

import (
	"fmt"
	"math/rand/v2"

	"github.com/latchkey-go/latchkey/lease"
)

// modes checks which holds of one key may coexist.
func modes() []test {
	return []test{
		{"ExclusiveExcludes", exclusiveExcludes},
		{"SharedCoexist", sharedCoexist},
		{"SharedExcludes", sharedExcludes},
		{"CountedSmallestLimit", countedSmallestLimit},
		{"ExclusiveIsCountedByOne", exclusiveIsCountedByOne},
		{"LimitRisesWhenTheSmallestLeaves", limitRises},
		{"NothingSticks", nothingSticks},
		{"AgainstTheRule", againstTheRule},
	}
}

// At most one exclusive hold, also within one session, and none beside any other.
func exclusiveExcludes(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	for _, r := range []lease.Request{exclusive("k"), shared("k"), counted(5, "k")} {
		a.ask(try(r)).failed(lease.ErrBusy)
		b.ask(try(r)).failed(lease.ErrBusy)
	}
	a.release(l)
	b.hold("k")
}

// Shared holds do not count against one another.
func sharedCoexist(e *env) {
	a, b := e.join("a"), e.join("b")
	for range 50 {
		a.get(shared("k"))
		b.get(shared("k"))
	}
	if n := len(e.show("k").Holders); n != 100 {
		e.Fatalf("%d holders, want 100", n)
	}
}

// Shared excludes exclusive and counted, until the last shared hold is released.
func sharedExcludes(e *env) {
	a, b := e.join("a"), e.join("b")
	one, two := a.get(shared("k")), a.get(shared("k"))
	b.ask(try(exclusive("k"))).failed(lease.ErrBusy)
	b.ask(try(counted(10, "k"))).failed(lease.ErrBusy)
	a.release(one)
	b.ask(try(exclusive("k"))).failed(lease.ErrBusy)
	a.release(two)
	c := b.get(counted(10, "k"))
	a.ask(try(shared("k"))).failed(lease.ErrBusy)
	b.release(c)
	a.get(shared("k"))
}

// A counted request fits while holders and itself are no more than the smallest
// limit among them: a later caller with a larger limit cannot pass an earlier
// holder's, nor one with a smaller limit its own.
func countedSmallestLimit(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(counted(3, "k"))
	b.ask(try(counted(1, "k"))).failed(lease.ErrBusy)
	a.get(counted(5, "k"))
	b.ask(try(counted(2, "k"))).failed(lease.ErrBusy)
	b.get(counted(9, "k"))
	b.ask(try(counted(9, "k"))).failed(lease.ErrBusy)
}

// Exclusive is counted with limit 1: it keeps counted out and is kept out.
func exclusiveIsCountedByOne(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(counted(1, "k"))
	b.ask(try(exclusive("k"))).failed(lease.ErrBusy)
	b.ask(try(counted(7, "k"))).failed(lease.ErrBusy)
	a.release(l)
	l = a.hold("k")
	b.ask(try(counted(7, "k"))).failed(lease.ErrBusy)
	a.release(l)
	a.get(counted(7, "k"))
	b.ask(try(exclusive("k"))).failed(lease.ErrBusy)
}

// The limit of a holder counts while it holds and no longer.
func limitRises(e *env) {
	a := e.join("a")
	small := a.get(counted(2, "k"))
	a.get(counted(4, "k"))
	waiter := a.want("other")
	waiter.granted()
	c := a.ask(counted(4, "k"))
	c.waits()
	a.release(small)
	c.granted()
	a.get(counted(3, "k"))
	a.ask(try(counted(4, "k"))).failed(lease.ErrBusy)
}

// An idle key remembers neither mode nor limit.
func nothingSticks(e *env) {
	a := e.join("a")
	for _, r := range []lease.Request{counted(2, "k"), shared("k"), counted(5, "k"), exclusive("k"), counted(1, "k"), shared("k")} {
		first := a.get(r)
		if r.Mode != lease.Exclusive && r.Limit != 1 {
			a.release(a.get(r))
		}
		a.release(first)
		e.empty()
	}
}

// Random tries and releases on a few keys are decided as the one rule says,
// which is written here a second time, in the plainest way.
func againstTheRule(e *env) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	type held struct {
		p *party
		l lease.Lease
		r lease.Request
	}
	var holds []held
	parties := []*party{e.join("a"), e.join("b"), e.join("c")}
	fits := func(r lease.Request) bool {
		n, limit, shares := 0, r.Limit, r.Mode == lease.Shared
		for _, h := range holds {
			if h.r.Keys[0] != r.Keys[0] {
				continue
			}
			n++
			if h.r.Mode == lease.Shared != shares {
				return false
			}
			limit = min(limit, h.r.Limit)
		}
		return shares || n+1 <= limit
	}
	for step := range 400 {
		if len(holds) > 0 && rng.IntN(2) == 0 {
			i := rng.IntN(len(holds))
			holds[i].p.release(holds[i].l)
			holds = append(holds[:i], holds[i+1:]...)
			continue
		}
		r := []lease.Request{exclusive(), shared(), counted(1 + rng.IntN(4))}[rng.IntN(3)]
		r.Keys = []string{fmt.Sprint("k", rng.IntN(3))}
		p := parties[rng.IntN(len(parties))]
		c := p.ask(try(r))
		if r.Mode == lease.Exclusive {
			r.Limit = 1
		}
		if !fits(r) {
			c.failed(lease.ErrBusy)
			continue
		}
		if err := c.errs[0]; err != nil {
			e.Fatalf("seed %d step %d: %+v: %v, want a grant", seed, step, r, err)
		}
		holds = append(holds, held{p, c.granted(), r})
	}
}
