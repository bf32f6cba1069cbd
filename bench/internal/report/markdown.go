package report

import (
	"fmt"
	"strings"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

const preface = `# Benchmarks

This page is written by a program, ` + "`make bench`" + `; nothing in it was edited by hand.

Each row compares several arms in short interleaved rounds, in an order drawn anew each round, together with an idle
control that only sleeps. A ratio is taken within each round; what counts is its quartile on the side that is worse for
us. Every answer is checked, after each round also against what the server counted by itself; one wrong answer voids the
row. Every server is a process of its own on the same machine, reached over loopback. Differences under 15 % mean
nothing here. CPU times are those of the processes, per operation; "server busy" is the share of one core.

`

// Markdown renders the document.
func (r *Report) Markdown() string {
	var b strings.Builder
	b.WriteString(preface)
	fmt.Fprintf(&b, "Measured on %s, with %d rounds of %v per arm unless a row says otherwise, in %v:\n\n",
		r.Started.Format("2006-01-02"), r.Rounds, r.Length, r.Took)
	for _, line := range r.Machine.lines() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	b.WriteString("\n## Targets\n\n| row | what | figure | to reach | to aim at | |\n|---|---|---|---|---|---|\n")
	for _, row := range r.Rows {
		for _, c := range row.Claims {
			goal := ""
			if c.Aim != 0 {
				goal = bound(c, c.Aim)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", row.Name, cell(c.What), figure(c.Got)+unit(c), bound(c, c.Reach), goal, c.Verdict())
		}
	}
	var group *Group
	for _, row := range r.Rows {
		if !group.of(row) && row.Group != nil {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", row.Group.Title, row.Group.Text)
		}
		group = row.Group
		if row.Error == "" {
			b.WriteString(row.section())
		}
	}
	b.WriteString(`
## Run it

` + "```sh" + `
make bench
` + "```" + `

Flags of the program behind it, in the folder bench: --only takes rows by name, --quick shows in a minute that everything
works, --json prints every figure, --profile writes CPU and heap profiles of client and broker.
`)
	return b.String()
}

func (row Row) section() string {
	var b strings.Builder
	level := "##"
	if row.Group != nil {
		level = "###"
	}
	fmt.Fprintf(&b, "\n%s %s\n\n%s.\n\n", level, row.Name, row.Title)
	if row.LeftOut != "" {
		fmt.Fprintf(&b, "Left out: %s.\n", row.LeftOut)
		return b.String()
	}
	for _, t := range row.Tables {
		t.markdown(&b)
	}
	if row.Result == nil {
		return strings.TrimSuffix(b.String(), "\n")
	}
	for i, line := range armLines(row.Result) {
		for j := range line {
			line[j] = cell(line[j])
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(line, " | "))
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|--:", len(line)-1) + "|\n")
		}
	}
	b.WriteByte('\n')
	for _, a := range row.Result.Arms {
		if a.Name != rounds.Idle {
			fmt.Fprintf(&b, "- %s: %s\n", a.Name, a.Setting)
		}
	}
	for _, line := range summary(row.Result) {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	return b.String()
}

// cell keeps text from ending its table cell.
func cell(s string) string { return strings.ReplaceAll(s, "|", `\|`) }
