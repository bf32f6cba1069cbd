package core

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// out starts a read of k whose node does not answer.
func (b *bench) out(id ReadID, min Version) (load Action) {
	b.t.Helper()
	ask := b.want(b.f.Read(b.now, id, "k", min), DoAsk)
	return b.want(b.f.Answered(b.now, ask.Op, Answer{}, errTest), DoLoad)
}

// TestPast: past a node that is out at most one load of a key runs, and one waits behind it, which any read may join.
func TestPast(t *testing.T) {
	b := newBench(t, nil)
	load := b.out(1, 0)
	if load.Min != Fresh {
		t.Errorf("%+v", load)
	}
	ask := b.want(b.f.Read(b.now, 2, "k", 0), DoAsk)
	b.want(b.f.Answered(b.now, ask.Op, Answer{}, errTest)) // waits behind the load
	b.want(b.f.Read(b.now, 3, "k", 7))
	b.f.closeTo(b.f.open["k"])
	b.want(b.f.Read(b.now, 4, "k", 0)) // the breaker is open: the node is not asked
	did := b.f.Loaded(b.now, load.Op, item(1), good, nil)
	next := b.want(did, DoServe, DoLoad)
	if !slices.Equal(did[0].Reads, []ReadID{1}) {
		t.Errorf("%+v", did[0])
	}
	b.want(b.f.Read(b.now, 5, "k", 0)) // behind that one
	did = b.f.Loaded(b.now, next.Op, item(7), good, nil)
	last := b.want(did, DoServe, DoLoad)
	if !slices.Equal(did[0].Reads, []ReadID{2, 3, 4}) {
		t.Errorf("%+v", did[0])
	}
	if s := b.want(b.f.Loaded(b.now, last.Op, Item{}, Times{}, errTest), DoServe); s.Outcome != FailedLoad {
		t.Errorf("%+v", s)
	}
	if len(b.f.running)+len(b.f.queue)+b.f.direct+len(b.f.open) != 0 {
		t.Error("something is left")
	}
}

// TestPastLimits: only so many loads go past nodes, so many wait, and the rest is refused.
func TestPastLimits(t *testing.T) {
	b := newBench(t, nil)
	b.f.nodes[0].failures, b.f.nodes[0].outUntil = 9, b.now+time.Hour
	first := b.want(b.f.Read(b.now, 1, "a", 0), DoLoad)
	b.want(b.f.Read(b.now, 2, "b", 0))
	b.want(b.f.Read(b.now, 3, "b", Fresh)) // joins it
	if s := b.want(b.f.Read(b.now, 4, "c", 0), DoServe); s.Outcome != Shed || !errors.Is(s.Err, ErrOverloaded) {
		t.Errorf("%+v", s)
	}
	b.f.Leave(2, "b")
	b.f.Leave(3, "b")
	b.want(b.f.Loaded(b.now, first.Op, item(1), good, nil), DoServe) // nobody wants b any more
	if len(b.f.running)+len(b.f.queue)+b.f.direct+len(b.f.open) != 0 {
		t.Error("something is left")
	}
	b.want(b.f.Read(b.now, 5, "a", 0), DoLoad)
	b.want(b.f.Read(b.now, 6, "b", 0))
	b.f.closeTo(b.f.open["b"])
	b.want(b.f.Read(b.now, 7, "b", 0)) // waits with the one that waits
	if len(b.f.queue) != 1 || len(b.f.queue[0].reads) != 2 {
		t.Errorf("%d wait", len(b.f.queue))
	}
}

// TestBreaker: after so many failures in a row a node is left alone, and then one flight finds out whether it is back.
func TestBreaker(t *testing.T) {
	b := newBench(t, func(s *Settings) { s.MaxDirect = 10 })
	for id := range ReadID(2) {
		if b.f.Out(0) {
			t.Fatal("out too early")
		}
		ask := b.want(b.f.Read(b.now, id, "k", 0), DoAsk)
		b.f.Answered(b.now, ask.Op, Answer{}, errTest)
	}
	if !b.f.Out(0) {
		t.Fatal("not out")
	}
	b.want(b.f.Read(b.now, 3, "l", 0), DoLoad)
	b.now += time.Second
	probe := b.want(b.f.Read(b.now, 4, "m", 0), DoAsk)
	b.want(b.f.Read(b.now, 5, "n", 0), DoLoad)
	b.f.Answered(b.now, probe.Op, Answer{}, errTest)
	b.want(b.f.Read(b.now, 6, "o", 0), DoLoad)
	b.now += time.Second
	probe = b.want(b.f.Read(b.now, 7, "p", 0), DoAsk)
	b.f.Answered(b.now, probe.Op, Answer{State: Hit, Item: &Item{}, Times: good}, nil)
	if b.f.Out(0) {
		t.Error("still out")
	}
}

// TestHeadEndsOutage: a process that reads nothing learns that a node is back by its heads, when it was left alone for its
// time. Where heads come and answers do not, it is left alone until it has answered.
func TestHeadEndsOutage(t *testing.T) {
	b := newBench(t, func(s *Settings) { s.MaxDirect = 10 })
	fail := func() {
		for range 2 {
			b.f.judge(b.now, 0, errTest)
		}
	}
	fail()
	b.now += time.Second - 1
	b.meet()
	if !b.f.Out(0) {
		t.Error("a head ends an outage that has just begun")
	}
	b.now++
	b.meet()
	if b.f.Out(0) {
		t.Error("still out")
	}
	ask := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
	b.f.Answered(b.now, ask.Op, Answer{}, errTest)
	fail()
	b.now += time.Second
	b.meet()
	if !b.f.Out(0) {
		t.Error("heads end the outage of a node that answers nothing else")
	}
	probe := b.want(b.f.Read(b.now, 2, "l", 0), DoAsk)
	b.f.Answered(b.now, probe.Op, Answer{State: Hit, Item: &Item{}, Times: good}, nil)
	fail()
	b.now += time.Second
	b.meet()
	if b.f.Out(0) {
		t.Error("still out after another outage")
	}
}

// TestFullNode: a node that takes nothing, and answers, is not left alone; and leases of what it did not take are given
// back, so that nobody waits for their ends.
func TestFullNode(t *testing.T) {
	b := newBench(t, nil)
	for id := range ReadID(5) {
		load := b.leased(id, 0, Answer{})
		fill := b.want(b.f.Loaded(b.now, load.Op, item(1), good, nil), DoServe, DoFill)
		if a := b.want(b.f.Filled(b.now, fill.Op, Filled{}, errTest), DoFail); a.Token != fill.Fill.Token || a.Pause != 0 {
			t.Errorf("%+v", a)
		}
	}
	if b.f.Out(0) {
		t.Error("it is left alone")
	}
}
