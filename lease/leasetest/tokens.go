package leasetest

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// tokens checks fencing tokens.
func tokens() []test {
	return []test{
		{"RisePerKey", tokensRise},
		{"AcrossKeys", tokensAcrossKeys},
		{"IdleKeys", tokensIdleKeys},
		{"SameHoldSameToken", sameHoldSameToken},
		{"ForceFences", forceFences},
		{"StaleRelease", staleRelease},
	}
}

// rising fails unless every token is above the one before and below MaxToken.
func rising(e *env, what string, last *lease.Token, t lease.Token) {
	e.Helper()
	if t <= *last || t >= lease.MaxToken {
		e.Fatalf("%s: token %d after %d, want it to rise and stay below %d", what, t, *last, lease.MaxToken)
	}
	*last = t
}

// A key's token rises with every new hold, whatever ended the one before and
// whatever mode it is of.
func tokensRise(e *env) {
	a := e.join("a")
	var last lease.Token
	for range 3 {
		l := a.hold("k")
		rising(e, "after a release", &last, l.Token())
		a.release(l)

		one, two := a.get(shared("k")), a.get(shared("k"))
		rising(e, "shared", &last, one.Token())
		rising(e, "shared beside it", &last, two.Token())
		a.release(two)
		a.release(one)

		l = a.get(counted(3, "k"))
		rising(e, "counted", &last, l.Token())
		e.force(lease.ForceRequest{Key: "k"})

		l = a.get(lasting(time.Second, exclusive("k")))
		rising(e, "after a force", &last, l.Token())
		e.pass(time.Second + slack)

		b := e.join("b")
		rising(e, "after an expiry", &last, b.hold("k").Token())
		b.close()
		l = a.hold("j", "k")
		rising(e, "in a set after a session's end", &last, l.Holds[1].Token)
		a.release(l)
	}
}

// One counter for the whole service: tokens of different keys never repeat
// (lockd gap 1: they were unique per shard).
func tokensAcrossKeys(e *env) {
	a, b := e.join("a"), e.join("b")
	seen := map[lease.Token]string{}
	for i := range 300 {
		p := []*party{a, b}[i%2]
		l := p.hold(fmt.Sprint("x", i), fmt.Sprint("y", i))
		for _, h := range l.Holds {
			if k, ok := seen[h.Token]; ok {
				e.Fatalf("token %d was given to %q and to %q", h.Token, k, h.Key)
			}
			seen[h.Token] = h.Key
		}
	}
}

// A key that was idle for long, and of which the service keeps nothing, goes on
// above its last token (lockd gap 3).
func tokensIdleKeys(e *env) {
	a := e.join("a")
	var last lease.Token
	for range 4 {
		l := a.hold("k")
		rising(e, "after idling", &last, l.Token())
		a.release(l)
		e.pass(10 * time.Minute)
		e.empty()
	}
}

// Renewals, repeats and a detach are the same hold, so the same token.
func sameHoldSameToken(e *env) {
	a := e.join("a")
	r := named("r", lasting(time.Minute, exclusive("k", "l")))
	want := a.get(r)
	again := a.get(r)
	renewed := a.mustDo(lease.Command{Verb: lease.Renew, ID: "r"})
	detached := a.mustDo(lease.Command{Verb: lease.Detach, ID: "r"})
	for what, l := range map[string]lease.Lease{"repeat": again, "renewal": renewed, "detach": detached} {
		if len(l.Holds) != 2 || l.Holds[0] != want.Holds[0] || l.Holds[1] != want.Holds[1] {
			e.Errorf("%s: holds %+v, want %+v", what, l.Holds, want.Holds)
		}
	}
}

// Force answers with a token above those it ended and below the next grant, so
// that telling it to the resource fences the old holders at once.
func forceFences(e *env) {
	a := e.join("a")
	l := a.hold("k")
	f := e.force(lease.ForceRequest{Key: "k"})
	next := a.hold("k")
	if f.Token <= l.Token() || f.Token >= next.Token() {
		e.Fatalf("held %d, force says %d, next is %d: want them to rise", l.Token(), f.Token, next.Token())
	}
}

// Whoever was late never ends, renews or detaches the next hold of the key
// (lockd gap 5).
func staleRelease(e *env) {
	a := e.join("a")
	old := a.get(lasting(time.Second, exclusive("k")))
	e.pass(time.Second + slack)
	now := a.hold("k")
	for _, v := range []lease.Verb{lease.Renew, lease.Release, lease.Detach} {
		a.fails(lease.Command{Verb: v, Token: old.Token()}, lease.ErrNotHeld)
		a.fails(lease.Command{Verb: v, ID: old.ID}, lease.ErrNotHeld)
	}
	if _, err := e.svc.Force(e.ctx, lease.ForceRequest{Key: "k", Token: old.Token()}); lease.CodeOf(err) != lease.ErrNotHeld {
		e.Fatalf("force of an old token: %v, want not held", err)
	}
	if k := e.show("k"); len(k.Holders) != 1 || k.Holders[0].Token != now.Token() || k.Holders[0].Detached {
		e.Fatalf("key: %+v, want the new hold untouched", k)
	}
}
