package stm_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/latchkey-go/latchkey/stm"
)

// An operation of a history reads some variables and then sets some to a number that
// nobody else sets, so that a history has one meaning. AddNow is one that reads and
// sets one variable, SetNow one that sets it.
type operation struct {
	reads  []int
	writes []int
	number int
	add    bool
	now    bool
}

// serial is the model: an operation sees all variables at one moment.
func serial(n int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return make([]int, n) },
		Step: func(state, input, output any) (bool, any) {
			vars, op, seen := state.([]int), input.(operation), output.([]int)
			if op.add {
				next := slices.Clone(vars)
				next[op.writes[0]] += op.number
				return seen[0] == next[op.writes[0]], next
			}
			for i, v := range op.reads {
				if vars[v] != seen[i] {
					return false, nil
				}
			}
			if len(op.writes) == 0 {
				return true, vars
			}
			next := slices.Clone(vars)
			for _, v := range op.writes {
				next[v] = op.number
			}
			return true, next
		},
		Equal: func(a, b any) bool { return slices.Equal(a.([]int), b.([]int)) },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprint(input, " → ", output)
		},
	}
}

// some picks up to n of all variables, in any order.
func some(all, n int) []int { return rand.Perm(all)[:rand.IntN(min(n, all)+1)] }

// history runs operations of several goroutines and records what they have seen. With
// many variables some transactions are big.
func history(t *testing.T, vars []stm.Var[int]) []porcupine.Operation {
	const workers, each = 4, 12
	var mu sync.Mutex
	var out []porcupine.Operation
	var wg sync.WaitGroup
	start := time.Now()
	gate := make(chan struct{})
	for w := range workers {
		wg.Go(func() {
			<-gate
			for i := range each {
				op := operation{number: 1000*(w+1) + 10*i}
				switch rand.IntN(7) {
				case 0:
					op.reads = rand.Perm(len(vars))
				case 1:
					op.add, op.writes, op.number = true, []int{rand.IntN(len(vars))}, 1
				case 2:
					op.now, op.writes = true, []int{rand.IntN(len(vars))}
				default:
					op.reads, op.writes = some(len(vars), 4), some(len(vars), 3)
				}
				call := time.Since(start)
				seen := op.run(t, vars)
				back := time.Since(start)
				mu.Lock()
				out = append(out, porcupine.Operation{ClientId: w, Input: op, Output: seen,
					Call: int64(call), Return: int64(back)})
				mu.Unlock()
			}
		})
	}
	close(gate)
	wg.Wait()
	return out
}

func (op operation) run(t *testing.T, vars []stm.Var[int]) (seen []int) {
	if op.add {
		return []int{stm.AddNow(&vars[op.writes[0]], op.number)}
	}
	if op.now {
		stm.SetNow(&vars[op.writes[0]], op.number)
		return nil
	}
	body := func(tx stm.Tx) error {
		seen = nil
		for _, v := range op.reads {
			seen = append(seen, vars[v].Get(tx))
			if rand.IntN(4) == 0 {
				runtime.Gosched()
			}
		}
		for _, v := range op.writes {
			vars[v].Set(tx, op.number)
		}
		return nil
	}
	do := stm.Atomically
	if len(op.writes) == 0 {
		do = stm.View
	}
	if err := do(t.Context(), body); err != nil {
		t.Error(err)
	}
	return seen
}

// Histories of transactions of all kinds fit one order that respects time.
func TestHistory(t *testing.T) {
	for _, n := range []int{2, 3, 5, 24} {
		for range dose(40) {
			vars := make([]stm.Var[int], n)
			ops := history(t, vars)
			if r := porcupine.CheckOperationsTimeout(serial(n), ops, 10*time.Second); r != porcupine.Ok {
				t.Fatalf("%d variables: %v: %v", n, r, ops)
			}
		}
	}
}

// The model rejects what an order cannot explain.
func TestHistoryRejects(t *testing.T) {
	op := func(client int, call, back int64, in operation, seen ...int) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: in, Output: seen, Call: call, Return: back}
	}
	read := operation{reads: []int{0, 1}}
	both := operation{writes: []int{0, 1}, number: 7}
	for name, ops := range map[string][]porcupine.Operation{
		"half of a transaction": {op(1, 0, 9, both), op(2, 0, 9, read, 7, 0)},
		"an old value":          {op(1, 0, 1, both), op(2, 2, 3, read, 0, 0)},
		"a lost update": {
			op(1, 0, 9, operation{add: true, writes: []int{0}, number: 1}, 1),
			op(2, 0, 9, operation{add: true, writes: []int{0}, number: 1}, 1)},
		"write skew": {
			op(1, 0, 9, operation{reads: []int{0, 1}, writes: []int{0}, number: 7}, 0, 0),
			op(2, 0, 9, operation{reads: []int{0, 1}, writes: []int{1}, number: 8}, 0, 0)},
		"no order of three": {
			op(1, 0, 9, operation{reads: []int{1}, writes: []int{0}, number: 7}, 0),
			op(2, 0, 9, operation{writes: []int{1}, number: 8}),
			op(3, 0, 9, read, 0, 8)},
	} {
		if porcupine.CheckOperations(serial(2), ops) {
			t.Errorf("%s is accepted", name)
		}
	}
}
