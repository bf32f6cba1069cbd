package leasetest

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// restarts checks what a durable service brings through an orderly restart. What
// a crash may and may not take is tested where crashes can be made.
func restarts() []test {
	return []test{
		{"TokensRise", restartTokens},
		{"FullTTL", restartFullTTL},
		{"HoldsAsTheyWere", restartHolds},
		{"SessionResumes", restartResume},
		{"SessionNotResumed", restartNotResumed},
		{"SameRequestSameGrant", restartSameGrant},
		{"WaitersByAge", restartWaiters},
		{"WhatEndedStaysEnded", restartEnded},
		{"ChangedTTL", restartChangedTTL},
		{"DetachedByID", restartDetached},
		{"LockDelay", restartLockDelay},
		{"Often", restartOften},
	}
}

// Tokens rise across a restart, for keys that are held and for keys that nothing
// is known of any more (lockd gaps 2 and 3).
func restartTokens(e *env) {
	e.needRestart()
	last := map[string]lease.Token{}
	var highest lease.Token
	for range 4 {
		a := e.join("a")
		for _, k := range []string{"x", "y", "z"} {
			l := a.hold(k)
			if l.Token() <= last[k] || l.Token() <= highest {
				e.Fatalf("key %s got token %d, had %d, the highest was %d", k, l.Token(), last[k], highest)
			}
			last[k], highest = l.Token(), l.Token()
			a.release(l)
		}
		e.restart()
		if got := e.stats().LastToken; got < highest {
			e.Fatalf("after a restart the last token is %d, was %d", got, highest)
		}
	}
}

// A live lease gets its full ttl again from the start: time during which its
// holder could not renew is not held against it (lockd gap 14).
func restartFullTTL(e *env) {
	e.needRestart()
	a := e.join("a")
	r := lasting(10*time.Second, exclusive("k"))
	r.Detach = true
	a.get(r)
	e.pass(9 * time.Second)
	e.restart()
	w := e.join("b").want("k")
	e.pass(10*time.Second - slack)
	w.waits()
	e.pass(2 * slack)
	w.granted()
}

// Holds come back with token, mode, limit, label, owner and order.
func restartHolds(e *env) {
	e.needRestart()
	a := e.joinAs(lease.SessionOptions{Name: "a", Host: "h", PID: 9, Grace: time.Minute})
	r := lasting(time.Hour, counted(3, "k"))
	r.Label = "job"
	one := a.get(r)
	two := a.get(lasting(lease.Forever, counted(4, "k", "j")))
	three := a.get(lasting(time.Hour, shared("s")))
	e.restart()
	k := e.show("k")
	if len(k.Holders) != 2 {
		e.Fatalf("key k: %+v, want two holders", k)
	}
	p := lease.Party{Session: "a", Host: "h", PID: 9, Label: "job"}
	if h := k.Holders[0]; h.Party != p || h.Mode != lease.Counted || h.Limit != 3 || h.Token != one.Token() || h.TTL != time.Hour {
		e.Errorf("first holder %+v, want %+v of %+v", h, one, p)
	}
	token, _ := two.TokenOf("k")
	if h := k.Holders[1]; h.Limit != 4 || h.Token != token || h.TTL != lease.Forever || h.Remaining != lease.Forever {
		e.Errorf("second holder %+v, want %+v", h, two)
	}
	if h := e.show("s").Holders; len(h) != 1 || h[0].Mode != lease.Shared || h[0].Token != three.Token() {
		e.Errorf("key s: %+v, want %+v", h, three)
	}
	b := e.join("b")
	b.get(try(counted(3, "k")))
	b.ask(try(counted(3, "k"))).failed(lease.ErrBusy)
	b.ask(try(exclusive("j"))).failed(lease.ErrBusy)
	b.get(try(shared("s")))
}

// A session is resumed under its id, and its grace begins anew.
func restartResume(e *env) {
	e.needRestart()
	const grace = 5 * time.Second
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: grace})
	l := a.get(lasting(time.Hour, exclusive("x", "y")))
	e.pass(4 * time.Second)
	e.restart()
	e.pass(4 * time.Second)
	back := e.joinAs(lease.SessionOptions{Resume: a.s.ID()})
	got := back.s.Leases()
	if len(got) != 1 || got[0].ID != l.ID || len(got[0].Holds) != 2 || got[0].Holds[0] != l.Holds[0] || got[0].Holds[1] != l.Holds[1] {
		e.Fatalf("resumed with %+v, want %+v", got, l)
	}
	back.alive(2*grace, grace/3)
	back.mustDo(lease.Command{Verb: lease.Renew, Token: l.Token()})
	back.release(l)
	e.empty()
}

// A session that does not come back within its grace is over.
func restartNotResumed(e *env) {
	e.needRestart()
	const grace = 5 * time.Second
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: grace})
	a.get(lasting(time.Hour, exclusive("k")))
	e.restart()
	start := time.Now()
	w := e.join("b").want("k")
	e.pass(grace - slack)
	w.waits()
	e.pass(2 * slack)
	w.granted()
	if d := w.at.Sub(start); d < grace-slack {
		e.Fatalf("the session ended %v after the restart, want %v", d, grace)
	}
	if _, err := e.tryJoin(lease.SessionOptions{Resume: a.s.ID()}); lease.CodeOf(err) != lease.ErrSessionLost {
		e.Fatalf("resume: %v, want session lost", err)
	}
}

