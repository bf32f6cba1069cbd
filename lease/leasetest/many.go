package leasetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// many checks leases on more than one key.
func many() []test {
	return []test{
		{"AllOrNone", allOrNone},
		{"SortedHolds", sortedHolds},
		{"SixtyFour", sixtyFour},
		{"CrossedSetsFinish", crossedSets},
		{"ForceOneLeavesOthers", forceOne},
		{"ReleaseByTokenLeavesOthers", releaseOne},
		{"ReleaseEndsAll", releaseEndsAll},
		{"RepeatShowsWhatIsLeft", repeatShowsLeft},
		{"SharedSet", sharedSet},
		{"ExpireTogether", expireTogether},
	}
}

// A request for many keys holds none while it waits, and all once granted.
func allOrNone(e *env) {
	a, b := e.join("a"), e.join("b")
	la, lc := a.hold("a"), a.hold("c")
	set := b.want("a", "b", "c")
	set.waits()
	b.ask(try(exclusive("a", "z"))).failed(lease.ErrBusy)
	if n := len(e.show("z").Holders) + len(e.show("b").Holders); n != 0 {
		e.Fatalf("a request that was not granted holds %d keys", n)
	}
	a.release(la)
	set.waits()
	a.release(lc)
	l := set.granted()
	for _, k := range []string{"a", "b", "c"} {
		if _, ok := l.TokenOf(k); !ok || len(e.show(k).Holders) != 1 {
			e.Fatalf("lease %+v, key %s %+v: want all three held", l, k, e.show(k))
		}
	}
}

// The holds of a lease are sorted by key, in whatever order they were asked for,
// and each has a token of its own.
func sortedHolds(e *env) {
	a := e.join("a")
	l := a.hold("c", "a", "d", "b")
	seen := map[lease.Token]bool{}
	var keys []string
	for _, h := range l.Holds {
		keys = append(keys, h.Key)
		if h.Token == 0 || seen[h.Token] {
			e.Fatalf("token %d of %q is zero or not its own: %+v", h.Token, h.Key, l.Holds)
		}
		seen[h.Token] = true
	}
	if !slices.Equal(keys, []string{"a", "b", "c", "d"}) {
		e.Fatalf("holds %v, want a b c d", keys)
	}
	if k := e.show("b"); k.Holders[0].Token != l.Holds[1].Token {
		e.Fatalf("key b lists token %d, the lease says %d", k.Holders[0].Token, l.Holds[1].Token)
	}
}

// MaxKeys keys of the greatest length are one request.
func sixtyFour(e *env) {
	a := e.join("a")
	var keys []string
	for i := range lease.MaxKeys {
		keys = append(keys, fmt.Sprintf("%0*d", lease.MaxKeyLength, i))
	}
	l := a.hold(keys...)
	if len(l.Holds) != lease.MaxKeys {
		e.Fatalf("%d holds, want %d", len(l.Holds), lease.MaxKeys)
	}
	a.ask(try(exclusive(keys[63]))).failed(lease.ErrBusy)
	a.release(l)
	e.empty()
}

// Requests for overlapping sets, in any order of keys and whatever overlaps, all
// come to an end: holding nothing while waiting, they cannot block one another.
func crossedSets(e *env) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 2))
	parties := []*party{e.join("a"), e.join("b"), e.join("c")}
	type asked struct {
		c *call
		p *party
	}
	var open []asked
	for range 120 {
		keys := rng.Perm(8)[:1+rng.IntN(5)]
		r := lease.Request{TTL: lease.Forever}
		for _, k := range keys {
			r.Keys = append(r.Keys, fmt.Sprint("k", k))
		}
		if rng.IntN(3) == 0 {
			r.Mode = lease.Shared
		}
		p := parties[rng.IntN(3)]
		open = append(open, asked{p.ask(r), p})
	}
	for len(open) > 0 {
		n := len(open)
		open = slices.DeleteFunc(open, func(x asked) bool {
			if !x.c.over() {
				return false
			}
			x.p.release(x.c.granted())
			return true
		})
		if len(open) == n {
			e.Fatalf("seed %d: %d requests wait for one another for ever", seed, n)
		}
	}
	e.empty()
}

