package locked

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// ask is one call of a history, and tell what it gave.
type ask struct {
	what string // load, store, delete, add, create, fail
	key  int
	arg  int
}

type tell struct {
	value int
	ok    bool
}

// keyed is what a history is made of: a KeyMap, or one with a defect.
type keyed interface {
	do(ask) tell
}

type sound struct{ m *KeyMap[int, int] }

func (s sound) do(a ask) (out tell) {
	switch a.what {
	case "load":
		out.value, out.ok = s.m.Load(a.key)
	case "peek":
		out.value, out.ok = s.m.Peek(a.key)
	case "store":
		s.m.Store(a.key, a.arg)
	case "delete":
		out.value, out.ok = s.m.Delete(a.key)
	case "add":
		out.value = AddTo(s.m, a.key, a.arg)
	case "update":
		s.m.Update(a.key, func(old int, ok bool) (int, error) {
			out = tell{old, ok}
			runtime.Gosched()
			return a.arg, nil
		})
	case "fail":
		s.m.Update(a.key, func(old int, ok bool) (int, error) {
			out = tell{old, ok}
			runtime.Gosched()
			return a.arg, errNo
		})
	case "create":
		out.value, _ = s.m.GetOrCreate(a.key, func() (int, error) { runtime.Gosched(); return a.arg, nil })
	}
	return out
}

// keyModel is one key: absent, or a value.
var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[int][]porcupine.Operation)
		for _, op := range history {
			byKey[op.Input.(ask).key] = append(byKey[op.Input.(ask).key], op)
		}
		var out [][]porcupine.Operation
		for _, part := range byKey {
			out = append(out, part)
		}
		return out
	},
	Init: func() any { return tell{} },
	Step: func(state, in, out any) (bool, any) {
		now, a, got := state.(tell), in.(ask), out.(tell)
		switch a.what {
		case "store":
			return true, tell{a.arg, true}
		case "update":
			return got == now, tell{a.arg, true}
		case "delete":
			return got == now, tell{}
		case "add":
			return got.value == now.value+a.arg, tell{got.value, true}
		case "create":
			if !now.ok {
				now = tell{a.arg, true}
			}
			return got.value == now.value, now
		default: // load, peek, fail
			return got == now, now
		}
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
}

// history runs a random history of several goroutines on a few keys.
func history(m keyed, workers, each int) []porcupine.Operation {
	asks := []string{"load", "peek", "load", "store", "delete", "delete", "add", "update", "fail", "create", "create"}
	all := make([][]porcupine.Operation, workers)
	var clock atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range each {
				a := ask{asks[rand.IntN(len(asks))], rand.IntN(2), rand.IntN(1000)}
				op := porcupine.Operation{ClientId: w, Input: a, Call: clock.Add(1)}
				op.Output = m.do(a)
				op.Return = clock.Add(1)
				all[w] = append(all[w], op)
			}
		})
	}
	wg.Wait()
	var out []porcupine.Operation
	for _, ops := range all {
		out = append(out, ops...)
	}
	return out
}

func explained(ops []porcupine.Operation) bool {
	return porcupine.CheckOperationsTimeout(keyModel, ops, time.Minute) == porcupine.Ok
}

// Every history of a KeyMap can be explained by one order of its calls: loads, peeks, updates
// that fail, creations and deletions included.
func TestKeyMapHistories(t *testing.T) {
	for range 30 {
		m := NewKeyMap[int, int](nil)
		if !explained(history(sound{m}, 6, 60)) {
			t.Fatal("a history cannot be explained by any order of its calls")
		}
		m.checkParts(t)
	}
}

// broken is a KeyMap with a defect in one kind of call, as they are made by hand.
type broken struct {
	sound
	what string
	old  sync.Map
}

func (b *broken) do(a ask) (out tell) {
	if a.what != b.what {
		if v, ok := b.m.Peek(a.key); ok {
			b.old.Store(a.key, v)
		}
		return b.sound.do(a)
	}
	switch a.what {
	case "add", "update": // reads and writes without holding the key in between
		out.value, out.ok = b.m.Peek(a.key)
		runtime.Gosched()
		if a.what == "add" {
			out.value += a.arg
			a.arg = out.value
		}
		b.m.Store(a.key, a.arg)
	case "create": // the value of the last to come wins
		v, ok := b.m.Peek(a.key)
		if !ok {
			runtime.Gosched()
			v = a.arg
			b.m.Store(a.key, v)
		}
		out.value = v
	case "delete": // looks, then takes
		out.value, out.ok = b.m.Peek(a.key)
		runtime.Gosched()
		b.m.Delete(a.key)
	case "load": // sometimes as it was
		if v, ok := b.old.Load(a.key); ok && rand.IntN(4) == 0 {
			return tell{v.(int), true}
		}
		out.value, out.ok = b.m.Peek(a.key)
	case "fail": // stores all the same
		a.what = "update"
		return b.sound.do(a)
	}
	return out
}

// The check of histories finds each of these defects.
func TestHistoriesRejectDefects(t *testing.T) {
	for _, what := range []string{"add", "update", "create", "delete", "load", "fail"} {
		t.Run(what, func(t *testing.T) {
			for range 100 {
				if !explained(history(&broken{sound: sound{NewKeyMap[int, int](nil)}, what: what}, 6, 60)) {
					return
				}
			}
			t.Error("no history of a hundred shows the defect")
		})
	}
}