// A request sent again after the restart gets the grant that it already had.
func restartSameGrant(e *env) {
	e.needRestart()
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: 5 * time.Second})
	r := named("r", lasting(time.Minute, exclusive("x", "y")))
	l := a.get(r)
	e.restart()
	back := e.joinAs(lease.SessionOptions{Resume: a.s.ID()})
	again := back.get(r)
	if again.ID != "r" || len(again.Holds) != 2 || again.Holds[0] != l.Holds[0] || again.Holds[1] != l.Holds[1] {
		e.Fatalf("the repeat got %+v, want %+v", again, l)
	}
	other := r
	other.Keys = []string{"x"}
	back.ask(other).failed(lease.ErrRefused)
}

// Waiters are not kept; they come again with their age, and so in their order.
func restartWaiters(e *env) {
	e.needRestart()
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Minute})
	l := a.get(lasting(time.Hour, exclusive("k")))
	e.restart()
	back := e.joinAs(lease.SessionOptions{Resume: a.s.ID()})
	b := e.join("b")
	ages := []time.Duration{3 * time.Second, 9 * time.Second, time.Second, 6 * time.Second}
	calls := map[time.Duration]*call{}
	for _, age := range ages {
		r := lasting(lease.Forever, exclusive("k"))
		r.Waited = age
		calls[age] = b.ask(r)
		calls[age].waits()
	}
	fresh := b.want("k")
	back.release(l)
	for _, age := range []time.Duration{9 * time.Second, 6 * time.Second, 3 * time.Second, time.Second} {
		got := calls[age].granted()
		if got.Waited < age {
			e.Errorf("waited %v, want at least the %v from before", got.Waited, age)
		}
		b.release(got)
	}
	fresh.granted()
}

// What was released, forced, or had run out does not come back.
func restartEnded(e *env) {
	e.needRestart()
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Minute})
	a.release(a.get(lasting(time.Hour, exclusive("released"))))
	set := a.get(lasting(time.Hour, exclusive("set1", "set2")))
	a.mustDo(lease.Command{Verb: lease.Release, Token: set.Holds[0].Token})
	a.get(lasting(time.Hour, exclusive("forced")))
	e.force(lease.ForceRequest{Key: "forced"})
	a.get(lasting(time.Second, exclusive("expired")))
	e.pass(time.Second + slack)
	gone := e.join("gone")
	gone.get(lasting(time.Hour, exclusive("goodbye")))
	gone.close()
	e.restart()
	if got := keysOf(e.list(lease.Query{})); len(got) != 1 || got[0] != "set2" {
		e.Fatalf("held after the restart: %q, want set2 only", got)
	}
}

// A ttl changed by a renewal is the one that counts.
func restartChangedTTL(e *env) {
	e.needRestart()
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Hour})
	l := a.get(lasting(5*time.Second, exclusive("k")))
	a.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID, TTL: time.Minute})
	e.restart()
	w := e.join("b").want("k")
	e.pass(time.Minute - slack)
	w.waits()
	e.pass(2 * slack)
	w.granted()
}

func restartDetached(e *env) {
	e.needRestart()
	a := e.join("a")
	l := a.get(lasting(time.Minute, exclusive("k")))
	a.mustDo(lease.Command{Verb: lease.Detach, ID: l.ID})
	a.close()
	e.restart()
	b := e.join("b")
	if h := e.show("k").Holders; len(h) != 1 || !h[0].Detached || h[0].Token != l.Token() {
		e.Fatalf("key: %+v, want the detached hold", h)
	}
	e.pass(30 * time.Second)
	b.mustDo(lease.Command{Verb: lease.Renew, ID: l.ID})
	e.pass(50 * time.Second)
	b.mustDo(lease.Command{Verb: lease.Release, ID: l.ID})
	e.empty()
}

// A lock-delay is in force for its full time again.
func restartLockDelay(e *env) {
	e.needRestart()
	a := e.join("a")
	a.get(delayed(10*time.Second, exclusive("k")))
	e.force(lease.ForceRequest{Key: "k"})
	e.restart()
	b := e.join("b")
	w := b.want("k")
	e.stillDelayed("k", 10*time.Second, w, b)
}

// Restart after restart, with traffic between, keeps exactly what is held.
func restartOften(e *env) {
	e.needRestart()
	held := map[string]lease.Token{}
	for i := range 8 {
		a := e.join("a")
		for j := range 10 {
			k := fmt.Sprintf("k%d-%d", i, j)
			r := lasting(time.Hour, exclusive(k))
			r.Detach = true
			l := a.get(r)
			if j%2 == 0 {
				a.release(l)
			} else {
				held[k] = l.Token()
			}
		}
		a.close()
		e.restart()
		l := e.list(lease.Query{})
		if len(l.Keys) != len(held) {
			e.Fatalf("restart %d: %d keys are held, want %d", i, len(l.Keys), len(held))
		}
		for _, k := range l.Keys {
			if len(k.Holders) != 1 || k.Holders[0].Token != held[k.Key] {
				e.Fatalf("restart %d: key %s is %+v, want token %d", i, k.Key, k.Holders, held[k.Key])
			}
		}
	}
	synctest.Wait()
}
