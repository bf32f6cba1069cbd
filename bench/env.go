package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// ttl is the time to live of every lock that is released at once: long enough
// that none ends by itself.
const ttl = 30 * time.Second

// env is what a row has at hand, and what it must give back.
type env struct {
	dir     string // for data, on the disk that is measured
	self    string // this program
	broker  string // the built binary
	profile string // folder for profiles, or empty
	row     string // the row that runs
	npm     string // folder in which the npm package is installed, once it is
	node    string // version of node, once it was asked for
	quick   bool   // small doses, to see that everything works
	rounds  rounds.Options

	brokers int            // that the row started, to name their profiles
	cleanup []func() error // of the row, last one first
}

// row is one line of the comparison.
type row struct {
	name  string
	title string
	group *report.Group // may be nil

	// run measures arms. A row has either it or tables.
	run    func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error)
	tables func(ctx context.Context, e *env) (tables, error)

	inProcess bool // needs no broker
}

// tables are the result of a row that does not compare a few arms.
type tables struct {
	tables []report.Table
	claims []rounds.Claim
	data   any // the figures behind them
}

// leftOut is why a row was not run, where that is not a failure.
type leftOut struct{ reason string }

func (l leftOut) Error() string { return "left out: " + l.reason }

func leaveOut(format string, args ...any) error { return leftOut{fmt.Sprintf(format, args...)} }

// start runs a program that the end of the row stops.
func (e *env) start(ctx context.Context, c process.Command) (*process.Process, error) {
	p, err := process.Start(ctx, c)
	if err != nil {
		return nil, err
	}
	e.later(p.Stop)
	return p, nil
}

// later does something at the end of the row.
func (e *env) later(f func() error) { e.cleanup = append(e.cleanup, f) }

// finish undoes what a row set up.
func (e *env) finish() error {
	var errs []error
	for _, f := range slices.Backward(e.cleanup) {
		errs = append(errs, f())
	}
	e.cleanup, e.brokers = nil, 0
	return errors.Join(errs...)
}

// dose is n, or a twentieth of it in a quick run.
func (e *env) dose(n int) int {
	if e.quick {
		return n / 20
	}
	return n
}

// newEnv makes the folder for data. The current directory would do, but a
// temporary one can be put on another disk by TMPDIR.
func newEnv(o options) (*env, func(), error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, fmt.Errorf("find this program, to start it again as a server: %w", err)
	}
	dir, err := os.MkdirTemp("", "latchkey-bench-")
	if err != nil {
		return nil, nil, err
	}
	e := &env{dir: dir, self: self, broker: o.broker, profile: o.profile, quick: o.quick}
	e.rounds = rounds.Options{Rounds: o.rounds, Length: o.length, Seed: o.seed}
	if o.profile != "" {
		if e.profile, err = filepath.Abs(o.profile); err == nil {
			err = os.MkdirAll(e.profile, 0o755)
		}
	}
	return e, func() { _ = os.RemoveAll(dir) }, err
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
