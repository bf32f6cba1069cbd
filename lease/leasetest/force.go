package leasetest

import (
	"strings"

	"github.com/latchkey-go/latchkey/lease"
)

// forces checks an administrator's release.
func forces() []test {
	return []test{
		{"EndsEveryHold", forceAll},
		{"ByToken", forceByToken},
		{"NothingToForce", forceNothing},
		{"BadInput", forceBadInput},
		{"Detached", forceDetached},
		{"WaitersGoOn", forceWaiters},
	}
}

// Without a token every hold of the key ends, and the answer names them.
func forceAll(e *env) {
	a, b := e.join("a"), e.join("b")
	one, two := a.get(shared("k")), b.get(shared("k"))
	keep := a.hold("other")
	f := e.force(lease.ForceRequest{Key: "k"})
	if len(f.Holds) != 2 || f.Holds[0] != one.Holds[0] || f.Holds[1] != two.Holds[0] {
		e.Fatalf("forced %+v, want %+v and %+v", f.Holds, one.Holds, two.Holds)
	}
	if len(a.lost(one.ID)) != 1 || len(b.lost(two.ID)) != 1 || len(a.lost(keep.ID)) != 0 {
		e.Fatal("want a notice to each old holder, and none about another key")
	}
	a.fails(lease.Command{Verb: lease.Renew, ID: one.ID}, lease.ErrNotHeld)
	a.fails(lease.Command{Verb: lease.Release, Token: one.Token()}, lease.ErrNotHeld)
	a.mustDo(lease.Command{Verb: lease.Renew, ID: keep.ID})
}

// With a token only that hold ends.
func forceByToken(e *env) {
	a := e.join("a")
	one, two := a.get(counted(2, "k")), a.get(counted(2, "k"))
	f := e.force(lease.ForceRequest{Key: "k", Token: one.Token()})
	if len(f.Holds) != 1 || f.Holds[0] != one.Holds[0] || f.Token <= two.Token() {
		e.Fatalf("forced %+v, want only %+v and a token above %d", f, one.Holds, two.Token())
	}
	a.fails(lease.Command{Verb: lease.Renew, ID: one.ID}, lease.ErrNotHeld)
	a.mustDo(lease.Command{Verb: lease.Renew, ID: two.ID})
}

func forceNothing(e *env) {
	a := e.join("a")
	l := a.hold("k")
	before := e.stats().LastToken
	for _, f := range []lease.ForceRequest{{Key: "free"}, {Key: "k", Token: l.Token() + 1}, {Key: "k", Token: 1}} {
		if got, err := e.svc.Force(e.ctx, f); lease.CodeOf(err) != lease.ErrNotHeld {
			e.Fatalf("force %+v: %+v, %v; want not held", f, got, err)
		}
	}
	if e.stats().LastToken != before || len(e.show("k").Holders) != 1 {
		e.Fatal("a force that found nothing changed something")
	}
}

func forceBadInput(e *env) {
	for _, k := range []string{"", strings.Repeat("x", lease.MaxKeyLength+1), "\xff"} {
		if _, err := e.svc.Force(e.ctx, lease.ForceRequest{Key: k}); lease.CodeOf(err) != lease.ErrRefused {
			e.Fatalf("force of key %.20q: %v, want refused", k, err)
		}
	}
	long := strings.Repeat("x", lease.MaxLabelLength+1)
	for _, f := range []lease.ForceRequest{{Key: "k", By: long}, {Key: "k", Reason: long}, {Key: "k", By: "\xff"}} {
		if _, err := e.svc.Force(e.ctx, f); lease.CodeOf(err) != lease.ErrRefused {
			e.Fatalf("force with bad words: %v, want refused", err)
		}
	}
}

// A detached hold whose session is gone can be forced.
func forceDetached(e *env) {
	a := e.join("a")
	r := exclusive("k")
	r.Detach = true
	l := a.get(r)
	a.close()
	f := e.force(lease.ForceRequest{Key: "k"})
	if len(f.Holds) != 1 || f.Holds[0] != l.Holds[0] {
		e.Fatalf("forced %+v, want %+v", f.Holds, l.Holds)
	}
	e.empty()
}

// A force hands the key to the waiters, in order.
func forceWaiters(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(shared("k"))
	a.get(shared("k"))
	w1, w2 := b.want("k"), b.want("k")
	e.force(lease.ForceRequest{Key: "k"})
	w1.granted()
	w2.waits()
	e.force(lease.ForceRequest{Key: "k"})
	w2.granted()
}
