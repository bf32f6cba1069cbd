package leasetest

import (
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// sessions checks what begins, keeps and ends a session.
func sessions() []test {
	return []test{
		{"GoodbyeEndsAtOnce", goodbyeEnds},
		{"GoodbyeTwice", goodbyeTwice},
		{"NothingAfterGoodbye", nothingAfterGoodbye},
		{"EndsAfterItsGrace", endsAfterGrace},
		{"PingsKeepIt", pingsKeep},
		{"DeadlineIsSafe", sessionDeadlineSafe},
		{"ResumeKeepsHolds", resumeKeepsHolds},
		{"ResumeKeepsWaiters", resumeKeepsWaiters},
		{"ResumeAfterTheEnd", resumeAfterEnd},
		{"ResumeTakesOver", resumeTakesOver},
		{"NoGraceEndsWithItsConnection", noGraceEnds},
		{"NoGraceForgetsEndedRequests", noGraceForgets},
		{"SuspendedLeaseStillExpires", suspendedExpires},
		{"DetachedOutlivesGoodbye", detachedOutlivesGoodbye},
		{"DetachedOutlivesGrace", detachedOutlivesGrace},
		{"DetachWhileWaiting", detachWhileWaiting},
		{"DetachOnRequest", detachOnRequest},
		{"BadOptions", badSessionOptions},
		{"UniqueIDs", uniqueSessionIDs},
	}
}

// A goodbye releases what is held and removes who waits, at once.
func goodbyeEnds(e *env) {
	a, b := e.join("a"), e.join("b")
	a.hold("x", "y")
	lb := b.hold("z")
	mine := a.want("z")
	mine.waits()
	w := b.want("x")
	a.close()
	w.granted()
	mine.failed(lease.ErrClosed, lease.ErrSessionLost, lease.ErrCancelled)
	b.release(lb)
	if k := e.show("z"); len(k.Holders)+len(k.Waiters) != 0 {
		e.Fatalf("key z: %+v, want it forgotten", k)
	}
	if n := a.notices(); len(n) != 0 {
		e.Fatalf("a goodbye is no loss, but was told: %+v", n)
	}
}

func goodbyeTwice(e *env) {
	a, b := e.join("a"), e.join("b")
	a.hold("k")
	a.close()
	a.close()
	a.s.Close(nil)
	synctest.Wait()
	b.hold("k")
}

// After a goodbye a session grants nothing more.
func nothingAfterGoodbye(e *env) {
	a := e.join("a")
	l := a.hold("k")
	a.close()
	a.ask(exclusive("k")).failed(lease.ErrClosed, lease.ErrSessionLost)
	for _, v := range []lease.Verb{lease.Ping, lease.Renew, lease.Release} {
		_, err := a.do(lease.Command{Verb: v, ID: l.ID})
		if c := lease.CodeOf(err); c != lease.ErrClosed && c != lease.ErrSessionLost {
			e.Errorf("%v after the goodbye: %v, want closed", v, err)
		}
	}
	e.empty()
	if _, err := e.tryJoin(lease.SessionOptions{Resume: a.s.ID()}); lease.CodeOf(err) != lease.ErrSessionLost {
		e.Fatalf("resume after the goodbye: %v, want session lost", err)
	}
}

// A session that is broken ends one grace after its last sign of life: holds and
// waiters together, and not a moment before.
func endsAfterGrace(e *env) {
	const grace = 2 * time.Second
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: grace})
	b := e.join("b")
	a.get(lasting(time.Hour, exclusive("x")))
	a.get(lasting(lease.Forever, exclusive("y")))
	b.hold("z")
	a.want("z").waits()
	wx, wy := b.want("x"), b.want("y")
	a.mustDo(lease.Command{Verb: lease.Ping})
	sign := time.Now()
	a.suspend()
	if k := e.show("x"); len(k.Holders) != 1 || !k.Holders[0].Broken {
		e.Fatalf("key x: %+v, want its holder shown as broken", k)
	}
	e.pass(grace - time.Millisecond)
	wx.waits()
	e.pass(slack)
	wx.granted()
	wy.granted()
	e.about("end of the session", wx.at.Sub(sign), grace)
	if k := e.show("z"); len(k.Waiters) != 0 {
		e.Fatalf("waiters of z: %+v, want none of the ended session", k.Waiters)
	}
}

// Signs of life keep a session however long.
func pingsKeep(e *env) {
	const grace = time.Second
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: grace})
	b := e.join("b")
	l := a.get(lasting(lease.Forever, exclusive("k")))
	w := b.want("k")
	a.alive(20*time.Second, grace/3)
	w.waits()
	a.release(l)
	w.granted()
}

