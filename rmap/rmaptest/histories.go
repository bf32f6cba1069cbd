package rmaptest

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/rmap"
)

// histories checks what many writers at both stores come to.
func histories() []test {
	return []test{
		{"Increments", increments},
		{"CompareAndSet", compareAndSet},
		{"Linearizable", linearizable},
		{"BatchesAreAtomic", batchesAtomic},
	}
}

// each runs a writer n times at once, half of them at the second store. None begins before all are there.
func (e *env) each(n int, do func(i int, s rmap.Store) error) {
	e.Helper()
	var busy sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		s := []rmap.Store{e.first, e.second}[i%2]
		busy.Go(func() {
			<-start
			if err := do(i, s); err != nil {
				e.Error(err)
			}
		})
	}
	close(start)
	busy.Wait()
	if e.Failed() {
		e.FailNow()
	}
}

// No increment is lost, and no two writers are given the same number.
func increments(e *env) {
	const writers, each = 8, 100
	var seen sync.Map
	e.each(writers, func(i int, s rmap.Store) error {
		for range each {
			r, err := s.Write(e.ctx, e.name, write(add("n", int64(i+1)), app("l", strconv.Itoa(i))))
			if err != nil {
				return err
			}
			if _, twice := seen.LoadOrStore(r.Revision, true); twice {
				return fmt.Errorf("two writes were given %v", r.Revision)
			}
		}
		return nil
	})
	sum := each * writers * (writers + 1) / 2
	got := e.entries()
	equal(e, "the sum", got["n"].Value, integer(strconv.Itoa(sum)))
	items, err := rmap.DecodeList(got["l"].Value.Data)
	if err != nil || len(items) != writers*each {
		e.Fatalf("%d appends left %d items (%v)", writers*each, len(items), err)
	}
	equal(e, "the number", e.head().Revision.Number, writers*each)
}

// What is read, changed and written if nobody else has is a counter too.
func compareAndSet(e *env) {
	const writers, each = 6, 30
	e.change(write(set("n", "0")))
	e.each(writers, func(i int, s rmap.Store) error {
		at := rmap.Entry{Value: plain("0")}
		for done := 0; done < each; {
			n, err := strconv.Atoi(at.Value.Data)
			if err != nil {
				return err
			}
			c := value("n", at.Value)
			if i >= writers/2 && at.Nonce != 0 {
				c = written("n", at.Nonce)
			}
			next := plain(strconv.Itoa(n + 1))
			runtime.Gosched() // others come in between even where a write takes no time
			r, err := s.Write(e.ctx, e.name, given(c, put("n", next)))
			switch {
			case err != nil:
				return err
			case r.Conflict == 0:
				done++
				at = rmap.Entry{Value: next, Nonce: r.Revision.Nonce}
			case r.Current == nil:
				return fmt.Errorf("a conflict over an entry that is always there told none")
			default:
				at = *r.Current
			}
		}
		return nil
	})
	e.has(map[string]rmap.Value{"n": plain(strconv.Itoa(writers * each))})
}

// Of two keys that are always written together no conflict and no old entry ever shows two values.
func batchesAtomic(e *env) {
	e.change(write(set("a", "start"), set("b", "start")))
	e.each(6, func(i int, s rmap.Store) error {
		for j := range 40 {
			v := fmt.Sprint(i, " ", j)
			r, err := s.Write(e.ctx, e.name, want(set("a", v), set("b", v)))
			if err != nil {
				return err
			}
			if len(r.Old) != 2 || r.Old[0] == nil || r.Old[1] == nil || r.Old[0].Value != r.Old[1].Value ||
				r.Old[0].Nonce != r.Old[1].Nonce || r.Old[0].Number+1 != r.Revision.Number {
				return fmt.Errorf("%v came after %s", r.Revision, entriesText(r.Old))
			}
		}
		return nil
	})
	for _, c := range e.w.told() {
		if len(c.Steps) != 2 {
			e.Fatalf("a batch of two was told as %+v", c)
		}
	}
}

// call and back are what porcupine's model of one key is told of a write.
type (
	call struct {
		do       rmap.Action // DoSet, DoDelete or DoAdd
		data     string
		test     rmap.Test // 0 is none
		expected string
	}
	back struct {
		conflict bool
		there    bool // an entry was there before, or at the conflict
		data     string
	}
)

// register is the model: one entry whose data is a string, "absent" when there is none.
func register() porcupine.Model {
	const absent = "absent"
	return porcupine.Model{
		Init: func() any { return absent },
		Step: func(state, input, output any) (bool, any) {
			s, in, out := state.(string), input.(call), output.(back)
			there := s != absent
			if out.there != there || there && out.data != s {
				return false, s
			}
			holds := map[rmap.Test]bool{0: true, rmap.IsAbsent: !there, rmap.IsPresent: there, rmap.HasValue: there && s == in.expected}[in.test]
			switch {
			case out.conflict == holds:
				return false, s
			case !holds:
				return true, s
			case in.do == rmap.DoDelete:
				return true, absent
			}
			return true, in.data
		},
		DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
	}
}

func linearizable(e *env) {
	const writers, each, width = 6, 40, 3
	var clock atomic.Int64 // orders calls and returns; time need not go on between them
	var mu sync.Mutex
	ops := make([][]porcupine.Operation, width)
	e.each(writers, func(i int, s rmap.Store) error {
		random := rand.New(rand.NewPCG(uint64(i), 11))
		for range each {
			k, in := random.IntN(width), drawCall(random)
			key := fmt.Sprint("key ", k)
			w := rmap.Write{Ops: []rmap.Op{{Do: in.do, Key: key, Value: plain(in.data)}}, WantOld: true}
			if in.do == rmap.DoDelete {
				w.Ops[0].Value = rmap.Value{}
			}
			if in.test != 0 {
				w.If = []rmap.Condition{{Key: key, Test: in.test}}
				if in.test == rmap.HasValue {
					w.If[0].Value = plain(in.expected)
				}
			}
			begin := clock.Add(1)
			runtime.Gosched()
			r, err := s.Write(e.ctx, e.name, w)
			runtime.Gosched()
			end := clock.Add(1)
			if err != nil {
				return err
			}
			mu.Lock()
			ops[k] = append(ops[k], porcupine.Operation{ClientId: i, Input: in, Output: answer(r), Call: begin, Return: end})
			mu.Unlock()
		}
		return nil
	})
	for k := range ops {
		if got := porcupine.CheckOperationsTimeout(register(), ops[k], 20*time.Second); got != porcupine.Ok {
			e.Errorf("the %d writes of key %d have no order that explains their results: %v", len(ops[k]), k, got)
		}
	}
}

func drawCall(random *rand.Rand) call {
	in := call{do: rmap.DoSet, data: strconv.Itoa(random.IntN(4)), expected: strconv.Itoa(random.IntN(4)),
		test: rmap.Test(random.IntN(int(rmap.HasValue) + 1))}
	if random.IntN(4) == 0 {
		in.do = rmap.DoDelete
	}
	return in
}

func answer(r rmap.Result) back {
	out := back{conflict: r.Conflict != 0}
	x := r.Current
	if !out.conflict {
		x = r.Old[0]
	}
	if x != nil {
		out.there, out.data = true, x.Value.Data
	}
	return out
}
