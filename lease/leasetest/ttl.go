package leasetest

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// ttls checks that a lease ends when it was promised, and not before.
func ttls() []test {
	return []test{
		{"NeverBefore", neverBefore},
		{"OneMillisecond", oneMillisecond},
		{"RoundedUp", roundedUp},
		{"Default", defaultTTL},
		{"RenewStartsAnew", renewStartsAnew},
		{"RenewChangesTTL", renewChangesTTL},
		{"RenewAtTheEnd", renewAtTheEnd},
		{"RenewBadTTL", renewBadTTL},
		{"ForeverLasts", foreverLasts},
		{"MaxHoldCaps", maxHoldCaps},
		{"MaxHoldCapsForever", maxHoldForever},
		{"ManyDueAtOnce", manyDueAtOnce},
		{"SharedHoldersEndApart", sharedEndApart},
		{"ReleaseThenRegrant", releaseThenRegrant},
		{"DeadlineIsSafe", deadlineIsSafe},
		{"WaitedIsTold", waitedIsTold},
	}
}

// A lease stands to the last millisecond of its ttl, and the next waiter has the
// key as soon as it is over.
func neverBefore(e *env) {
	a, b := e.join("a"), e.join("b")
	for _, ttl := range []time.Duration{7 * time.Millisecond, 250 * time.Millisecond, 3 * time.Second, 90 * time.Second, 2 * time.Hour} {
		key := ttl.String()
		a.get(lasting(ttl, exclusive(key)))
		w := b.want(key)
		w.waits()
		e.pass(ttl - time.Millisecond)
		w.waits()
		e.pass(slack)
		w.granted()
		e.about("expiry of "+key, w.after(), ttl)
	}
}

func oneMillisecond(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(lasting(lease.MinTTL, exclusive("k")))
	w := b.want("k")
	e.pass(lease.MinTTL + slack)
	w.granted()
}

// The grain is a millisecond, rounded in the holder's favour.
func roundedUp(e *env) {
	a := e.join("a")
	l := a.get(lasting(time.Second+time.Nanosecond, exclusive("k")))
	if l.TTL != time.Second+time.Millisecond {
		e.Fatalf("ttl %v, want 1.001s", l.TTL)
	}
}

func defaultTTL(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(exclusive("k"))
	if l.TTL != lease.DefaultTTL {
		e.Fatalf("ttl %v, want %v", l.TTL, lease.DefaultTTL)
	}
	w := b.want("k")
	e.pass(lease.DefaultTTL + slack)
	e.about("expiry", w.after(), lease.DefaultTTL)
}

// A renewal starts the ttl anew, from the renewal.
func renewStartsAnew(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(lasting(time.Second, exclusive("k")))
	w := b.want("k")
	for range 5 {
		e.pass(700 * time.Millisecond)
		got := a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
		if left := time.Until(got.Deadline); left > time.Second || left < time.Second-slack {
			e.Fatalf("%v left after a renewal, want 1s", left)
		}
		w.waits()
	}
	e.pass(time.Second + slack)
	w.granted()
	e.about("expiry", w.after(), 4500*time.Millisecond)
}

// A renewal may change the ttl, to longer, shorter and for ever.
func renewChangesTTL(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(lasting(time.Second, exclusive("k")))
	w := b.want("k")
	got := a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID, TTL: time.Minute})
	if got.TTL != time.Minute {
		e.Fatalf("ttl %v, want 1m", got.TTL)
	}
	e.pass(50 * time.Second)
	w.waits()
	got = a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID, TTL: lease.Forever})
	if got.TTL != lease.Forever || !got.Deadline.IsZero() {
		e.Fatalf("renewed for ever: %+v", got)
	}
	e.pass(time.Hour)
	w.waits()
	a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID, TTL: 2 * time.Second})
	e.pass(time.Second)
	w.waits()
	e.pass(time.Second + slack)
	w.granted()
}

// A renewal in the last millisecond counts; one after the end does not bring the
// lease back (lockd gap 6).
func renewAtTheEnd(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(lasting(time.Second, exclusive("k")))
	w := b.want("k")
	e.pass(999 * time.Millisecond)
	a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
	e.pass(999 * time.Millisecond)
	w.waits()
	e.pass(slack)
	w.granted()
	a.fails(lease.Command{Verb: lease.Renew, ID: l.ID}, lease.ErrNotHeld)
	a.fails(lease.Command{Verb: lease.Renew, Token: l.Token()}, lease.ErrNotHeld)
}

// A ttl that is refused leaves the hold as it is.
func renewBadTTL(e *env) {
	a := e.join("a")
	l := a.get(lasting(time.Minute, exclusive("k")))
	for _, ttl := range []time.Duration{-1, -time.Hour, lease.MaxTTL + time.Millisecond} {
		a.fails(lease.Command{Verb: lease.Renew, ID: l.ID, TTL: ttl}, lease.ErrRefused)
	}
	if h := e.show("k").Holders; len(h) != 1 || h[0].TTL != time.Minute {
		e.Fatalf("holders %+v, want the hold as it was", h)
	}
}