// The session's deadline, up to which a holder may act, moves with signs of life
// and is always before the end.
func sessionDeadlineSafe(e *env) {
	const grace = 2 * time.Second
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: grace})
	b := e.join("b")
	first := a.s.Deadline()
	if first.IsZero() || time.Until(first) > grace-lease.Margin(grace) {
		e.Fatalf("deadline in %v, want at most grace less margin, %v", time.Until(first), grace-lease.Margin(grace))
	}
	l := a.get(lasting(lease.Forever, exclusive("k")))
	a.alive(grace, grace/3)
	moved := a.s.Deadline()
	if !moved.After(first) {
		e.Fatalf("deadline %v after pings, was %v: want it ahead", moved, first)
	}
	if until := lease.SafeUntil(l, a.s); !until.Equal(moved) {
		e.Fatalf("a lease for ever is safe until %v, want the session's deadline %v", until, moved)
	}
	w := b.want("k")
	a.suspend()
	e.pass(grace + slack)
	w.granted()
	if w.at.Before(moved) {
		e.Fatalf("the session ended %v before its deadline", moved.Sub(w.at))
	}
}

// A resume within the grace returns the holds as they are, with their tokens.
func resumeKeepsHolds(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Host: "h", PID: 5, Grace: 2 * time.Second})
	b := e.join("b")
	one := a.get(lasting(time.Minute, exclusive("x", "y")))
	two := a.get(named("two", lasting(lease.Forever, shared("z"))))
	w := b.want("x")
	a.suspend()
	e.pass(time.Second)
	back := e.joinAs(lease.SessionOptions{Name: "other", Resume: a.s.ID()})
	if back.s.ID() != a.s.ID() {
		e.Fatalf("resumed id %q, want %q", back.s.ID(), a.s.ID())
	}
	got := map[string]lease.Lease{}
	for _, l := range back.s.Leases() {
		got[l.ID] = l
	}
	if len(got) != 2 || len(got[one.ID].Holds) != 2 || got[one.ID].Holds[1] != one.Holds[1] || got["two"].Token() != two.Token() {
		e.Fatalf("resumed leases %+v, want %+v and %+v", got, one, two)
	}
	if left := time.Until(got[one.ID].Deadline); left > 59*time.Second || left < 59*time.Second-slack {
		e.Fatalf("%v left after the resume, want 59s", left)
	}
	back.alive(5*time.Second, time.Second/2)
	w.waits()
	if h := e.show("x").Holders[0]; h.Broken || h.Session != "a" || h.Host != "h" || h.PID != 5 {
		e.Fatalf("holder %+v, want the session as it was opened, connected", h)
	}
	back.release(one)
	w.granted()
}

// A waiter that asks again after a resume has its old place; one that was granted
// meanwhile would have been passed over, so nothing is lost.
func resumeKeepsWaiters(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: 2 * time.Second})
	b := e.join("b")
	l := b.hold("k")
	r := named("w", lasting(lease.Forever, exclusive("k")))
	a.ask(r).waits()
	second := b.want("k")
	a.suspend()
	e.pass(time.Second)
	back := e.joinAs(lease.SessionOptions{Resume: a.s.ID()})
	again := back.ask(r)
	again.waits()
	b.release(l)
	again.granted()
	second.waits()
}

func resumeAfterEnd(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Second})
	a.suspend()
	e.pass(time.Second + slack)
	for _, id := range []string{a.s.ID(), "nobody"} {
		if _, err := e.tryJoin(lease.SessionOptions{Resume: id}); lease.CodeOf(err) != lease.ErrSessionLost {
			e.Fatalf("resume of %q: %v, want session lost", id, err)
		}
	}
}

// Resuming a session that somebody still has takes it over: the older connection
// is not called any more and changes nothing.
func resumeTakesOver(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: 5 * time.Second})
	b := e.join("b")
	l := a.get(lasting(lease.Forever, exclusive("k")))
	other := b.hold("other")
	w := a.ask(named("w", lasting(lease.Forever, exclusive("other"))))
	w.waits()
	w.mute()
	back := e.joinAs(lease.SessionOptions{Resume: a.s.ID()})
	if len(back.s.Leases()) != 1 || back.s.Leases()[0].Token() != l.Token() {
		e.Fatalf("taken over with %+v, want %+v", back.s.Leases(), l)
	}
	b.release(other)
	if w.over() && w.errs[0] == nil {
		e.Fatal("the older connection was granted a lease")
	}
	e.force(lease.ForceRequest{Key: "k"})
	if n := back.lost(l.ID); len(n) != 1 {
		e.Fatalf("the new connection was told %+v, want the force", n)
	}
	if n := a.lost(l.ID); len(n) != 0 {
		e.Fatalf("the older connection was told %+v, want nothing", n)
	}
}

func noGraceEnds(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: lease.NoGrace})
	b := e.join("b")
	a.get(lasting(lease.Forever, exclusive("k")))
	w := b.want("k")
	e.pass(time.Hour)
	w.waits()
	a.suspend()
	w.granted()
}