// Each key is a hold of its own: forcing one leaves the others, and tells the
// holder of that one only.
func forceOne(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("a", "b", "c")
	w := b.want("b")
	e.force(lease.ForceRequest{Key: "b"})
	w.granted()
	lost := a.lost(l.ID)
	if len(lost) != 1 || lost[0].Key != "b" || lost[0].Token != l.Holds[1].Token {
		e.Fatalf("notices %+v, want one about key b", lost)
	}
	b.ask(try(exclusive("a"))).failed(lease.ErrBusy)
	rest := a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
	if len(rest.Holds) != 2 || rest.Holds[0].Key != "a" || rest.Holds[1].Key != "c" {
		e.Fatalf("a renewal says %+v is held, want a and c", rest.Holds)
	}
	a.release(l)
	b.hold("a", "c")
}

// A token names one key's hold.
func releaseOne(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("a", "b")
	got := a.mustDo(lease.Command{Verb: lease.Release, Token: l.Holds[0].Token})
	if len(got.Holds) != 1 || got.Holds[0] != l.Holds[0] {
		e.Fatalf("release by token says %+v, want %+v", got.Holds, l.Holds[:1])
	}
	b.hold("a")
	b.ask(try(exclusive("b"))).failed(lease.ErrBusy)
	a.fails(lease.Command{Verb: lease.Release, Token: l.Holds[0].Token}, lease.ErrNotHeld)
}

// Release by id ends all that is left, and says what that was.
func releaseEndsAll(e *env) {
	a := e.join("a")
	l := a.hold("a", "b", "c")
	a.mustDo(lease.Command{Verb: lease.Release, Token: l.Holds[2].Token})
	got := a.mustDo(lease.Command{Verb: lease.Release, ID: l.ID})
	if len(got.Holds) != 2 || got.Holds[0].Key != "a" || got.Holds[1].Key != "b" {
		e.Fatalf("release says %+v, want a and b", got.Holds)
	}
	e.empty()
}

// A repeat of a granted request returns the grant as it is now.
func repeatShowsLeft(e *env) {
	a := e.join("a")
	r := named("set", lasting(lease.Forever, exclusive("a", "b")))
	l := a.get(r)
	e.force(lease.ForceRequest{Key: "a"})
	again := a.get(r)
	if len(again.Holds) != 1 || again.Holds[0] != l.Holds[1] {
		e.Fatalf("the repeat says %+v, want only %+v", again.Holds, l.Holds[1])
	}
}

// Modes go for every key of a set.
func sharedSet(e *env) {
	a, b := e.join("a"), e.join("b")
	one := a.get(shared("a", "b"))
	two := b.get(shared("b", "c"))
	w := b.want("a", "c")
	w.waits()
	a.release(one)
	w.waits()
	b.release(two)
	w.granted()
	s := a.get(counted(2, "x", "y"))
	b.get(counted(2, "y", "z"))
	b.ask(try(counted(2, "y"))).failed(lease.ErrBusy)
	a.release(s)
	b.get(try(counted(2, "y")))
}

// All keys of a lease share its ttl, and a waiter for all of them gets them when
// it runs out.
func expireTogether(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(lasting(time.Second, exclusive("a", "b")))
	w := b.want("b", "a")
	w.waits()
	e.pass(time.Second + slack)
	w.granted()
	e.about("grant", w.after(), time.Second)
	var told []string
	for _, n := range a.lost(l.ID) {
		told = append(told, n.Key+" "+string(n.Code))
	}
	slices.Sort(told)
	if got := strings.Join(told, ", "); got != "a expired, b expired" {
		e.Fatalf("notices: %s", got)
	}
}
