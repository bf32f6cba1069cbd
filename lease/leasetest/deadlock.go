package leasetest

import (
	"fmt"
	"strings"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// deadlocks checks that requests which must wait for themselves are refused, and
// only those. Edges come from declared holds alone.
func deadlocks() []test {
	return []test{
		{"TwoParties", twoParties},
		{"ThreeParties", threeParties},
		{"Itself", deadlockItself},
		{"Upgrade", deadlockUpgrade},
		{"ReaderAgainBehindWriter", readerAgain},
		{"ThroughTheQueue", throughTheQueue},
		{"SharedNeedsAll", sharedNeedsAll},
		{"CountedNeedsOne", countedNeedsOne},
		{"CountedAllStuck", countedAllStuck},
		{"ManyKeys", deadlockManyKeys},
		{"AcrossSessions", deadlockAcrossSessions},
		{"TryIsBusy", tryIsBusy},
		{"SiblingLeaves", siblingLeaves},
		{"UndeclaredIsInnocent", undeclaredInnocent},
		{"UnknownDeclared", unknownDeclared},
		{"ManyGoroutines", manyGoroutines},
		{"RefusedLeavesNothing", refusedLeavesNothing},
	}
}

// while adds to a request the holds that stand until it is answered.
func while(r lease.Request, holds ...lease.Lease) lease.Request {
	r.TTL = lease.Forever
	for _, l := range holds {
		r.Declared = append(r.Declared, l.ID)
	}
	return r
}

// deadlocked checks the refusal and that its cycle names these keys and parties.
func (c *call) deadlocked(names ...string) {
	c.e.Helper()
	err := c.failed(lease.ErrDeadlock)
	if len(err.Cycle) == 0 {
		c.e.Fatalf("deadlock without a cycle: %+v", err)
	}
	text := err.Error()
	for _, n := range names {
		if !strings.Contains(text, n) {
			c.e.Errorf("deadlock error %q does not name %s", text, n)
		}
	}
}

// a then b, against b then a: the one that closes the circle is refused, the
// other goes on when it gave up.
func twoParties(e *env) {
	a, b := e.join("anna"), e.join("bert")
	la, lb := a.hold("x"), b.hold("y")
	ca := a.ask(while(exclusive("y"), la))
	ca.waits()
	b.ask(while(exclusive("x"), lb)).deadlocked("anna", "bert", `"x"`, `"y"`)
	ca.waits()
	b.release(lb)
	ca.granted()
}

func threeParties(e *env) {
	a, b, c := e.join("anna"), e.join("bert"), e.join("carl")
	la, lb, lc := a.hold("x"), b.hold("y"), c.hold("z")
	ca := a.ask(while(exclusive("y"), la))
	cb := b.ask(while(exclusive("z"), lb))
	ca.waits()
	cb.waits()
	c.ask(while(exclusive("x"), lc)).deadlocked("anna", "bert", "carl")
	c.release(lc)
	b.release(cb.granted())
	b.release(lb)
	ca.granted()
}

// Waiting for a key that one holds oneself never ends.
func deadlockItself(e *env) {
	a := e.join("anna")
	l := a.hold("x")
	a.ask(while(exclusive("x"), l)).deadlocked("anna", `"x"`)
	a.ask(while(shared("x"), l)).deadlocked("anna")
	a.ask(while(counted(4, "x"), l)).deadlocked("anna")
	a.ask(while(exclusive("w", "x"), l)).deadlocked("anna")
}

// A reader that wants to write waits for its own read, alone or beside others.
func deadlockUpgrade(e *env) {
	a, b := e.join("anna"), e.join("bert")
	l := a.get(shared("x"))
	other := b.get(shared("x"))
	a.ask(while(exclusive("x"), l)).deadlocked("anna")
	b.release(other)
	a.ask(while(exclusive("x"), l)).deadlocked("anna")
}

// A reader that reads once more behind a waiting writer waits for the writer,
// who waits for it: an edge of the queue. Preferring readers avoids it.
func readerAgain(e *env) {
	a, b := e.join("anna"), e.join("bert")
	l := a.get(shared("x"))
	w := b.want("x")
	w.waits()
	a.ask(while(shared("x"), l)).deadlocked("anna", "bert")
	r := while(shared("x"), l)
	r.PreferReaders = true
	a.release(a.get(r))
	a.release(l)
	w.granted()
}

// Who is queued ahead must leave first: a cycle can pass through a request that
// holds nothing at all.
func throughTheQueue(e *env) {
	h, w, x, y := e.join("hugo"), e.join("wim"), e.join("xena"), e.join("yves")
	h.hold("k")
	ln, lj := x.hold("n"), y.hold("j")
	w.want("k", "n").waits()
	x.ask(while(exclusive("j"), ln)).waits()
	y.ask(while(exclusive("k"), lj)).deadlocked("wim", "xena", "yves")
}

// A writer needs every reader gone, so one reader that waits for the writer is
// enough.
func sharedNeedsAll(e *env) {
	a, b, w := e.join("anna"), e.join("bert"), e.join("wim")
	a.get(shared("k"))
	lb := b.get(shared("k"))
	ly := w.hold("y")
	w.ask(while(exclusive("k"), ly)).waits()
	b.ask(while(exclusive("y"), lb)).deadlocked("bert", "wim")
}

// One permit is enough for a counted request: while one holder is free to let go
// it is not stuck, though another holder waits for it.
func countedNeedsOne(e *env) {
	a, b, d := e.join("anna"), e.join("bert"), e.join("dora")
	pa, pd := a.get(counted(2, "k")), d.get(counted(2, "k"))
	ly := b.hold("y")
	cb := b.ask(while(counted(2, "k"), ly))
	cb.waits()
	ca := a.ask(while(exclusive("y"), pa))
	ca.waits()
	d.release(pd)
	b.release(cb.granted())
	b.release(ly)
	ca.granted()
}

// When the last permit's holder waits for it too, it is stuck.
func countedAllStuck(e *env) {
	a, b, d := e.join("anna"), e.join("bert"), e.join("dora")
	pa, pd := a.get(counted(2, "k")), d.get(counted(2, "k"))
	ly := b.hold("y")
	cb := b.ask(while(counted(2, "k"), ly))
	ca := a.ask(while(exclusive("y"), pa))
	ca.waits()
	d.ask(while(exclusive("y"), pd)).deadlocked("dora")
	d.release(pd)
	b.release(cb.granted())
	b.release(ly)
	ca.granted()
}

// Each key of a set can be the one that closes the circle.
func deadlockManyKeys(e *env) {
	a, b := e.join("anna"), e.join("bert")
	la, lb := a.hold("a", "b"), b.hold("c", "d")
	cb := b.ask(while(exclusive("b", "e"), lb))
	cb.waits()
	a.ask(while(exclusive("d", "f"), la)).deadlocked("anna", "bert")
	a.release(la)
	cb.granted()
}

// Declared holds may be another session's, as in a run inside a run.
func deadlockAcrossSessions(e *env) {
	outer, inner, b := e.join("outer"), e.join("inner"), e.join("bert")
	l := outer.get(named("outer-hold", lasting(lease.Forever, exclusive("x"))))
	lb := b.hold("y")
	cb := b.ask(while(exclusive("x"), lb))
	cb.waits()
	inner.ask(while(exclusive("y"), l)).deadlocked("inner", "bert")
	outer.release(l)
	cb.granted()
}

// A try never waits, so it is busy where a wait would be a deadlock.
func tryIsBusy(e *env) {
	a := e.join("a")
	l := a.hold("x")
	a.ask(try(while(exclusive("x"), l))).failed(lease.ErrBusy)
}

// A hold stands until every request that declares it is answered. One of two that
// is stuck keeps it, so when the other is gone, at the latest, that is found.
func siblingLeaves(e *env) {
	a, b, c := e.join("anna"), e.join("bert"), e.join("carl")
	lx, ly := a.hold("x"), b.hold("y")
	c.hold("z")
	sibling := a.ask(named("sibling", while(exclusive("z"), lx)))
	sibling.waits()
	ca := a.ask(while(exclusive("y"), lx))
	cb := b.ask(while(exclusive("x"), ly))
	a.mustDo(lease.Command{Verb: lease.Cancel, ID: "sibling"})
	if !ca.over() && !cb.over() {
		e.Fatal("two requests wait for each other, and neither was refused")
	}
	if ca.over() {
		ca.deadlocked()
	} else {
		cb.deadlocked()
	}
}

// Without declarations nothing is known about who holds what while it waits.
func undeclaredInnocent(e *env) {
	a, b := e.join("a"), e.join("b")
	la, lb := a.hold("x"), b.hold("y")
	ca := a.want("y")
	ca.waits()
	cb := b.want("x")
	cb.waits()
	a.want("x").waits()
	a.release(la)
	cb.granted()
	b.release(lb)
	ca.granted()
}

// Declared ids that name no hold, any more or at all, make no edge.
func unknownDeclared(e *env) {
	a, b := e.join("a"), e.join("b")
	l := a.hold("x")
	gone := a.hold("y")
	a.release(gone)
	c := b.ask(while(exclusive("x"), gone, lease.Lease{ID: "nobody"}))
	c.waits()
	a.release(l)
	c.granted()
}

// Two hundred requests of one session on crossed keys, without declarations: they
// wait, and run into their bounds, but nobody is taken for a deadlock.
func manyGoroutines(e *env) {
	a := e.join("a")
	a.hold("x")
	a.hold("y")
	var calls []*call
	for i := range 200 {
		r := exclusive([]string{"x", "y"}[i%2], fmt.Sprint("own", i))
		r.Wait = time.Second
		c := &call{e: e, r: r, start: time.Now()}
		calls, e.calls = append(calls, c), append(e.calls, c)
		go a.s.Acquire(r, c)
	}
	synctest.Wait()
	e.pass(time.Second + slack)
	for _, c := range calls {
		c.failed(lease.ErrTimeout)
	}
	if n := e.stats().Deadlocks; n != 0 {
		e.Fatalf("%d deadlocks were reported", n)
	}
}

// A request that was refused is not in any queue, holds nothing, and its id is
// over.
func refusedLeavesNothing(e *env) {
	a, b := e.join("anna"), e.join("bert")
	la, lb := a.hold("x"), b.hold("y")
	ca := a.ask(while(exclusive("y"), la))
	r := named("refused", while(exclusive("x", "z"), lb))
	b.ask(r).deadlocked()
	if x, z := e.show("x"), e.show("z"); len(x.Waiters) != 0 || len(z.Waiters)+len(z.Holders) != 0 {
		e.Fatalf("left behind: %+v %+v", x, z)
	}
	b.ask(r).failed(lease.ErrOver)
	b.release(lb)
	ca.granted()
	if n := e.stats().Deadlocks; n != 1 {
		e.Fatalf("%d deadlocks counted, want 1", n)
	}
}
