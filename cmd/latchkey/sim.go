package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/hotcache/sim"
)

// simOptions are the flags of sim.
type simOptions struct {
	sim.Config
	trace   string
	faults  []string
	compare bool
	html    string
}

func (a *app) simCommand() *cobra.Command {
	o := simOptions{Config: sim.Defaults()}
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "try a cache in a world of its own, on a virtual clock",
		Long: `Try a cache in a world of its own, on a virtual clock: servers that read, nodes
with a queue, a database with a replica, and what goes wrong between them.

The policy "ours" is package hotcache: its own decisions, driven by a simulator. The
policy "source" is a cache as it is written by hand, and shown as that: delete on
write, memory that only a time to live ends, hot keys that each server finds for
itself, copies at random places that are each filled from the database. --compare shows both on the same work.
The same seed gives the same bytes.

A trace is a key a line, read at --rate, or rows of time,key,op: seconds or dates as
2026-11-30T23:59:59Z, and read or write.

Faults are KIND@START+DURATION:WHICH, and --fault may be given often:
  crash@2s         the next writer dies between its commit and the invalidation
  crash@2s+1s:0.5  every other writer does, for a second
  lose@1s+2s:0.1   one in ten messages about invalidations gets lost
  cut@1s+2s:3      server 3 hears nothing of what nodes broadcast, and is not told so
  node@2s+1s:5     node 5 dies, and comes back empty
  away@2s+1s:5     node 5 cannot be reached, and comes back with what it had
  lag@1s+2s:100ms  the replica is so far behind`,
		Example: `  latchkey sim --compare
  latchkey sim --compare --skew 1.2 --l1=false --html report.html
  latchkey sim --lag 20ms --fault node@2s+1s:5 --json | jq '.results[0].staleReads'
  latchkey sim --trace reads.csv --nodes 4`,
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.compare && cmd.Flags().Changed("policy") {
				return errors.New("--compare runs both policies, so --policy says nothing; leave one of them out")
			}
			for _, name := range []string{"reads", "keys", "skew", "write-every", "write-rate"} {
				if o.trace != "" && cmd.Flags().Changed(name) {
					return fmt.Errorf("--trace says what is read and written, so --%s says nothing; leave one of them out", name)
				}
			}
			return a.sim(&o)
		},
	}
	o.workFlags(cmd)
	o.cacheFlags(cmd)
	return cmd
}

func (o *simOptions) workFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.BoolVar(&o.compare, "compare", false, "run both policies on the same work")
	f.StringVar(&o.Policy, "policy", o.Policy, "ours or source")
	f.StringVar(&o.html, "html", "", "write a page with plots into this `FILE`")
	f.Uint64Var(&o.Seed, "seed", o.Seed, "of everything that is random")
	f.StringVar(&o.trace, "trace", "", "`FILE` with the work: a key a line, or time,key,op")
	f.IntVar(&o.Reads, "reads", o.Reads, "how many reads are made")
	f.Float64Var(&o.Rate, "rate", o.Rate, "reads a second, of all servers together")
	f.IntVar(&o.Keys, "keys", o.Keys, "how many keys there are")
	f.Float64Var(&o.Skew, "skew", o.Skew, "of Zipf: 0 is even, 0.99 usual, 1.2 much")
	f.IntVar(&o.WriteEvery, "write-every", o.WriteEvery, "one write after so many reads, 0 for none")
	f.Float64Var(&o.WriteRate, "write-rate", o.WriteRate, "writes a second besides")
	f.IntVar(&o.Servers, "servers", o.Servers, "processes that read and write")
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "cache nodes")
	f.IntVar(&o.Capacity, "capacity", o.Capacity, "how many things a node does at a time")
	f.DurationVar(&o.Service, "service", o.Service, "how long a node takes for one, on average")
	f.DurationVar(&o.Network, "network", o.Network, "how long a message takes one way, on average")
	f.DurationVar(&o.Load, "load", o.Load, "how long a read of the database takes, on average")
	f.DurationVar(&o.Lag, "lag", o.Lag, "how far the database's replica is behind")
	f.IntVar(&o.ValueBytes, "value-bytes", o.ValueBytes, "size of a value")
	f.StringArrayVar(&o.faults, "fault", nil, "something that goes wrong, `KIND@START+DURATION:WHICH`; see above")
}

