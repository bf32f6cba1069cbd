package inproc

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// Options say how a table is measured.
type Options struct {
	Rounds int           // that count; a few more are run first to warm up
	Length time.Duration // of a cell in one round
	Seed   uint64        // of the order within the rounds

	// Progress is called before each round. May be nil.
	Progress func(round, of int)
}

// Crowds are the numbers of goroutines.
func Crowds() []int { return []int{1, 2, 4, 8, 16} }

// seldom are the numbers of goroutines that run in half of the rounds only: they
// fill the curve between its ends.
func seldom(n int) bool { return n == 4 || n == 8 }

// truly is the share of CPU time in wall time from which on two goroutines ran at
// once.
const truly = 1.6

// enough is the share of rounds with that, from which on the others are left out.
const enough = 0.125

// Figure is a cell over all rounds.
type Figure struct {
	Subject    string
	Where      Where
	Goroutines int

	NS     float64       // what counts: see the package comment
	Spread rounds.Spread // of all rounds
	Turns  bool          // two goroutines that hardly ever run at once
	Ran    int           // rounds that NS is taken from

	Bytes, Objects float64 // allocated for an operation
}

// Table is one operation, measured.
type Table struct {
	Op      Op
	Labels  []string // of the subjects, in order
	Figures []Figure
}

// Get returns a figure, or nil. One goroutine shares nothing, so it has one figure
// for all conditions.
func (t *Table) Get(subject string, where Where, goroutines int) *Figure {
	if goroutines == 1 {
		where = Own
	}
	i := slices.IndexFunc(t.Figures, func(f Figure) bool {
		return f.Subject == subject && f.Where == where && f.Goroutines == goroutines
	})
	if i < 0 {
		return nil
	}
	return &t.Figures[i]
}

// Measure measures one operation of the subjects that have it.
func Measure(ctx context.Context, subjects []Subject, op Op, o Options) (t *Table, err error) {
	t = &Table{Op: op}
	var cells []*cell
	defer func() {
		for _, c := range cells {
			err = errors.Join(err, c.close())
		}
	}()
	for _, s := range subjects {
		if s.Labels[op] == "" {
			continue
		}
		t.Labels = append(t.Labels, s.Labels[op])
		for _, c := range s.cells(op) {
			cells = append(cells, c)
			if err := c.open(); err != nil {
				return nil, err
			}
		}
	}
	random := rand.New(rand.NewPCG(o.Seed, uint64(op)))
	for round := range o.Rounds + 1 {
		if o.Progress != nil {
			o.Progress(round, o.Rounds)
		}
		for _, i := range random.Perm(len(cells)) {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			c := cells[i]
			if round%2 == 0 && round > 0 && seldom(c.n) {
				continue
			}
			run := c.run
			if round == 0 {
				run = c.warm
			}
			if err := run(o.Length); err != nil {
				return nil, err
			}
		}
	}
	for _, c := range cells {
		t.Figures = append(t.Figures, c.figure())
	}
	return t, nil
}

// cells are the loads of a subject.
func (s Subject) cells(op Op) []*cell {
	conditions := []Where{Shared, Own}
	switch {
	case s.Alone:
		conditions = []Where{Own}
	case s.Map:
		conditions = append(conditions, OwnKey)
	}
	var all []*cell
	for _, n := range Crowds() {
		for _, where := range conditions {
			if n > 1 || where == Own {
				all = append(all, &cell{subject: s, op: op, where: where, n: n})
			}
		}
	}
	return all
}

// figure reduces the rounds of a cell.
func (c *cell) figure() Figure {
	f := Figure{Subject: c.subject.Labels[c.op], Where: c.where, Goroutines: c.n, Bytes: c.cost.bytes, Objects: c.cost.objects}
	var all, both []float64
	for _, s := range c.record {
		all = append(all, s.ns)
		if s.parallel >= truly {
			both = append(both, s.ns)
		}
	}
	f.Spread = rounds.SpreadOf(all)
	f.NS, f.Ran = f.Spread.Low, len(all)
	if c.n != 2 {
		return f
	}
	if float64(len(both)) < max(1, enough*float64(len(all))) {
		f.Turns = true
		return f
	}
	f.NS, f.Ran = rounds.SpreadOf(both).Median, len(both)
	return f
}
