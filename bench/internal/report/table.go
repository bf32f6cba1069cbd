package report

import (
	"fmt"
	"strings"
	"text/tabwriter"
)

// Table is figures of a row that are not those of a few arms: a heading, then lines
// of as many cells.
type Table struct {
	Title string
	Text  string // what a reader must know to read it; may be empty
	Head  []string
	Lines [][]string
}

// Figure shows three digits that count, and the thousands in groups.
func Figure(v float64) string { return figure(v) }

// terminal writes the table for people at a terminal.
func (t Table) terminal(b *strings.Builder) {
	fmt.Fprintf(b, "  %s\n", t.Title)
	w := tabwriter.NewWriter(b, 0, 8, 2, ' ', tabwriter.AlignRight)
	for _, line := range append([][]string{t.Head}, t.Lines...) {
		fmt.Fprintf(w, "  %s\t\n", strings.Join(line, "\t"))
	}
	_ = w.Flush() // a strings.Builder does not fail
	if t.Text != "" {
		fmt.Fprintf(b, "  %s\n", t.Text)
	}
	b.WriteByte('\n')
}

// markdown writes the table for the document.
func (t Table) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "**%s**\n\n", t.Title)
	for i, line := range append([][]string{t.Head}, t.Lines...) {
		cells := make([]string, len(line))
		for j := range line {
			cells[j] = cell(line[j])
		}
		fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | "))
		if i == 0 {
			b.WriteString("|---" + strings.Repeat("|--:", len(line)-1) + "|\n")
		}
	}
	b.WriteByte('\n')
	if t.Text != "" {
		fmt.Fprintf(b, "%s\n\n", t.Text)
	}
}
