package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// sample is a report with one row of each kind: with a peer, without, failed.
func sample() *Report {
	s := func(v float64) rounds.Spread { return rounds.Spread{Least: v, Low: v, Median: v, High: v, Most: v} }
	arm := func(name string, v float64) rounds.ArmResult {
		return rounds.ArmResult{Name: name, Setting: "1 connection | memory", Ops: 10, Value: s(v), P50: s(1), P99: s(2), Max: s(3)}
	}
	paired := &rounds.Result{
		Rounds: 40, Unit: "pairs/s", Ours: "latchkey", Peer: "redis", Ratio: s(2), Worse: 2,
		Arms: []rounds.ArmResult{arm("latchkey", 123456), arm("redis", 61728), arm(rounds.Idle, 1)},
	}
	paired.Arms[0].Facts = map[string]rounds.Spread{"syncs a pair": s(2)}
	alone := &rounds.Result{Rounds: 40, Unit: "µs", Ours: "latchkey", Arms: []rounds.ArmResult{arm("latchkey", 5), arm(rounds.Idle, 1)}}
	r := New(LookAt(context.Background(), ".", "7.0"), 40, 250*time.Millisecond, false)
	r.Add(Row{Name: "first", Title: "One row", Result: paired, Claims: []rounds.Claim{
		{What: "rate | of redis", Unit: "×", Got: 2, Reach: 1.5, Aim: 3},
		{What: "heap", Unit: "B", Got: 800, Reach: 400, Smaller: true},
	}})
	r.Add(Row{Name: "second", Title: "Another row", Result: alone})
	return r
}

func TestMarkdownHasWholeTables(t *testing.T) {
	text := sample().Markdown()
	for _, want := range []string{
		"| first | rate \\| of redis | 2.00× | ≥ 1.50× | ≥ 3.00× | reached |",
		"| first | heap | 800 B | ≤ 400 B |  | missed by 100 % |",
		"| latchkey | 123 456 |", "latchkey / redis: 2.00 at the worse quartile", "latchkey, syncs a pair: median 2.00", "## second",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	columns := 0
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			columns = 0
			continue
		}
		n := strings.Count(strings.ReplaceAll(line, `\|`, ""), "|")
		if columns != 0 && n != columns {
			t.Errorf("%d columns in a table of %d: %s", n-1, columns-1, line)
		}
		columns = n
	}
}

// Rows of one group stand under one heading, and one that was left out says why.
func TestGroupsAndWhatIsLeftOut(t *testing.T) {
	r := sample()
	g := func() *Group { return &Group{Title: "a group", Text: "What they share."} }
	r.Add(Row{Name: "third", Title: "A row", Group: g(), Result: r.Rows[1].Result})
	r.Add(Row{Name: "fourth", Title: "Another row", Group: g(), LeftOut: "node is not installed"})
	r.Add(Row{Name: "fifth", Title: "A row of no group", Result: r.Rows[1].Result})
	text := r.Markdown()
	for _, want := range []string{
		"\n## a group\n\nWhat they share.\n\n### third\n", "\n### fourth\n\nAnother row.\n\nLeft out: node is not installed.\n", "\n## fifth\n",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("not once %q in:\n%s", want, text)
		}
	}
	if n := strings.Count(text, "## a group"); n != 1 {
		t.Errorf("%d headings of one group", n)
	}
	var out bytes.Buffer
	if err := errors.Join(r.Table(&out), r.Err()); err != nil || !strings.Contains(out.String(), "left out: node is not installed") {
		t.Errorf("error %v of:\n%s", err, out.String())
	}
}

func TestTableShowsFailures(t *testing.T) {
	r := sample()
	r.Add(Row{Name: "third", Title: "A row that failed", Error: "wrong answer: two holders"})
	var out bytes.Buffer
	if err := r.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAILED: wrong answer: two holders", "missed by 100 %", "2.00 at the worse quartile"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if err := r.Err(); err == nil || err.Error() != "third: wrong answer: two holders" {
		t.Errorf("error = %v", err)
	}
}

func TestJSONIsReadBack(t *testing.T) {
	r := sample()
	var out bytes.Buffer
	if err := r.JSON(&out); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Rows[0].Result.Arms[0].Value.Median; got != 123456 || back.Rows[0].Claims[1].Got != 800 {
		t.Errorf("read back %v and %v", got, back.Rows[0].Claims)
	}
}

func TestFigures(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0042: "0.004", 1.234: "1.23", -12.34: "-12.3", 999.6: "1 000", 1234567: "1 234 567", -1234: "-1 234"} {
		if got := figure(v); got != want {
			t.Errorf("figure(%v) = %q, want %q", v, got, want)
		}
	}
}
