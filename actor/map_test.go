package actor_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/latchkey-go/latchkey/actor"
	"pgregory.net/rapid"
)

// A Map does what a map does, one step after another.
func TestMapModel(t *testing.T) {
	ctx := context.Background()
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.MapOfN(rapid.IntRange(0, 5), rapid.Int(), 0, 4).Draw(t, "initial")
		initial := maps.Clone(want)
		m, err := actor.NewMap(initial, actor.Options{Mailbox: rapid.IntRange(1, 4).Draw(t, "mailbox"), OnError: func(error) {}})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close(ctx)
		initial[9] = 9 // the owner has a copy
		key := rapid.IntRange(0, 5)
		t.Repeat(map[string]func(*rapid.T){
			"Set": func(t *rapid.T) {
				k, v := key.Draw(t, "key"), rapid.Int().Draw(t, "value")
				if err := m.Set(ctx, k, v); err != nil {
					t.Fatal(err)
				}
				want[k] = v
			},
			"Add": func(t *rapid.T) {
				k, n := key.Draw(t, "key"), rapid.Int().Draw(t, "n")
				if err := actor.Add(ctx, m, k, n); err != nil {
					t.Fatal(err)
				}
				want[k] += n
			},
			"delete": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if err := m.Do(ctx, func(s map[int]int) error { delete(s, k); return errTest }); !errors.Is(err, errTest) {
					t.Fatalf("Do: %v", err)
				}
				delete(want, k)
			},
			"panic": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if err := m.Tell(ctx, func(s map[int]int) error { s[k] = 1; panic("in a message") }); err != nil {
					t.Fatal(err)
				}
				want[k] = 1
			},
			"Get": func(t *rapid.T) {
				k := key.Draw(t, "key")
				v, ok, err := m.Get(ctx, k)
				if w, wok := want[k]; v != w || ok != wok || err != nil {
					t.Fatalf("Get(%d): %d, %t, %v; want %d, %t", k, v, ok, err, w, wok)
				}
				if ok2, err := m.Contains(ctx, k); ok2 != ok || err != nil {
					t.Fatalf("Contains(%d): %t, %v; want %t", k, ok2, err, ok)
				}
			},
			"": func(t *rapid.T) {
				got, err := m.Copy(ctx)
				if err != nil || !maps.Equal(got, want) {
					t.Fatalf("Copy: %v, %v; want %v", got, err, want)
				}
				keys, err := m.Keys(ctx)
				slices.Sort(keys)
				if err != nil || !slices.Equal(keys, slices.Sorted(maps.Keys(want))) {
					t.Fatalf("Keys: %v, %v; want those of %v", keys, err, want)
				}
				got[7] = 7 // the copy is ours
			},
		})
	})
}

// A key that cannot be hashed is an error to who asks, and a report of who tells.
func TestMapUnhashable(t *testing.T) {
	ctx := context.Background()
	var reported []error
	m, err := actor.NewMap[any, int](nil, actor.Options{OnError: func(err error) { reported = append(reported, err) }})
	must(t, err)
	var p *actor.PanicError
	if _, _, err := m.Get(ctx, []int{1}); !errors.As(err, &p) {
		t.Errorf("Get: %v, want a PanicError", err)
	}
	must(t, m.Set(ctx, []int{1}, 1))
	closed(t, m)
	if len(reported) != 1 || !errors.As(reported[0], &p) {
		t.Errorf("reported: %v, want one PanicError", reported)
	}
}

// touch is one operation of a history: what was done to a key, and what was seen.
type touch struct{ key, set, add int }

// keyModel is one key at a time: a number that is set, added to and read.
var keyModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[int][]porcupine.Operation)
		for _, o := range history {
			k := o.Input.(touch).key
			byKey[k] = append(byKey[k], o)
		}
		return slices.Collect(maps.Values(byKey))
	},
	Init: func() any { return 0 },
	Step: func(state, in, out any) (bool, any) {
		s, i := state.(int), in.(touch)
		switch {
		case i.set != 0:
			return true, i.set
		case i.add != 0:
			return true, s + i.add
		}
		return s == out.(int), s
	},
}

// Histories of goroutines that set, add and get are linearizable. A tell counts from
// the moment that it is in the mailbox, as nothing that comes later overtakes it.
func TestMapHistories(t *testing.T) {
	ctx := context.Background()
	for round := range 20 {
		m, err := actor.NewMap[int, int](nil, actor.Options{Mailbox: 1 + round%4})
		must(t, err)
		var mu sync.Mutex
		var history []porcupine.Operation
		start := time.Now()
		var wg sync.WaitGroup
		for client := range 4 {
			wg.Go(func() {
				for range 60 {
					in, out := touch{key: rand.IntN(2)}, 0
					call := time.Since(start)
					var err error
					switch rand.IntN(4) {
					case 0:
						in.set = 1 + rand.IntN(1000)
						err = m.Set(ctx, in.key, in.set)
					case 1:
						in.add = 1 + rand.IntN(1000)
						err = actor.Add(ctx, m, in.key, in.add)
					default:
						out, _, err = m.Get(ctx, in.key)
					}
					end := time.Since(start)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					history = append(history, porcupine.Operation{ClientId: client, Input: in, Call: int64(call), Output: out, Return: int64(end)})
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		closed(t, m)
		if res := porcupine.CheckOperationsTimeout(keyModel, history, 20*time.Second); res == porcupine.Illegal {
			t.Fatalf("round %d: the history is not linearizable", round)
		}
	}
}

// The model of histories refuses what a Map must not do.
func TestMapHistoriesRefused(t *testing.T) {
	op := func(client int, in touch, out, call, ret int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: in, Output: int(out), Call: call, Return: ret}
	}
	for name, history := range map[string][]porcupine.Operation{
		"a lost update": {op(0, touch{add: 1}, 0, 1, 4), op(1, touch{add: 1}, 0, 2, 3), op(0, touch{}, 1, 5, 6)},
		"a stale read":  {op(0, touch{set: 1}, 0, 1, 2), op(0, touch{set: 2}, 0, 3, 4), op(1, touch{}, 1, 5, 6)},
		"a tell undone": {op(0, touch{set: 7}, 0, 1, 2), op(1, touch{}, 7, 3, 4), op(1, touch{}, 0, 5, 6)},
		"a mix of keys": {op(0, touch{key: 1, set: 3}, 0, 1, 2), op(1, touch{key: 0}, 3, 3, 4)},
	} {
		if porcupine.CheckOperations(keyModel, history) {
			t.Errorf("%s is taken for linearizable", name)
		}
	}
}

// Values of any type, and methods of their own, through the same functions.
func TestOwnerOfMap(t *testing.T) {
	ctx := context.Background()
	m, err := actor.NewMap[string, []string](nil, actor.Options{})
	must(t, err)
	defer closed(t, m)
	must(t, m.Tell(ctx, func(s map[string][]string) error {
		s["log"] = append(s["log"], "a line")
		return nil
	}))
	f, err := actor.Send(ctx, m, func(s map[string][]string) (string, error) { return fmt.Sprint(s), nil })
	must(t, err)
	if got, err := f.Wait(ctx); got != "map[log:[a line]]" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	n, err := actor.TryAsk(ctx, m, func(s map[string][]string) (int, error) { return len(s["log"]), nil })
	if n != 1 || err != nil {
		t.Errorf("%d, %v; want 1", n, err)
	}
}
