package inproc

import (
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/bench/internal/report"
)

// absent stands where a subject has no such cell.
const absent = "-"

// Tables renders the figures: one and two goroutines, more of them, and targets.
func (t *Table) Tables() []report.Table {
	out := []report.Table{t.few(), t.crowds()}
	if goals := t.goals(); len(goals.Lines) > 0 {
		out = append(out, goals)
	}
	return out
}

// few is one goroutine, which shows prices, and two, which show what sharing costs.
func (t *Table) few() report.Table {
	out := report.Table{
		Title: fmt.Sprintf("%v: one goroutine and two, ns", t.Op),
		Head: []string{"", "1", "median", "upper", "of Mutex", "of none", "2 shared", "of Mutex", "2 own", "of Mutex", "of none",
			"2 own key", "B", "objects"},
	}
	least, most := 0, 0
	for _, l := range t.Labels {
		one := t.Get(l, Own, 1)
		if one == nil {
			continue
		}
		line := []string{l, one.text(), report.Figure(one.Spread.Median), report.Figure(one.Spread.High),
			t.of(one, mutexValue), t.of(one, noSharing)}
		for _, where := range []Where{Shared, Own, OwnKey} {
			f := t.Get(l, where, 2)
			line = append(line, f.text())
			if where != OwnKey {
				line = append(line, t.of(f, mutexValue))
			}
			if where == Own {
				line = append(line, t.of(f, noSharing))
			}
			if f == nil || f.Turns {
				continue
			}
			if least == 0 || f.Ran < least {
				least = f.Ran
			}
			most = max(most, f.Ran)
		}
		out.Lines = append(out.Lines, append(line, fmt.Sprintf("%.0f", one.Bytes), fmt.Sprintf("%.1f", one.Objects)))
	}
	out.Text = fmt.Sprintf("One goroutine: the lower quartile, then median and upper quartile. Two: the median of those rounds in which "+
		"both ran at once (%d to %d of them); s: they hardly ever did, so this is the lower quartile of all rounds. "+
		"\"Of Mutex\" and \"of none\" are ratios to the same column of sync.Mutex and of no sharing. "+
		"B and objects are what one operation allocates.", least, most)
	return out
}

// crowds is more goroutines than two.
func (t *Table) crowds() report.Table {
	out := report.Table{
		Title: fmt.Sprintf("%v: more goroutines, ns", t.Op),
		Head:  []string{""},
		Text:  "The lower quartile of the rounds, with 4 and 8 of half of them. With more goroutines than cores this shows what queueing costs, and not what runs at once.",
	}
	conditions := []Where{Shared, Own, OwnKey}
	for _, where := range conditions {
		for _, n := range Crowds()[2:] {
			out.Head = append(out.Head, fmt.Sprintf("%d %v", n, where))
		}
	}
	for _, l := range t.Labels {
		line := []string{l}
		for _, where := range conditions {
			for _, n := range Crowds()[2:] {
				line = append(line, t.Get(l, where, n).text())
			}
		}
		out.Lines = append(out.Lines, line)
	}
	return out
}

// goals sets figures beside their targets, as they are and by what they are of the
// rows that tell how fast the machine is.
func (t *Table) goals() report.Table {
	out := report.Table{
		Title: fmt.Sprintf("%v: targets", t.Op),
		Head:  []string{"", "load", "ns", "target", "of Mutex", "target", "of none", "target", "reached"},
		Text: "Targets in nanoseconds hold for the machine on which they were set; as ratios they come from what sync.Mutex and the row " +
			"without sharing cost there.",
	}
	for _, x := range targets() {
		f := t.Get(x.label, x.where, x.n)
		if x.op != t.Op || f == nil {
			continue
		}
		load := "1"
		if x.n > 1 {
			load = fmt.Sprintf("%d %v", x.n, x.where)
		}
		mutex, none := reference(x.op, x.where, x.n)
		line := []string{x.label, load, f.text(), "≤ " + report.Figure(x.ns)}
		var reached []string
		if f.NS <= x.ns {
			reached = append(reached, "ns")
		}
		for _, base := range []struct {
			name, short string
			then        float64
		}{{mutexValue, "Mutex", mutex}, {noSharing, "none", none}} {
			b := t.Get(base.name, alone(x.where), x.n)
			if b == nil || base.then == 0 {
				line = append(line, absent, absent)
				continue
			}
			line = append(line, report.Figure(f.NS/b.NS), "≤ "+report.Figure(x.ns/base.then))
			if f.NS/b.NS <= x.ns/base.then {
				reached = append(reached, base.short)
			}
		}
		out.Lines = append(out.Lines, append(line, strings.Join(reached, ", ")))
	}
	return out
}

// alone is the condition of what has no keys that compares with one of what has:
// a key of one's own with an object of one's own.
func alone(where Where) Where {
	if where == OwnKey {
		return Own
	}
	return where
}

// of is a figure as a ratio to the same load on another subject.
func (t *Table) of(f *Figure, base string) string {
	if f == nil {
		return absent
	}
	b := t.Get(base, alone(f.Where), f.Goroutines)
	if b == nil || b.NS == 0 {
		return absent
	}
	return report.Figure(f.NS / b.NS)
}

func (f *Figure) text() string {
	switch {
	case f == nil:
		return absent
	case f.Turns:
		return report.Figure(f.NS) + " s"
	}
	return report.Figure(f.NS)
}
