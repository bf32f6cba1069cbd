package leasetest

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// losses checks that whatever ends a lease that was not released is told to its
// session (lockd gap 16).
func losses() []test {
	return []test{
		{"Expired", lossExpired},
		{"Forced", lossForced},
		{"SessionEnded", lossSession},
		{"ReleaseIsNone", releaseIsNoLoss},
		{"DetachedIsTold", detachedIsTold},
		{"OncePerKey", lossOncePerKey},
	}
}

// An expiry is told when it happens: which hold, key, token, and why.
func lossExpired(e *env) {
	a := e.join("a")
	l := a.get(lasting(time.Second, exclusive("k")))
	start := time.Now()
	e.pass(time.Second - time.Millisecond)
	if n := a.notices(); len(n) != 0 {
		e.Fatalf("told too early: %+v", n)
	}
	e.pass(slack)
	n := a.notices()
	if len(n) != 1 || n[0].ID != l.ID || n[0].Key != "k" || n[0].Token != l.Token() || n[0].Code != lease.ErrExpired {
		e.Fatalf("notices %+v, want the expiry of %+v", n, l)
	}
	e.about("notice", a.toldAt[0].Sub(start), time.Second)
}

// A force is told with who did it and why.
func lossForced(e *env) {
	a := e.join("a")
	l := a.hold("k")
	e.force(lease.ForceRequest{Key: "k", By: "ops", Reason: "stuck"})
	n := a.notices()
	if len(n) != 1 || n[0].ID != l.ID || n[0].Code != lease.ErrForced || n[0].Token != l.Token() || n[0].By != "ops: stuck" {
		e.Fatalf("notices %+v, want the force of %+v by ops: stuck", n, l)
	}
}

// A session that the service ends while it is connected is told: each hold, or
// the session as a whole. A service that shows signs of life by itself keeps it.
func lossSession(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Second})
	l := a.hold("k")
	e.pass(10 * time.Second)
	if len(e.show("k").Holders) == 1 {
		a.release(l)
		return
	}
	a.mute()
	for _, n := range a.notices() {
		if n.Code == lease.ErrSessionLost && (n.ID == l.ID || n.ID == "") {
			return
		}
	}
	e.Fatalf("the session ended and was told %+v", a.notices())
}

func releaseIsNoLoss(e *env) {
	a := e.join("a")
	a.release(a.hold("k"))
	l := a.get(lasting(time.Second, exclusive("k")))
	a.mustDo(lease.Command{Verb: lease.Release, Token: l.Token()})
	e.pass(5 * time.Second)
	if n := a.notices(); len(n) != 0 {
		e.Fatalf("told %+v, want nothing", n)
	}
}

// A detached hold's session is told as long as it is there.
func detachedIsTold(e *env) {
	a := e.join("a")
	r := lasting(time.Second, exclusive("k"))
	r.Detach = true
	l := a.get(r)
	e.pass(time.Second + slack)
	if n := a.lost(l.ID); len(n) != 1 || n[0].Code != lease.ErrExpired {
		e.Fatalf("notices %+v, want one expiry", n)
	}
}

// Each key of a lease is told of once, even when more than one thing would end it.
func lossOncePerKey(e *env) {
	a := e.join("a")
	l := a.get(lasting(time.Second, exclusive("x", "y", "z")))
	e.force(lease.ForceRequest{Key: "y"})
	a.mustDo(lease.Command{Verb: lease.Release, Token: l.Holds[0].Token})
	e.pass(2 * time.Second)
	got := map[string]lease.Code{}
	for _, n := range a.lost(l.ID) {
		if _, twice := got[n.Key]; twice {
			e.Errorf("key %s was told of twice", n.Key)
		}
		got[n.Key] = n.Code
	}
	if len(got) != 2 || got["y"] != lease.ErrForced || got["z"] != lease.ErrExpired {
		e.Fatalf("told %v, want y forced and z expired", got)
	}
}