// A lease for ever has no deadline and is shown as such.
func foreverLasts(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	if l.TTL != lease.Forever || !l.Deadline.IsZero() {
		e.Fatalf("lease %+v, want no deadline", l)
	}
	w := b.want("k")
	e.pass(3 * time.Hour)
	w.waits()
	if h := e.show("k").Holders; len(h) != 1 || h[0].TTL != lease.Forever || h[0].Remaining != lease.Forever {
		e.Fatalf("holders %+v, want one for ever", h)
	}
	a.release(l)
	w.granted()
}

// The cap on the total hold ends it however often it is renewed, as an expiry.
func maxHoldCaps(e *env) {
	a, b := e.join("a"), e.join("b")
	r := lasting(time.Second, exclusive("k"))
	r.MaxHold = 2500 * time.Millisecond
	l := a.get(r)
	w := b.want("k")
	for range 4 {
		e.pass(600 * time.Millisecond)
		got := a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
		if end := time.Since(w.start) + time.Until(got.Deadline); end > r.MaxHold+slack {
			e.Fatalf("a renewal promises %v in all, want at most %v", end, r.MaxHold)
		}
	}
	w.waits()
	e.pass(100*time.Millisecond + slack)
	w.granted()
	e.about("the cap", w.after(), r.MaxHold)
	if n := a.lost(l.ID); len(n) != 1 || n[0].Code != lease.ErrExpired {
		e.Fatalf("notices %+v, want one expiry", n)
	}
}

func maxHoldForever(e *env) {
	a, b := e.join("a"), e.join("b")
	r := lasting(lease.Forever, exclusive("k"))
	r.MaxHold = time.Second
	a.get(r)
	w := b.want("k")
	e.pass(time.Second + slack)
	e.about("the cap", w.after(), time.Second)
}

// A thousand leases due at one moment all end then, together (lockd gaps 7 and
// 8: they ended one after the other, and some never).
func manyDueAtOnce(e *env) {
	const n = 1000
	a, b := e.join("a"), e.join("b")
	for i := range n {
		a.s.Acquire(lasting(5*time.Second, exclusive(fmt.Sprint("k", i))), &call{e: e})
	}
	synctest.Wait()
	if got := e.stats().Holds; got != n {
		e.Fatalf("%d holds, want %d", got, n)
	}
	w := b.want("k0", "k500", "k999")
	e.pass(5*time.Second - time.Millisecond)
	w.waits()
	e.pass(slack)
	w.granted()
	if got := e.stats().Holds; got != 3 {
		e.Fatalf("%d holds are left, want the waiter's 3", got)
	}
	if got := len(a.notices()); got != n {
		e.Fatalf("%d notices, want %d", got, n)
	}
}

// Every holder of a key has a deadline of its own (lockd gap 12).
func sharedEndApart(e *env) {
	a, b := e.join("a"), e.join("b")
	one := a.get(lasting(time.Second, shared("k")))
	two := a.get(lasting(3*time.Second, shared("k")))
	three := b.get(lasting(2*time.Second, shared("k")))
	w := b.want("k")
	left := func(n int) {
		if got := len(e.show("k").Holders); got != n {
			e.Fatalf("%d holders, want %d", got, n)
		}
	}
	e.pass(time.Second + slack)
	left(2)
	a.fails(lease.Command{Verb: lease.Renew, ID: one.ID}, lease.ErrNotHeld)
	b.mustDo(lease.Command{Verb: lease.Renew, ID: three.ID})
	e.pass(time.Second)
	left(2)
	e.pass(time.Second)
	left(0 + len(w.granted().Holds))
	a.fails(lease.Command{Verb: lease.Renew, ID: two.ID}, lease.ErrNotHeld)
}

// The timer of a released hold does not end the next one (lockd gap 5).
func releaseThenRegrant(e *env) {
	a, b := e.join("a"), e.join("b")
	a.release(a.get(lasting(time.Second, exclusive("k"))))
	e.pass(900 * time.Millisecond)
	l := a.get(lasting(time.Second, exclusive("k")))
	w := b.want("k")
	e.pass(999 * time.Millisecond)
	w.waits()
	a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
}

// A lease's deadline is never later than its end: a holder that stops there, or
// the margin before, never overlaps the next.
func deadlineIsSafe(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(lasting(2*time.Second, exclusive("k")))
	w := b.want("k")
	e.pass(time.Second)
	l = a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
	e.pass(2*time.Second + slack)
	w.granted()
	if w.at.Before(l.Deadline) {
		e.Fatalf("the next holder came %v before the deadline", l.Deadline.Sub(w.at))
	}
	if early := w.at.Sub(l.Deadline); early > slack {
		e.Fatalf("the deadline is %v early, want it near the end", early)
	}
}

// A grant says how long it waited.
func waitedIsTold(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	if l.Waited != 0 {
		e.Fatalf("waited %v for a free key", l.Waited)
	}
	w := b.want("k")
	e.pass(1234 * time.Millisecond)
	a.release(l)
	e.about("waited", w.granted().Waited, 1234*time.Millisecond)
}