// A session that cannot be resumed has no answers to ask for again: the id of a
// request that ended starts a new one.
func noGraceForgets(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: lease.NoGrace})
	one := a.get(lease.Request{ID: "again", Keys: []string{"k"}})
	a.release(one)
	two := a.get(lease.Request{ID: "again", Keys: []string{"k"}})
	if two.Token() <= one.Token() {
		e.Fatalf("token %d after %d, want a higher one", two.Token(), one.Token())
	}
	a.mustDo(lease.Command{Verb: lease.Cancel, ID: "early"})
	a.get(lease.Request{ID: "early", Keys: []string{"other"}})
}

// Neither a long grace nor a suspended session keeps a lease beyond its ttl.
func suspendedExpires(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Minute})
	b := e.join("b")
	a.get(lasting(time.Second, exclusive("k")))
	w := b.want("k")
	a.suspend()
	e.pass(time.Second + slack)
	w.granted()
	if back := e.joinAs(lease.SessionOptions{Resume: a.s.ID()}); len(back.s.Leases()) != 0 {
		e.Fatalf("resumed with %+v, want nothing", back.s.Leases())
	}
}

// A detached hold lives on after the goodbye until its ttl, and can be released
// by its id from elsewhere.
func detachedOutlivesGoodbye(e *env) {
	a, b := e.join("a"), e.join("b")
	one := a.get(lasting(10*time.Second, exclusive("x")))
	two := a.get(lasting(10*time.Second, exclusive("y")))
	plain := a.get(lasting(10*time.Second, exclusive("z")))
	if got := a.mustDo(lease.Command{Verb: lease.Detach, ID: one.ID}); !got.Detached {
		e.Fatalf("detached: %+v", got)
	}
	a.mustDo(lease.Command{Verb: lease.Detach, Token: two.Token()})
	a.mustDo(lease.Command{Verb: lease.Detach, ID: one.ID})
	a.close()
	wx, wy := b.want("x"), b.want("y")
	b.want("z").granted()
	b.fails(lease.Command{Verb: lease.Renew, ID: plain.ID}, lease.ErrNotHeld)
	if h := e.show("x").Holders; len(h) != 1 || !h[0].Detached || h[0].Session != "a" {
		e.Fatalf("holders of x: %+v", h)
	}
	wx.waits()
	b.release(one)
	wx.granted()
	e.pass(10*time.Second - time.Millisecond)
	wy.waits()
	e.pass(slack)
	wy.granted()
}

func detachedOutlivesGrace(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Second})
	b := e.join("b")
	l := a.get(lasting(5*time.Second, exclusive("k")))
	a.mustDo(lease.Command{Verb: lease.Detach, ID: l.ID})
	w := b.want("k")
	a.suspend()
	e.pass(4 * time.Second)
	w.waits()
	b.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
	e.pass(5*time.Second - time.Millisecond)
	w.waits()
	e.pass(slack)
	w.granted()
}

// A request can be detached before its grant; the waiting itself still belongs to
// its session.
func detachWhileWaiting(e *env) {
	a, b := e.join("a"), e.join("b")
	l := b.hold("k")
	c := a.ask(named("c", lasting(10*time.Second, exclusive("k"))))
	c.waits()
	a.mustDo(lease.Command{Verb: lease.Detach, ID: "c"})
	b.release(l)
	if got := c.granted(); !got.Detached {
		e.Fatalf("granted %+v, want it detached", got)
	}
	gone := a.ask(named("gone", exclusive("k")))
	gone.waits()
	a.mustDo(lease.Command{Verb: lease.Detach, ID: "gone"})
	a.close()
	if k := e.show("k"); len(k.Holders) != 1 || len(k.Waiters) != 0 {
		e.Fatalf("key: %+v, want the hold only", k)
	}
}

func detachOnRequest(e *env) {
	a, b := e.join("a"), e.join("b")
	r := lasting(time.Second, exclusive("k"))
	r.Detach = true
	if l := a.get(r); !l.Detached {
		e.Fatalf("granted %+v, want it detached", l)
	}
	a.close()
	w := b.want("k")
	w.waits()
	e.pass(time.Second + slack)
	w.granted()
}

// Session options are checked like everything else that comes in.
func badSessionOptions(e *env) {
	long := string(make([]byte, lease.MaxLabelLength+1))
	for what, o := range map[string]lease.SessionOptions{
		"name":  {Name: long},
		"host":  {Host: long},
		"grace": {Grace: lease.MaxGrace + 1},
	} {
		if _, err := e.tryJoin(o); lease.CodeOf(err) != lease.ErrRefused {
			e.Errorf("%s: %v, want refused", what, err)
		}
	}
}

func uniqueSessionIDs(e *env) {
	seen := map[string]bool{}
	for range 100 {
		p := e.join("a")
		if len(p.s.ID()) < 16 || seen[p.s.ID()] {
			e.Fatalf("session id %q is short or not new", p.s.ID())
		}
		seen[p.s.ID()] = true
	}
}
