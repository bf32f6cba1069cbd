package inproc

import (
	"maps"
	"slices"
	"testing"
	"time"
)

// figureOf is a cell whose rounds were these, in ns an operation and CPU time of
// wall time.
func figureOf(n int, record ...sample) Figure {
	c := &cell{subject: Subject{Labels: everywhere("x")}, n: n, record: record}
	return c.figure()
}

// With two goroutines only rounds in which both ran at once count, if there are any
// to speak of; else the cell is marked.
func TestWhatCountsOfRounds(t *testing.T) {
	both := func(ns float64) sample { return sample{ns, 1.9} }
	turns := func(ns float64) sample { return sample{ns, 1} }
	for _, c := range []struct {
		name  string
		got   Figure
		ns    float64
		turns bool
		ran   int
	}{
		{"one goroutine", figureOf(1, turns(1), turns(2), turns(3), turns(4)), 1, false, 4},
		{"two, all at once", figureOf(2, both(10), both(30), both(20)), 20, false, 3},
		{"two, some at once", figureOf(2, turns(5), both(10), turns(6), turns(7)), 10, false, 1},
		{"two, never", figureOf(2, turns(4), turns(3), turns(2), turns(1)), 1, true, 4},
		{"two, hardly ever", figureOf(2, append(slices.Repeat([]sample{turns(3)}, 39), both(10))...), 3, true, 40},
		{"sixteen", figureOf(16, both(4), both(3), both(2), both(1)), 1, false, 4},
	} {
		if c.got.NS != c.ns || c.got.Turns != c.turns || c.got.Ran != c.ran {
			t.Errorf("%s: %+v, want %v ns of %d rounds, taking turns %v", c.name, c.got, c.ns, c.ran, c.turns)
		}
	}
}

// Every subject does every operation that it has a name for, under every load, and
// every target is that of a subject.
func TestAllSubjects(t *testing.T) {
	for _, op := range []Op{Read, Write, Mix, Increment} {
		t.Run(op.String(), func(t *testing.T) {
			last := -1
			o := Options{Rounds: 2, Length: 20 * time.Microsecond, Seed: 1, Progress: func(round, of int) {
				if round != last+1 || of != 2 {
					t.Errorf("round %d of %d after %d", round, of, last)
				}
				last = round
			}}
			table, err := Measure(t.Context(), Subjects(), op, o)
			if err != nil {
				t.Fatal(err)
			}
			if last != 2 {
				t.Errorf("progress ended at %d", last)
			}
			labels := make(map[string]bool)
			for _, l := range table.Labels {
				if labels[l] {
					t.Errorf("two subjects are called %q", l)
				}
				labels[l] = true
			}
			want := 0
			for _, x := range targets() {
				if x.op != op {
					continue
				}
				if !x.free {
					want++
				}
				if _, none := reference(x.op, x.where, x.n); none > 0 && x.where != Shared {
					want++
				}
				if table.Get(x.label, x.where, x.n) == nil {
					t.Errorf("there is a target, and no figure, of %s by %d, %v", x.label, x.n, x.where)
				}
			}
			want += map[Op]int{Read: 3, Write: 4, Increment: 1}[op]
			if got := len(table.Claims()); got != want {
				t.Errorf("%d claims, want %d", got, want)
			}
			for _, r := range table.Tables() {
				for _, line := range r.Lines {
					if len(line) != len(r.Head) {
						t.Errorf("%s: %d cells under %d headings: %v", r.Title, len(line), len(r.Head), line)
					}
				}
			}
		})
	}
}

// What a mutex and the row without sharing were when the targets were set makes
// them ratios.
func TestTargetsAreRatios(t *testing.T) {
	table := &Table{Op: Read, Labels: []string{noSharing, mutexValue, varLoad, varPeek}}
	for label, ns := range map[string]float64{noSharing: 1, mutexValue: 10, varLoad: 14, varPeek: 1.4} {
		table.Figures = append(table.Figures, Figure{Subject: label, Where: Own, Goroutines: 1, NS: ns})
	}
	got := make(map[string]bool)
	for _, c := range table.Claims() {
		got[c.What] = c.Reached()
	}
	want := map[string]bool{
		"time of locked.Var Load, of sync.Mutex": true,  // 25 ns beside 17.4
		"time of locked.Var Load, of no sharing": false, // 25 ns beside 1.9
		"time of locked.Var Peek, of no sharing": false, // 2.5 ns beside 1.9
	}
	if !maps.Equal(got, want) {
		t.Errorf("reached %v, want %v", got, want)
	}
}
