package leasetest

import (
	"fmt"
	"math/rand/v2"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// outcomes checks what a request can come to, and that cancel leaves nothing
// behind (lockd gap 17).
func outcomes() []test {
	return []test{
		{"BusySaysWho", busySaysWho},
		{"CancelWhileWaiting", cancelWhileWaiting},
		{"CancelAfterGrant", cancelAfterGrant},
		{"CancelBeforeRequest", cancelBeforeRequest},
		{"CancelTwice", cancelTwice},
		{"CancelOneOfMany", cancelOneOfMany},
		{"CancelRacesGrant", cancelRaces},
		{"UnknownVerb", unknownVerb},
		{"NamelessCommand", namelessCommand},
		{"CallbackMayCallBack", callbackMayCallBack},
	}
}

// Busy names the holders, since when, and until when.
func busySaysWho(e *env) {
	a := e.joinAs(lease.SessionOptions{Name: "owner", Host: "box", PID: 42})
	b := e.join("b")
	r := lasting(10*time.Second, exclusive("k"))
	r.Label = "nightly"
	l := a.get(r)
	e.pass(4 * time.Second)
	err := b.ask(try(exclusive("k"))).failed(lease.ErrBusy)
	if err.Key != "k" || len(err.Holders) != 1 {
		e.Fatalf("busy: %+v, want key k and its holder", err)
	}
	h := err.Holders[0]
	if h.Session != "owner" || h.Host != "box" || h.PID != 42 || h.Label != "nightly" || h.Token != l.Token() ||
		h.TTL != 10*time.Second || h.Mode != lease.Exclusive {
		e.Fatalf("holder: %+v", h)
	}
	e.about("since", h.Since, 4*time.Second)
	if h.Remaining > 6*time.Second || h.Remaining < 6*time.Second-slack {
		e.Fatalf("remaining %v, want 6s", h.Remaining)
	}
}

// A cancelled waiter is gone: its place, and any later grant.
func cancelWhileWaiting(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k", "k2")
	w := b.ask(named("w", exclusive("k", "k2")))
	w.waits()
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "w"})
	w.failed(lease.ErrCancelled)
	if k := e.show("k"); len(k.Waiters) != 0 || k.Waiting != 0 {
		e.Fatalf("waiters are left: %+v", k)
	}
	a.release(l)
	e.empty()
}

// Cancel of a request that was granted meanwhile releases it.
func cancelAfterGrant(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(named("r", exclusive("k")))
	w := b.want("k")
	a.mustDo(lease.Command{Verb: lease.Cancel, ID: "r"})
	w.granted()
	if n := a.notices(); len(n) != 0 {
		e.Fatalf("a cancel is no loss, but was told: %+v", n)
	}
}

// Cancelling what is not there succeeds, and a request that its own cancel
// overtook is not granted.
func cancelBeforeRequest(e *env) {
	a := e.join("a")
	a.mustDo(lease.Command{Verb: lease.Cancel, ID: "late"})
	a.ask(named("late", exclusive("k"))).failed(lease.ErrOver, lease.ErrCancelled)
	e.empty()
}

func cancelTwice(e *env) {
	a, b := e.join("a"), e.join("b")
	a.hold("k")
	w := b.ask(named("w", exclusive("k")))
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "w"})
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "w"})
	w.failed(lease.ErrCancelled)
}

// Cancelling a waiter in the middle keeps the others' order.
func cancelOneOfMany(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	var calls []*call
	for i := range 5 {
		calls = append(calls, b.ask(named(fmt.Sprint("w", i), lasting(lease.Forever, exclusive("k")))))
	}
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "w2"})
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "w0"})
	a.release(l)
	for _, i := range []int{1, 3, 4} {
		b.release(calls[i].granted())
	}
	e.empty()
}

// Cancels sent in the same breath as the release that would grant: whichever
// wins, the key ends up free, and nobody is granted into the void.
func cancelRaces(e *env) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 3))
	a, b := e.join("a"), e.join("b")
	for i := range 100 {
		l := a.hold("k")
		id := fmt.Sprint("w", i)
		w := b.ask(named(id, lasting(lease.Forever, exclusive("k"))))
		w.waits()
		cancelled := make(chan error, 1)
		cancel := func() {
			b.s.Do(lease.Command{Verb: lease.Cancel, ID: id}, func(_ lease.Lease, err error) { cancelled <- err })
		}
		release := func() { a.s.Do(lease.Command{Verb: lease.Release, ID: l.ID}, nil) }
		both := []func(){cancel, release}
		first := rng.IntN(2)
		go both[first]()
		both[1-first]()
		if err := <-cancelled; err != nil {
			e.Fatalf("seed %d: cancel %d: %v", seed, i, err)
		}
		synctest.Wait()
		if !w.over() {
			e.Fatalf("seed %d: request %d was cancelled and not answered", seed, i)
		}
		e.empty()
	}
}

// A verb that does not exist is refused and changes nothing.
func unknownVerb(e *env) {
	a := e.join("a")
	l := a.hold("k")
	a.fails(lease.Command{Verb: 99, ID: l.ID}, lease.ErrRefused)
	if n := len(e.show("k").Holders); n != 1 {
		e.Fatalf("%d holders, want 1", n)
	}
}

// A command must say what it is for.
func namelessCommand(e *env) {
	a := e.join("a")
	for _, v := range []lease.Verb{lease.Renew, lease.Release, lease.Detach, lease.Cancel} {
		a.fails(lease.Command{Verb: v}, lease.ErrRefused)
	}
	a.mustDo(lease.Command{Verb: lease.Ping})
	for _, v := range []lease.Verb{lease.Renew, lease.Release, lease.Detach} {
		a.fails(lease.Command{Verb: v, ID: "nobody"}, lease.ErrNotHeld)
		a.fails(lease.Command{Verb: v, Token: 12345}, lease.ErrNotHeld)
	}
}

// chain asks for the next key from inside the callback of the last one.
type chain struct {
	e    *env
	p    *party
	left int
	done chan error
}

func (c *chain) Queued(lease.Queued) {}

func (c *chain) Done(l lease.Lease, err error) {
	if err != nil || c.left == 0 {
		c.done <- err
		return
	}
	next := &chain{c.e, c.p, c.left - 1, c.done}
	c.p.s.Do(lease.Command{Verb: lease.Release, ID: l.ID}, func(_ lease.Lease, err error) {
		if err != nil {
			c.done <- err
			return
		}
		c.p.s.Acquire(exclusive("k"), next)
	})
}

// Callbacks may call the service, at any depth, without a hang.
func callbackMayCallBack(e *env) {
	a := e.join("a")
	c := &chain{e, a, 500, make(chan error, 1)}
	a.s.Acquire(exclusive("k"), c)
	if err := <-c.done; err != nil {
		e.Fatal(err)
	}
}
