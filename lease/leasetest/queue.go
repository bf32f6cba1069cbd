package leasetest

import (
	"fmt"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// queue checks who is granted next.
func queue() []test {
	return []test{
		{"FirstComeFirstServed", firstCome},
		{"QueuedSaysWhere", queuedSaysWhere},
		{"ReaderBehindWaitingWriter", readerBehindWriter},
		{"ReadersTogether", readersTogether},
		{"PreferReadersPasses", preferReaders},
		{"CountedInOrder", countedInOrder},
		{"TryObeysTheQueue", tryObeys},
		{"FreeKeyIdles", freeKeyIdles},
		{"OtherKeysGoOn", otherKeysGoOn},
		{"LeaverLetsOthersThrough", leaverLetsThrough},
		{"BrokenSessionIsPassedOver", brokenPassedOver},
		{"WaitIsBounded", waitBounded},
	}
}

// Waiters of one key are granted in order of arrival, one per release, whatever
// session they are of.
func firstCome(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	var waiting []*call
	var of []*party
	for i := range 10 {
		p := []*party{a, b}[i%2]
		c := p.want("k")
		if q := c.waits(); q.Position != i {
			e.Fatalf("waiter %d was told position %d", i, q.Position)
		}
		waiting, of = append(waiting, c), append(of, p)
	}
	a.release(l)
	for i, c := range waiting {
		l := c.granted()
		if i+1 < len(waiting) {
			waiting[i+1].waits()
		}
		of[i].release(l)
	}
	e.empty()
}

// A request that waits is told for which key, behind how many, and who holds it.
func queuedSaysWhere(e *env) {
	a, b := e.joinAs(lease.SessionOptions{Name: "a", Host: "h", PID: 7}), e.join("b")
	r := exclusive("x", "y")
	r.Label = "work"
	l := a.get(r)
	q := b.ask(named("mine", exclusive("w", "y"))).waits()
	if q.ID != "mine" || q.Key != "y" || q.Position != 0 || len(q.Ahead) != 1 {
		e.Fatalf("queued: %+v", q)
	}
	h := q.Ahead[0]
	token, _ := l.TokenOf("y")
	if h.Session != "a" || h.Host != "h" || h.PID != 7 || h.Label != "work" || h.Token != token || h.Mode != lease.Exclusive {
		e.Fatalf("ahead: %+v, want a's hold with token %d", h, token)
	}
}

// A later reader queues behind a waiting writer, so that readers cannot starve it.
func readerBehindWriter(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(shared("k"))
	w := b.want("k")
	w.waits()
	a.ask(try(shared("k"))).failed(lease.ErrBusy)
	r := a.ask(shared("k"))
	r.waits()
	a.release(l)
	r.waits()
	b.release(w.granted())
	r.granted()
}

// Readers next to each other in the queue are granted together, and no further
// than the writer behind them.
func readersTogether(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("k")
	r1, r2 := a.ask(shared("k")), b.ask(shared("k"))
	w := b.want("k")
	r3 := a.ask(shared("k"))
	a.release(l)
	l1, l2 := r1.granted(), r2.granted()
	w.waits()
	r3.waits()
	a.release(l1)
	w.waits()
	b.release(l2)
	b.release(w.granted())
	r3.granted()
}

// A reader that asks to be preferred passes waiting writers, waiting or not; one
// that does not ask does not.
func preferReaders(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.get(shared("k"))
	w := b.want("k")
	w.waits()
	r := shared("k")
	r.PreferReaders = true
	passing := a.get(try(r))
	a.release(l)
	w.waits()
	a.release(passing)
	held := w.granted()

	plain := a.ask(shared("k"))
	w2 := a.want("k")
	late := b.ask(r)
	late.waits()
	b.release(held)
	l, got := plain.granted(), late.granted()
	w2.waits()
	a.release(l)
	w2.waits()
	b.release(got)
	w2.granted()
}

// Two counted requests conflict: the later one waits behind the earlier, even
// where it would fit by itself.
func countedInOrder(e *env) {
	a := e.join("a")
	one, two := a.get(counted(3, "k")), a.get(counted(3, "k"))
	small := a.ask(counted(1, "k"))
	small.waits()
	large := a.ask(counted(3, "k"))
	large.waits()
	a.release(one)
	small.waits()
	large.waits()
	a.release(two)
	l := small.granted()
	large.waits()
	a.release(l)
	large.granted()
}

// A try is busy when somebody it conflicts with is queued ahead, even if the key
// itself is free.
func tryObeys(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("b")
	many := a.want("a", "b")
	many.waits()
	err := b.ask(try(exclusive("a"))).failed(lease.ErrBusy)
	if err.Key != "a" || err.Reason == "" {
		e.Fatalf("busy: %+v, want key a and a reason, since nobody holds it", err)
	}
	a.release(l)
	many.granted()
}

// A free key idles behind an earlier request that waits for another key too.
func freeKeyIdles(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("b")
	many := a.want("a", "b")
	many.waits()
	single := b.want("a")
	single.waits()
	reader := b.ask(shared("a"))
	reader.waits()
	if k := e.show("a"); len(k.Holders) != 0 || len(k.Waiters) != 3 {
		e.Fatalf("key a: %+v, want it idle with three waiters", k)
	}
	a.release(l)
	held := many.granted()
	single.waits()
	a.release(held)
	b.release(single.granted())
	reader.granted()
}

// Waiting for one key does not keep a session, or others, from other keys.
func otherKeysGoOn(e *env) {
	a, b := e.join("a"), e.join("b")
	a.hold("k")
	b.want("k").waits()
	for i := range 20 {
		key := fmt.Sprint("other", i)
		l := b.hold(key)
		c := a.want(key)
		c.waits()
		b.release(l)
		a.release(c.granted())
	}
}

// When a waiter leaves without a grant, those who waited for it only go on.
func leaverLetsThrough(e *env) {
	a, b := e.join("a"), e.join("b")
	a.get(shared("k"))
	w := b.ask(named("w", exclusive("k")))
	w.waits()
	r := a.ask(shared("k"))
	r.waits()
	b.mustDo(lease.Command{Verb: lease.Cancel, ID: "w"})
	w.failed(lease.ErrCancelled)
	r.granted()

	bounded := exclusive("k")
	bounded.Wait = time.Second
	w2 := b.ask(bounded)
	r2 := a.ask(shared("k"))
	r2.waits()
	e.pass(time.Second)
	w2.failed(lease.ErrTimeout)
	r2.granted()
}

// A waiter whose session is broken keeps its place and is passed over: it is not
// granted into the void, and is first again when its session comes back.
func brokenPassedOver(e *env) {
	a, b := e.join("a"), e.join("b")
	gone := e.joinAs(lease.SessionOptions{Name: "gone", Grace: time.Minute})
	l := a.hold("k")
	gone.ask(named("w", exclusive("k"))).waits()
	second := b.want("k")
	third := a.want("k")
	gone.suspend()

	a.release(l)
	held := second.granted()
	third.waits()

	back := e.joinAs(lease.SessionOptions{Resume: gone.s.ID()})
	again := back.ask(named("w", exclusive("k")))
	if q := again.waits(); q.Position != 0 {
		e.Fatalf("the waiter came back to position %d, want its old place 0", q.Position)
	}
	b.release(held)
	again.granted()
	third.waits()
}

// The request's own bound on waiting ends it when it is due, with the holders.
func waitBounded(e *env) {
	a, b := e.join("a"), e.join("b")
	a.hold("k")
	r := exclusive("k")
	r.Wait = 1500 * time.Millisecond
	c := b.ask(r)
	c.waits()
	e.pass(r.Wait - time.Millisecond)
	c.waits()
	e.pass(2 * slack)
	err := c.failed(lease.ErrTimeout)
	e.about("timeout", c.after(), r.Wait)
	if len(err.Holders) != 1 || err.Holders[0].Session != "a" {
		e.Fatalf("timeout names %+v, want the holder a", err.Holders)
	}
	if k := e.show("k"); len(k.Waiters) != 0 {
		e.Fatalf("waiters are left: %+v", k.Waiters)
	}
	synctest.Wait()
}
