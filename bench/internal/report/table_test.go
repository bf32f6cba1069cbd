package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// A row may have tables instead of arms; one that failed shows neither.
func TestRowsOfTables(t *testing.T) {
	r := New(Machine{}, 40, 0, false)
	table := Table{Title: "prices", Text: "In ns.", Head: []string{"", "1", "2"}, Lines: [][]string{{"a | b", "3", "4 s"}}}
	r.Add(Row{Name: "cells", Title: "A row of cells", Tables: []Table{table}, Claims: []rounds.Claim{{What: "price", Unit: "×", Got: 1, Reach: 2, Smaller: true}}})
	r.Add(Row{Name: "broken", Title: "A row that failed", Error: "a lost update"})
	text := r.Markdown()
	for _, want := range []string{
		"## cells\n\nA row of cells.\n\n**prices**\n\n|  | 1 | 2 |\n|---|--:|--:|\n| a \\| b | 3 | 4 s |\n\nIn ns.\n",
		"| cells | price | 1.00× | ≤ 2.00× |  | reached |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "## broken") {
		t.Errorf("a row that failed has a section in:\n%s", text)
	}
	var out bytes.Buffer
	if err := r.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"prices", "a | b  3  4 s", "In ns.", "* price: 1.00×; to reach ≤ 2.00×: reached", "FAILED: a lost update"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
