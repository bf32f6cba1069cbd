package inproc

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// defective is a mutex whose operations a test may spoil.
func defective(spoil func(w *Worker, calls *atomic.Int64)) Subject {
	return Subject{Labels: everywhere("planted"), Map: true, New: func(n int) (Thing, error) {
		t, err := newMutexMap(n)
		var calls atomic.Int64
		honest := t.Worker
		t.Worker = func(key int) Worker {
			w := honest(key)
			spoil(&w, &calls)
			return w
		}
		return t, err
	}}
}

// rare is true once in a hundred calls.
func rare(calls *atomic.Int64) bool { return calls.Add(1)%100 == 0 }

// Planted defects: each of these must void the table.
func TestWrongAnswersAreSeen(t *testing.T) {
	for name, c := range map[string]struct {
		op    Op
		spoil func(w *Worker, calls *atomic.Int64)
	}{
		"a write that is lost": {Write, func(w *Worker, calls *atomic.Int64) {
			honest := w.Write
			w.Write = func() {
				if !rare(calls) {
					honest()
				}
			}
		}},
		"a write that is done twice": {Mix, func(w *Worker, calls *atomic.Int64) {
			honest := w.Write
			w.Write = func() {
				honest()
				if rare(calls) {
					honest()
				}
			}
		}},
		"an addition that is lost": {Increment, func(w *Worker, calls *atomic.Int64) {
			honest := w.Add
			w.Add = func() {
				if !rare(calls) {
					honest()
				}
			}
		}},
		"a read of another record": {Read, func(w *Worker, calls *atomic.Int64) {
			honest := w.Read
			w.Read = func() Record {
				if rare(calls) {
					return after(honest())
				}
				return honest()
			}
		}},
		"halves of two records": {Read, func(w *Worker, calls *atomic.Int64) {
			honest := w.Read
			w.Read = func() Record {
				r := honest()
				if rare(calls) {
					r.Twin = after(r).Twin
				}
				return r
			}
		}},
		"halves of two records among writes": {Mix, func(w *Worker, calls *atomic.Int64) {
			honest := w.Read
			w.Read = func() Record {
				r := honest()
				if rare(calls) {
					r.Twin = after(r).Twin
				}
				return r
			}
		}},
		"a read that goes back": {Mix, func(w *Worker, calls *atomic.Int64) {
			honest := w.Read
			w.Read = func() Record {
				if rare(calls) {
					return *begin()
				}
				return honest()
			}
		}},
	} {
		for _, where := range []Where{Shared, Own, OwnKey} {
			t.Run(name+", "+where.String(), func(t *testing.T) {
				if err := measureOne(t, defective(c.spoil), c.op, where); !errors.Is(err, rounds.ErrWrong) {
					t.Errorf("error = %v, want %v", err, rounds.ErrWrong)
				}
			})
		}
	}
	for _, where := range []Where{Shared, Own, OwnKey} {
		if err := measureOne(t, defective(func(*Worker, *atomic.Int64) {}), Mix, where); err != nil {
			t.Errorf("an honest one, %v: %v", where, err)
		}
	}
}

func TestFailedOperationIsSeen(t *testing.T) {
	s := Subject{Labels: everywhere("planted"), New: func(n int) (Thing, error) {
		t, err := newMutex(n)
		var x trouble
		x.note(nil)
		x.note(errRefused)
		x.note(errors.New("a later one"))
		t.Err = x.err
		return t, err
	}}
	if err := measureOne(t, s, Read, Shared); !errors.Is(err, errRefused) {
		t.Errorf("error = %v, want %v", err, errRefused)
	}
}

var errRefused = errors.New("refused")

// measureOne runs a cell of three goroutines for two rounds.
func measureOne(t *testing.T, s Subject, op Op, where Where) error {
	t.Helper()
	c := &cell{subject: s, op: op, where: where, n: 3}
	if err := c.open(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	}()
	if err := c.warm(time.Millisecond); err != nil {
		return err
	}
	return c.run(time.Millisecond)
}

// Looking for errors is free, where there is none.
func TestTroubleCostsNothing(t *testing.T) {
	var x trouble
	if n := testing.AllocsPerRun(100, func() { x.note(nil) }); n != 0 || x.err() != nil {
		t.Errorf("%v allocations, error %v", n, x.err())
	}
}

// Every operation of a worker counts, those of a mix in tens.
func TestRoundsHaveWholeMixes(t *testing.T) {
	c := &cell{ops: burst}
	for _, took := range []time.Duration{time.Nanosecond, time.Microsecond, time.Second, time.Hour, time.Hour, time.Hour} {
		c.resize(time.Millisecond, took, 50)
		if c.ops < mixed || c.ops%mixed != 0 {
			t.Fatalf("%d operations after a round of %v", c.ops, took)
		}
	}
}
