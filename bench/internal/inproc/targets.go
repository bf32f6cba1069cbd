package inproc

import (
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// target is what one of ours should cost, in nanoseconds, on a machine on which the
// row without sharing and the mutex cost what reference says.
type target struct {
	op    Op
	label string
	where Where
	n     int
	ns    float64

	// free says that the operation takes no lock, so that it is not set against the
	// mutex but against the row without sharing only.
	free bool
}

// The names of ours in more than one table.
const (
	stmLoad   = "stm.Var Load"
	stmWrite  = "stm Atomically"
	stmAdd    = "stm.AddNow"
	stmView   = "stm View of two"
	varLoad   = "locked.Var Load"
	varPeek   = "locked.Var Peek"
	varUpdate = "locked.Var Update"
	varAdd    = "locked.Add"
	mapLoad   = "locked.Map Load"
	mapUpdate = "locked.Map Synchronize"
	keyLoad   = "locked.KeyMap Load"
	keyPeek   = "locked.KeyMap Peek"
	keyUpdate = "locked.KeyMap Update"
	keyAdd    = "locked.AddTo"
	objectAsk = "actor.Object ask"
	objTell   = "actor.Object tell"
	actMapAsk = "actor.Map ask"
	actorTell = "actor.Map tell"
)

func targets() []target {
	return []target{
		{Read, stmLoad, Own, 1, 2.5, true},
		{Read, stmView, Own, 1, 45, false},
		{Read, varLoad, Own, 1, 25, false},
		{Read, varPeek, Own, 1, 2.5, true},
		{Read, mapLoad, Own, 1, 30, false},
		{Read, keyLoad, Own, 1, 12, false},
		{Read, objectAsk, Own, 1, 600, false},
		{Read, actMapAsk, Own, 1, 650, false},

		{Write, stmWrite, Own, 1, 110, false},
		{Write, stmWrite, Shared, 2, 250, false},
		{Write, varUpdate, Own, 1, 65, false},
		{Write, varUpdate, Shared, 2, 85, false},
		{Write, varUpdate, Own, 2, 45, false},
		{Write, mapUpdate, Own, 1, 80, false},
		{Write, mapUpdate, Shared, 2, 95, false},
		{Write, mapUpdate, Own, 2, 60, false},
		{Write, keyUpdate, Own, 1, 75, false},
		{Write, keyUpdate, Shared, 2, 100, false},
		{Write, keyUpdate, Own, 2, 60, false},
		{Write, keyUpdate, OwnKey, 2, 60, false},
		{Write, objTell, Own, 1, 150, false},
		{Write, objectAsk, Own, 1, 650, false},
		{Write, actorTell, Own, 1, 170, false},
		{Write, actMapAsk, Own, 1, 700, false},

		{Increment, varAdd, Own, 1, 12, false},
		{Increment, varAdd, Shared, 2, 25, false},
		{Increment, varAdd, Own, 2, 7, false},
		{Increment, stmAdd, Own, 1, 45, false},
		{Increment, stmAdd, Shared, 2, 120, false},
		{Increment, keyAdd, Own, 1, 35, false},
		{Increment, keyAdd, Shared, 2, 55, false},
		{Increment, keyAdd, Own, 2, 20, false},
	}
}

// reference is what a mutex and the row without sharing cost on the machine for
// which the targets were set: with two goroutines on one object, the row without
// sharing is that of two objects.
func reference(op Op, where Where, n int) (mutex, none float64) {
	column := 0
	if n > 1 {
		column = 1
		if where != Shared {
			column = 2
		}
	}
	switch op {
	case Read:
		return [...]float64{17.4, 29, 10}[column], [...]float64{1.9, 1.2, 1.2}[column]
	case Write:
		return [...]float64{45, 63, 30}[column], [...]float64{33, 26, 26}[column]
	default:
		return [...]float64{17.8, 30, 10}[column], 0
	}
}

// Claims sets the table against what it should be.
func (t *Table) Claims() []rounds.Claim {
	var out []rounds.Claim
	for _, x := range targets() {
		if x.op != t.Op {
			continue
		}
		f := t.Get(x.label, x.where, x.n)
		of := func(base string, then float64) {
			if then == 0 {
				return
			}
			what := fmt.Sprintf("time of %s, of %s", f.load(), base)
			out = append(out, ratio(what, f, t.Get(base, alone(x.where), x.n), x.ns/then, true)...)
		}
		mutex, none := reference(x.op, x.where, x.n)
		if !x.free {
			of(mutexValue, mutex)
		}
		of(noSharing, none)
	}
	return append(out, t.shapes()...)
}

// ratio claims what one figure is of another, if both were measured.
func ratio(what string, f, of *Figure, reach float64, smaller bool) []rounds.Claim {
	if f == nil || of == nil || of.NS == 0 {
		return nil
	}
	if of.Turns {
		what += " (which took turns)"
	}
	return []rounds.Claim{{What: what, Unit: "×", Got: f.NS / of.NS, Reach: reach, Smaller: smaller}}
}

// shapes are the claims that one column makes about another.
func (t *Table) shapes() []rounds.Claim {
	switch t.Op {
	case Read:
		f := t.Get(mapLoad, Shared, 2)
		return slices.Concat(t.same(stmLoad), t.same(keyLoad),
			ratio(fmt.Sprintf("time of %s, of a %s", f.load(), rwMap), f, t.Get(rwMap, Shared, 2), 1, true))
	case Write:
		f, told := t.Get(mapUpdate, OwnKey, 16), t.Get(objTell, Own, 1)
		out := slices.Concat(t.gains(stmWrite),
			ratio(fmt.Sprintf("time of %s, of locked.KeyMap's", f.load()), f, t.Get(keyUpdate, OwnKey, 16), 3, false),
			ratio("time of a message with an answer, of one without, actor.Object", t.Get(objectAsk, Own, 1), told, 4, false))
		if f := t.Get(stmWrite, Own, 1); f != nil {
			out = append(out, rounds.Claim{What: "objects allocated by a transaction that writes one variable", Got: f.Objects, Reach: 1.05, Smaller: true})
		}
		return out
	case Increment:
		return t.gains(stmAdd)
	}
	return nil
}

// same claims that it costs nothing that two goroutines share the object.
func (t *Table) same(label string) []rounds.Claim {
	f := t.Get(label, Shared, 2)
	return ratio(fmt.Sprintf("time of %s, of the same with an object each", f.load()), f, t.Get(label, Own, 2), 1.2, true)
}

// gains claims that a second goroutine with an object of its own helps as much as
// it helps where nothing is shared.
func (t *Table) gains(label string) []rounds.Claim {
	ours, floor := t.gain(label), t.gain(noSharing)
	if ours == 0 || floor == 0 {
		return nil
	}
	what := fmt.Sprintf("gain of %s by a second goroutine with an object of its own, of the gain without sharing", label)
	if t.Get(label, Own, 2).Turns || t.Get(noSharing, Own, 2).Turns {
		what += ", taking turns"
	}
	return []rounds.Claim{{
		What: what,
		Unit: "×", Got: ours / floor, Reach: 0.8,
	}}
}

// gain is how much cheaper an operation gets by a second goroutine.
func (t *Table) gain(label string) float64 {
	one, two := t.Get(label, Own, 1), t.Get(label, Own, 2)
	if one == nil || two == nil || two.NS == 0 {
		return 0
	}
	return one.NS / two.NS
}

// load names a figure in a sentence.
func (f *Figure) load() string {
	switch {
	case f == nil:
		return "what is not in the table"
	case f.Goroutines == 1:
		return f.Subject
	}
	s := fmt.Sprintf("%s by %d goroutines, %v", f.Subject, f.Goroutines, f.Where)
	if f.Turns {
		s += ", taking turns"
	}
	return s
}
