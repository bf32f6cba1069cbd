// Command bench measures Latchkey against its peers, all in one run on one
// machine, and checks every answer while it does so.
//
// Every program runs as its user runs it: the broker is the built binary in a
// process of its own, the client is the Go client in this process; Redis, etcd,
// the npm package's broker and a bare echo server are processes too, started on free loopback ports with
// folders of their own, and stopped by process id. How the rounds work is said in
// the package comment of internal/rounds.
//
//	go run . --quick                        does everything work? (figures mean nothing)
//	go run . --only durable-64              one row
//	go run . --only inproc                  what sharing between goroutines costs on this machine
//	go run . --only map                     the replicated map
//	go run . --only cache                   the cache
//	go run . --only map,cache --write FILE  some rows, and a document of them; `make bench` writes the two in docs
//
// Linux is needed for CPU times; elsewhere they are zero.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/report"
)

type options struct {
	rounds  int
	length  time.Duration
	seed    uint64
	only    string
	quick   bool
	json    bool
	write   string
	profile string
	broker  string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == childMode {
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintln(os.Stderr, "bench:", err)
		}
		stop()
		os.Exit(1)
	}
}

// table lists the rows in the order of the document.
func table() []row {
	return slices.Concat([]row{
		memoryOne(), memoryMany(), durableOne(), durableMany(),
		contendedMemory(), contendedDurable(), contendedEtcd(),
		millionLeases(), expiry(), keysHeld(),
	}, lmxRows(), clientRows(), mapRows(), cacheRows(), inprocRows())
}

func parse(args []string) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.IntVar(&o.rounds, "rounds", 40, "rounds of each row that count")
	f.DurationVar(&o.length, "length", 250*time.Millisecond, "length of one arm in one round")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the order within rounds")
	f.StringVar(&o.only, "only", "", "run these rows only, separated by commas; inproc, lmx, clients, map and cache stand for all rows that begin so")
	f.BoolVar(&o.quick, "quick", false, "three rounds and small doses, to see that everything works")
	f.BoolVar(&o.json, "json", false, "print all figures as JSON instead of tables")
	f.StringVar(&o.write, "write", "", "write the document to this `file`")
	f.StringVar(&o.profile, "profile", "", "write CPU and heap profiles of client and broker to this `folder`; the broker then runs inside this program")
	f.StringVar(&o.broker, "broker", "", "use this `binary` of latchkey instead of building one")
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: bench [flags]; the rows are:")
		for _, r := range table() {
			fmt.Fprintf(f.Output(), "  %-18s %s\n", r.name, r.title)
		}
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return o, err
	}
	switch {
	case f.NArg() > 0:
		return o, fmt.Errorf("%q: bench takes flags only; see --help", f.Arg(0))
	case o.rounds < 1 || o.length < time.Millisecond:
		return o, fmt.Errorf("--rounds must be at least 1 and --length at least 1ms")
	case o.write != "" && (o.quick || o.profile != ""):
		return o, fmt.Errorf("--write wants full rounds: leave out --quick and --profile")
	}
	if o.quick {
		o.rounds, o.length = min(o.rounds, 3), min(o.length, 50*time.Millisecond)
	}
	return o, nil
}

// chosen returns the rows that --only names, or all. What names no row but begins
// the names of several, up to a hyphen, stands for all of those.
func chosen(only string) ([]row, error) {
	all := table()
	if only == "" {
		return all, nil
	}
	var out []row
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(all, func(r row) bool { return r.name == name })
		if begun := beginning(all, name+"-"); i < 0 && len(begun) > 0 {
			out = append(out, begun...)
			continue
		}
		if i < 0 {
			return nil, fmt.Errorf("--only: there is no row %q; see --help", name)
		}
		out = append(out, all[i])
	}
	return out, nil
}

func beginning(all []row, with string) []row {
	var out []row
	for _, r := range all {
		if strings.HasPrefix(r.name, with) {
			out = append(out, r)
		}
	}
	return out
}

func run(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	rows, err := chosen(o.only)
	if err != nil {
		return err
	}
	e, cleanUp, err := newEnv(o)
	if err != nil {
		return err
	}
	defer cleanUp()
	if slices.ContainsFunc(rows, func(r row) bool { return !r.inProcess }) {
		if err := e.buildBroker(ctx); err != nil {
			return err
		}
	}
	rep := report.New(report.LookAt(ctx, e.dir, redisVersion()), o.rounds, o.length, o.quick)
	show := newProgress(len(rows))
	for _, r := range rows {
		if ctx.Err() != nil {
			break
		}
		rep.Add(e.measure(ctx, r, show))
	}
	rep.Done()
	show.clear()
	if err := deliver(rep, o); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return errors.New("interrupted: the rows that are missing were not run")
	}
	return rep.Err()
}

func deliver(rep *report.Report, o options) error {
	if o.write != "" {
		if err := rep.Err(); err != nil {
			return fmt.Errorf("%s is left as it was: %w", o.write, err)
		}
		if err := os.WriteFile(o.write, []byte(rep.Markdown()), 0o644); err != nil {
			return err
		}
	}
	if o.json {
		return rep.JSON(os.Stdout)
	}
	return rep.Table(os.Stdout)
}

// measure runs one row, its profile and its clean-up.
func (e *env) measure(ctx context.Context, r row, show *progress) report.Row {
	show.row(r)
	e.row = r.name
	e.rounds.Progress = show.round
	stopProfile, err := e.profileClient()
	if err != nil {
		return report.Row{Name: r.name, Title: r.title, Group: r.group, Error: err.Error()}
	}
	out := report.Row{Name: r.name, Title: r.title, Group: r.group}
	if r.tables != nil {
		var t tables
		t, err = r.tables(ctx, e)
		out.Tables, out.Claims, out.Data = t.tables, t.claims, t.data
	} else {
		out.Result, out.Claims, err = r.run(ctx, e)
	}
	ended := errors.Join(stopProfile(), e.finish())
	var left leftOut
	if errors.As(err, &left) {
		out.LeftOut = left.reason
		err = ended
	} else {
		err = errors.Join(err, ended)
	}
	if err != nil {
		out.Result, out.Tables, out.Data, out.Claims, out.Error = nil, nil, nil, nil, err.Error()
	}
	show.done(r, out.LeftOut, err)
	return out
}
