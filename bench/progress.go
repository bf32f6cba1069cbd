package main

import (
	"fmt"
	"os"
	"time"
)

// progress tells people on standard error how far the run is: one line that is
// rewritten on a terminal, one line a row elsewhere.
type progress struct {
	terminal bool
	rows, at int
	name     string
	started  time.Time
}

func newProgress(rows int) *progress {
	info, err := os.Stderr.Stat()
	return &progress{terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, rows: rows}
}

func (p *progress) row(r row) {
	p.at++
	p.name, p.started = r.name, time.Now()
	p.line("setting up")
}

func (p *progress) round(round, of int) {
	if round == 0 {
		p.line("warming up")
		return
	}
	p.line(fmt.Sprintf("round %d of %d", round, of))
}

func (p *progress) line(what string) {
	if p.terminal {
		fmt.Fprintf(os.Stderr, "\r\x1b[K%d/%d %s: %s", p.at, p.rows, p.name, what)
	}
}

func (p *progress) done(r row, leftOut string, err error) {
	p.clear()
	took := time.Since(p.started).Round(100 * time.Millisecond)
	if err != nil {
		fmt.Fprintf(os.Stderr, "%d/%d %s: failed after %v: %v\n", p.at, p.rows, r.name, took, err)
		return
	}
	if leftOut != "" {
		fmt.Fprintf(os.Stderr, "%d/%d %s: left out: %s\n", p.at, p.rows, r.name, leftOut)
		return
	}
	fmt.Fprintf(os.Stderr, "%d/%d %s: %v\n", p.at, p.rows, r.name, took)
}

func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
	}
}