func (o *simOptions) cacheFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.Replicate, "replicate", o.Replicate, "spread hot keys over nodes")
	f.IntVar(&o.Copies, "copies", o.Copies, "of a hot key")
	f.Float64Var(&o.HotShare, "hot-share", o.HotShare, "share of the reads that makes a key hot")
	f.IntVar(&o.Counters, "counters", o.Counters, "keys that a server counts at a time")
	f.DurationVar(&o.Window, "window", o.Window, "how long reads are counted until it is looked what is hot")
	f.IntVar(&o.WindowReads, "window-reads", o.WindowReads, "the same for source, in reads of a server; 0 is those of --window")
	f.IntVar(&o.VNodes, "vnodes", o.VNodes, "virtual nodes for each node on the ring of source")
	f.DurationVar(&o.TTL, "ttl", o.TTL, "how long nodes serve a value")
	f.IntVar(&o.NodeEntries, "node-entries", o.NodeEntries, "how many values a node keeps, 0 for all")
	f.BoolVar(&o.L1, "l1", o.L1, "servers keep values in their own memory")
	f.DurationVar(&o.L1TTL, "l1-ttl", o.L1TTL, "how long they serve them from there")
	f.IntVar(&o.L1Entries, "l1-entries", o.L1Entries, "how many of them")
	f.DurationVar(&o.Trust, "trust", o.Trust, "how long ours trusts memory after a proof that nothing was missed")
}

// sim makes the runs and shows them. After an interruption it shows what there is.
func (a *app) sim(o *simOptions) error {
	for _, text := range o.faults {
		f, err := sim.ParseFault(text)
		if err != nil {
			return fmt.Errorf("--fault %w", err)
		}
		o.Faults = append(o.Faults, f)
	}
	if o.trace != "" {
		o.TraceName = o.trace
		o.Trace = func() (io.ReadCloser, error) { return os.Open(o.trace) }
	}
	page, err := openPage(o.html)
	if err != nil {
		return err
	}
	if page != nil {
		defer page.Close()
	}
	policies := []string{o.Policy}
	if o.compare {
		policies = []string{sim.Ours, sim.Source}
	}
	ctx, signals := interruptible()
	defer signals.end()
	report := sim.Report{Config: o.Config}
	for _, policy := range policies {
		cfg := o.Config
		cfg.Policy = policy
		result, err := a.simRun(ctx, cfg)
		if err != nil {
			return simProblem(err)
		}
		report.Results = append(report.Results, result)
		if result.Interrupted {
			break
		}
	}
	if err := a.simShow(&report, page); err != nil {
		return err
	}
	return interrupted(ctx, context.Cause(ctx))
}

// simRun makes one run, with its progress on a terminal.
func (a *app) simRun(ctx context.Context, cfg sim.Config) (*sim.Result, error) {
	if a.con.width > 0 {
		defer a.con.replace("", "")
		began := time.Now()
		shown := time.Duration(0)
		cfg.Progress = func(done, total int) {
			since := time.Since(began)
			if since < shown+100*time.Millisecond {
				return
			}
			shown = since
			line := fmt.Sprintf("%s: %d reads", cfg.Policy, done)
			if total > 0 {
				line = fmt.Sprintf("%s: %d of %d reads, %d %%", cfg.Policy, done, total, 100*done/total)
			}
			a.con.replace(line, "")
		}
	}
	return sim.Run(ctx, cfg)
}

// simProblem says which flag is meant.
func simProblem(err error) error {
	if e, ok := errors.AsType[*sim.ConfigError](err); ok {
		return fmt.Errorf("--%s %s", e.Setting, e.Why)
	}
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("--trace %s: %w", e.Path, e.Err)
	}
	return errors.New(strings.TrimPrefix(err.Error(), "sim: "))
}

// openPage opens the file of the page before anything is run for it. Nil is for none.
func openPage(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	page, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--html: %w", err)
	}
	return page, nil
}

func (a *app) simShow(r *sim.Report, page *os.File) error {
	if page != nil {
		err := page.Truncate(0)
		if err == nil {
			_, err = page.Write(r.HTML())
		}
		if err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	if len(r.Results) > 0 && r.Results[0].Remark != "" {
		a.notef("warning: %s", r.Results[0].Remark)
	}
	if a.json {
		return a.object(r)
	}
	if err := a.writeAll(r.Text()); err != nil {
		return err
	}
	if page != nil {
		a.notef("the page is in %s", page.Name())
	}
	return nil
}
