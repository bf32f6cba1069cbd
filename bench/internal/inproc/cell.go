package inproc

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// cell is one subject under one load. It lives for all rounds.
type cell struct {
	subject Subject
	op      Op
	where   Where
	n       int // goroutines

	things  []Thing
	workers []Worker
	did     []int // operations of each worker, over all rounds
	ops     int   // operations of each worker in the next round

	record []sample
	cost   cost
}

// sample is one cell in one round.
type sample struct {
	ns       float64 // of wall time, an operation of any goroutine
	parallel float64 // CPU time, of wall time
}

// cost is what an operation allocates.
type cost struct{ bytes, objects float64 }

// burst is the number of operations of one worker in the first measurement, which
// finds out how many make a round. All numbers of operations are multiples of mixed.
const (
	burst = 20 * mixed
	mixed = 10   // operations of the mix, the last of which writes
	many  = 2000 // operations, of which the allocations are counted
)

func (c *cell) String() string {
	return fmt.Sprintf("%s, %d goroutines, %v", c.subject.Labels[c.op], c.n, c.where)
}

// open makes the things and the workers.
func (c *cell) open() error {
	things := 1
	if c.where == Own {
		things = c.n
	}
	for range things {
		t, err := c.subject.New(c.n)
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		c.things = append(c.things, t)
	}
	for i := range c.n {
		t, key := c.part(i)
		c.workers = append(c.workers, t.Worker(key))
	}
	c.did = make([]int, c.n)
	c.ops = burst
	return nil
}

// part is the thing and the key of a worker.
func (c *cell) part(i int) (t Thing, key int) {
	switch c.where {
	case Own:
		return c.things[i], 0
	case OwnKey:
		return c.things[0], i
	default:
		return c.things[0], 0
	}
}

func (c *cell) close() error {
	var errs []error
	for _, t := range c.things {
		if t.Close != nil {
			errs = append(errs, t.Close())
		}
	}
	return errors.Join(errs...)
}

// run is one round of about d.
func (c *cell) run(d time.Duration) error {
	runtime.GC() // so that nobody pays for the garbage of another cell
	s, took, err := c.work()
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	c.record = append(c.record, s)
	c.resize(d, took, 1.25) // little, so that one disturbed round does not shorten the next
	return nil
}

// resize sets the number of operations of the next round, after one that took so
// long, within a factor.
func (c *cell) resize(d, took time.Duration, factor float64) {
	grow := float64(d) / float64(max(took, 1))
	grow = min(max(grow, 1/factor), factor)
	c.ops = max(int(float64(c.ops)*grow)/mixed, 1) * mixed
}

// warm finds out how many operations a round has, and what one allocates.
func (c *cell) warm(d time.Duration) error {
	for range 4 {
		_, took, err := c.work()
		if err != nil {
			return fmt.Errorf("%v: %w", c, err)
		}
		c.resize(d, took, 50)
	}
	ops := c.ops
	c.ops = max(many/c.n/mixed, 1) * mixed
	done := float64(c.ops * c.n)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, err := c.work()
	runtime.ReadMemStats(&after)
	// What starting the goroutines allocates is a few objects, so little of many.
	c.cost = cost{float64(after.TotalAlloc-before.TotalAlloc) / done, float64(after.Mallocs-before.Mallocs) / done}
	c.ops = ops
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return fmt.Errorf("%v: %w", c, err)
	}
	return nil
}

// finish is what one worker did in one round.
type finish struct {
	at    time.Time
	wrong string
}

// work has all workers do their operations, each from the same moment on.
func (c *cell) work() (sample, time.Duration, error) {
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	ends := make([]finish, c.n)
	ready.Add(c.n)
	for i, w := range c.workers {
		done.Go(func() {
			ready.Done()
			<-start
			wrong := w.do(c.op, c.ops)
			if w.Flush != nil {
				w.Flush()
			}
			ends[i] = finish{time.Now(), wrong}
		})
	}
	ready.Wait()
	cpu := process.CPUTime(0)
	began := time.Now()
	close(start)
	done.Wait()
	cpu = process.CPUTime(0) - cpu
	last := slices.MaxFunc(ends, func(a, b finish) int { return a.at.Compare(b.at) })
	took := last.at.Sub(began)
	for i, e := range ends {
		if e.wrong != "" {
			return sample{}, 0, rounds.Wrong("goroutine %d: %s", i, e.wrong)
		}
		c.did[i] += c.ops
	}
	return sample{float64(took) / float64(c.ops*c.n), float64(cpu) / float64(took)}, took, nil
}

// do does n operations and says what was wrong with what it read.
func (w Worker) do(op Op, n int) string {
	switch op {
	case Read:
		return w.reads(n)
	case Write:
		for range n {
			w.Write()
		}
	case Increment:
		for range n {
			w.Add()
		}
	case Mix:
		var last int64
		for range n / mixed {
			for range mixed - 1 {
				r := w.Read()
				if r.Seq < last || r.Twin != ^r.Seq {
					return fmt.Sprintf("record %d, %d was read after record %d", r.Seq, ^r.Twin, last)
				}
				last = r.Seq
			}
			w.Write()
		}
	}
	return ""
}

// reads reads what nobody changes.
func (w Worker) reads(n int) string {
	var sum, torn int64
	for range n {
		r := w.Read()
		sum += r.Seq
		torn |= r.Seq ^ ^r.Twin
	}
	if sum != int64(n)*first || torn != 0 {
		return fmt.Sprintf("%d reads of record %d gave a sum of %d, difference of halves %d", n, first, sum, torn)
	}
	return ""
}

// writes is how many operations of n are one of that kind.
func (o Op) writes(n int) int64 {
	switch o {
	case Write:
		return int64(n)
	case Mix:
		return int64(n / mixed)
	default:
		return 0
	}
}

// check compares what is stored with what was done, over all rounds.
func (c *cell) check() error {
	for _, t := range c.things {
		if t.Err == nil {
			continue
		}
		if err := t.Err(); err != nil {
			return fmt.Errorf("an operation failed: %w", err)
		}
	}
	if c.where == Shared {
		sum := 0
		for _, n := range c.did {
			sum += n
		}
		return c.agrees(c.things[0], 0, sum)
	}
	for i, n := range c.did {
		t, key := c.part(i)
		if err := c.agrees(t, key, n); err != nil {
			return err
		}
	}
	return nil
}

// agrees compares one key of a thing with n operations on it.
func (c *cell) agrees(t Thing, key, n int) error {
	r, count := t.State(key)
	if want := first + c.op.writes(n); r.Seq != want || r.Twin != ^want {
		return rounds.Wrong("record %d, %d is stored under key %d after %d operations, want record %d", r.Seq, ^r.Twin, key, n, want)
	}
	want := int64(0)
	if c.op == Increment {
		want = int64(n)
	}
	if count != want {
		return rounds.Wrong("the number under key %d is %d, want %d", key, count, want)
	}
	return nil
}
