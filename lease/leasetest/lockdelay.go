package leasetest

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// lockDelays checks that a key stays unavailable after an involuntary loss where
// that was asked for.
func lockDelays() []test {
	return []test{
		{"AfterExpiry", delayAfterExpiry},
		{"AfterForce", delayAfterForce},
		{"AfterSessionEnd", delayAfterSession},
		{"NotAfterRelease", noDelayAfterRelease},
		{"LongestWins", longestDelayWins},
		{"HoldsBackASet", delayHoldsBackSet},
	}
}

func delayed(d time.Duration, r lease.Request) lease.Request {
	r.LockDelay = d
	return r
}

// stillDelayed checks that key is unavailable for d more, then free for w.
func (e *env) stillDelayed(key string, d time.Duration, w *call, p *party) {
	e.Helper()
	start := time.Now()
	k := e.show(key)
	if len(k.Holders) != 0 || k.Delay > d || k.Delay < d-slack {
		e.Fatalf("key %+v, want no holder and a delay of %v", k, d)
	}
	p.ask(try(exclusive(key))).failed(lease.ErrBusy)
	e.pass(d - slack - time.Millisecond)
	w.waits()
	e.pass(2 * slack)
	w.granted()
	if got := w.at.Sub(start); got < d-slack || got > d+slack {
		e.Fatalf("granted after %v, want %v", got, d)
	}
	if k := e.show(key); k.Delay != 0 {
		e.Fatalf("delay %v is left after a grant", k.Delay)
	}
}

func delayAfterExpiry(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(delayed(2*time.Second, lasting(time.Second, exclusive("k"))))
	w := b.want("k")
	e.pass(time.Second)
	e.stillDelayed("k", 2*time.Second, w, b)
}

func delayAfterForce(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(delayed(3*time.Second, exclusive("k")))
	w := b.want("k")
	e.force(lease.ForceRequest{Key: "k"})
	e.stillDelayed("k", 3*time.Second, w, b)
}

func delayAfterSession(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "a", Grace: time.Second})
	b := e.join("b")
	a.get(delayed(2*time.Second, lasting(time.Hour, exclusive("k"))))
	w := b.want("k")
	a.suspend()
	e.pass(time.Second)
	e.stillDelayed("k", 2*time.Second, w, b)
}

// A release, a cancel and a goodbye are voluntary.
func noDelayAfterRelease(e *env) {
	a, b := e.join("a"), e.join("b")
	a.release(a.get(delayed(time.Hour, exclusive("k"))))
	b.release(b.hold("k"))
	a.get(named("r", delayed(time.Hour, exclusive("k"))))
	a.mustDo(lease.Command{Verb: lease.Cancel, ID: "r"})
	b.release(b.hold("k"))
	a.get(delayed(time.Hour, exclusive("k")))
	a.close()
	b.release(b.hold("k"))
	e.empty()
}

// Of several delays on one key the longest counts.
func longestDelayWins(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(delayed(3*time.Second, lasting(time.Second, shared("k"))))
	a.get(delayed(time.Second, lasting(time.Second, shared("k"))))
	a.get(lasting(time.Second, shared("k")))
	w := b.want("k")
	e.pass(time.Second)
	e.stillDelayed("k", 3*time.Second, w, b)
}

// A request for many keys waits for the delay of each.
func delayHoldsBackSet(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(delayed(2*time.Second, exclusive("k")))
	w := b.want("j", "k")
	e.force(lease.ForceRequest{Key: "k"})
	e.stillDelayed("k", 2*time.Second, w, b)
}
