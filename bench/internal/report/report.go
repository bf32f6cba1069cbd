// Package report turns measured rows into a table for a terminal, JSON for
// machines and a document for people.
package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// Row is one row that was run. Without a result and tables it says why, in LeftOut when that
// is no failure, else in Error.
type Row struct {
	Name    string
	Title   string
	Group   *Group         `json:",omitempty"` // rows that follow each other under one heading
	Result  *rounds.Result `json:",omitempty"`
	Tables  []Table        `json:",omitempty"` // instead of a Result, or beside it
	Data    any            `json:",omitempty"` // the figures behind the tables
	Claims  []rounds.Claim `json:",omitempty"`
	LeftOut string         `json:",omitempty"`
	Error   string         `json:",omitempty"`
}

// Group is what rows have in common. Those of one title are one group.
type Group struct {
	Title string
	Text  string `json:"-"`
}

// of reports whether a row is one of the group, which may be nil.
func (g *Group) of(row Row) bool {
	if g == nil || row.Group == nil {
		return g == row.Group
	}
	return g.Title == row.Group.Title
}

// Report is a whole run.
type Report struct {
	Machine Machine
	Rounds  int
	Length  time.Duration
	Quick   bool // small doses: the figures mean nothing
	Started time.Time
	Took    time.Duration
	Rows    []Row
}

// New begins a report.
func New(m Machine, rounds int, length time.Duration, quick bool) *Report {
	return &Report{Machine: m, Rounds: rounds, Length: length, Quick: quick, Started: time.Now()}
}

// Add adds a row.
func (r *Report) Add(row Row) { r.Rows = append(r.Rows, row) }

// Done ends the report: it takes the time and the load of the machine.
func (r *Report) Done() {
	r.Took = time.Since(r.Started).Round(time.Second)
	r.Machine.LoadAfter = load()
}

// Err joins the errors of the rows that failed. A target that is missed is not an
// error: it is a finding.
func (r *Report) Err() error {
	var errs []error
	for _, row := range r.Rows {
		if row.Error != "" {
			errs = append(errs, fmt.Errorf("%s: %s", row.Name, row.Error))
		}
	}
	return errors.Join(errs...)
}

// JSON writes everything, indented.
func (r *Report) JSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Table writes the rows for a terminal.
func (r *Report) Table(out io.Writer) error {
	var b strings.Builder
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%s: %s\n", row.Name, row.Title)
		switch {
		case row.LeftOut != "":
			fmt.Fprintf(&b, "  left out: %s\n\n", row.LeftOut)
			continue
		case row.Error != "":
			fmt.Fprintf(&b, "  FAILED: %s\n\n", row.Error)
			continue
		}
		for _, t := range row.Tables {
			t.terminal(&b)
		}
		if row.Result != nil {
			terminal(row.Result, &b)
		}
		for _, c := range row.Claims {
			fmt.Fprintf(&b, "  * %s: %s; to reach %s%s: %s\n", c.What, figure(c.Got)+unit(c), bound(c, c.Reach), aim(c), c.Verdict())
		}
		b.WriteByte('\n')
	}
	if r.Quick {
		b.WriteString("A quick run: it shows that everything works, its figures mean nothing.\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// terminal writes the arms and what is said of them.
func terminal(res *rounds.Result, b *strings.Builder) {
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	for i, line := range armLines(res) {
		if i == 0 {
			line[0] = ""
		}
		fmt.Fprintf(w, "  %s\t\n", strings.Join(line, "\t"))
	}
	_ = w.Flush() // a strings.Builder does not fail
	for _, line := range summary(res) {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// armLines is the table of arms, the heading first.
func armLines(res *rounds.Result) [][]string {
	lines := [][]string{{"arm", res.Unit, "quartiles", "p50 µs", "p99 µs", "longest µs", "client CPU µs", "server CPU µs", "server busy"}}
	for _, a := range res.Arms {
		line := []string{
			a.Name, figure(a.Value.Median), figure(a.Value.Low) + " to " + figure(a.Value.High),
			figure(a.P50.Median), figure(a.P99.Median), figure(a.Max.Median),
			figure(a.ClientCPU), figure(a.ServerCPU), fmt.Sprintf("%.1f %%", 100*a.Busy),
		}
		if a.Max.Most == 0 {
			line[3], line[4], line[5] = "", "", "" // nothing was timed
		}
		if a.Name == rounds.Idle {
			// Its operations are sleeps: neither their number nor their cost
			// compares with anything.
			line[1], line[2], line[6], line[7] = "", "", "", ""
		}
		lines = append(lines, line)
	}
	return lines
}

// summary is what follows the table of arms, a sentence a line.
func summary(res *rounds.Result) []string {
	var out []string
	if res.Peer != "" {
		out = append(out, fmt.Sprintf("%s / %s: %s at the worse quartile; median %s, %s to %s", res.Ours, res.Peer,
			figure(res.Worse), figure(res.Ratio.Median), figure(res.Ratio.Least), figure(res.Ratio.Most)))
	}
	for _, p := range res.Pairs {
		out = append(out, fmt.Sprintf("%s / %s: %s at the worse quartile; median %s, %s to %s", p.Ours, p.Peer,
			figure(p.Worse), figure(p.Ratio.Median), figure(p.Ratio.Least), figure(p.Ratio.Most)))
	}
	if a := res.Arm(res.Ours); a != nil && a.Max.Most > 0 {
		out = append(out, fmt.Sprintf("our p99 less the control's of the same round: median %s µs, quartiles %s to %s", figure(res.Tail.Median),
			figure(res.Tail.Low), figure(res.Tail.High)))
	}
	for _, a := range res.Arms {
		for _, name := range sortedKeys(a.Facts) {
			s := a.Facts[name]
			out = append(out, fmt.Sprintf("%s, %s: median %s, %s to %s", a.Name, name, figure(s.Median), figure(s.Least), figure(s.Most)))
		}
	}
	return append(out, fmt.Sprintf("rounds: %d; other programs used %.1f %% of the machine", res.Rounds, 100*res.Others))
}

func unit(c rounds.Claim) string {
	if c.Unit == "" || c.Unit == "×" {
		return c.Unit
	}
	return " " + c.Unit
}

func bound(c rounds.Claim, v float64) string {
	sign := "≥ "
	if c.Smaller {
		sign = "≤ "
	}
	return sign + figure(v) + unit(c)
}

func aim(c rounds.Claim) string {
	if c.Aim == 0 {
		return ""
	}
	return ", to aim at " + bound(c, c.Aim)
}

// figure shows three digits that count, and the thousands in groups.
func figure(v float64) string {
	a := max(v, -v)
	switch {
	case a == 0:
		return "0"
	case a < 0.01:
		return fmt.Sprintf("%.1g", v)
	case a < 10:
		return fmt.Sprintf("%.2f", v)
	case a < 100:
		return fmt.Sprintf("%.1f", v)
	}
	digits := fmt.Sprintf("%.0f", a)
	var b strings.Builder
	if v < 0 {
		b.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteString(" ")
		}
		b.WriteRune(d)
	}
	return b.String()
}
