package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/hotcache/sim"
)

// simReads is how many reads each world of the simulator has.
const simReads = 800_000

// cacheSim is what copies of hot keys do to nodes and database, and whether a lost message is noticed. It is counted in
// a simulation, which gives the same every time, so there are no rounds.
func cacheSim() row {
	r := row{name: cachePrefix + "-sim", title: fmt.Sprintf("In the simulator, %d reads: the load of nodes with copies of hot keys and without, database reads for that, and lost invalidations", simReads)}
	r.tables = func(ctx context.Context, e *env) (tables, error) {
		even, claims, data, err := e.simEven(ctx)
		if err != nil {
			return tables{}, err
		}
		lost, more, result, err := e.simLost(ctx)
		if err != nil {
			return tables{}, err
		}
		data["lost"] = result
		return tables{[]report.Table{even, lost}, append(claims, more...), data}, nil
	}
	return r
}

// simWorld is the world of this row: no memory in the servers, so that the nodes have to bear all reads.
func (e *env) simWorld() sim.Config {
	cfg := sim.Defaults()
	cfg.Reads, cfg.L1 = e.dose(simReads), false
	return cfg
}

func (e *env) simEven(ctx context.Context) (report.Table, []rounds.Claim, map[string]*sim.Result, error) {
	cfg := e.simWorld()
	t := report.Table{
		Title: "Load of nodes",
		Head:  []string{"", "Zipf", "max/mean load", "database reads", "stale reads", "commands a write"},
		Text: fmt.Sprintf("%d servers without memory, %d nodes, %d keys, a write after %d reads, %d copies. The hand-written cache marks a key hot by its count, each server for itself, picks a copy at random, and fills each from the database.",
			cfg.Servers, cfg.Nodes, cfg.Keys, cfg.WriteEvery, cfg.Copies),
	}
	var claims []rounds.Claim
	data := map[string]*sim.Result{}
	for _, skew := range []struct{ is, reach, aim float64 }{{0.99, 1.2, 1.1}, {1.2, 1.35, 1.2}} {
		each := map[string]*sim.Result{}
		const with, without, source = ours + ", copies", ours + ", no copies", "written by hand, copies"
		for _, name := range []string{with, without, source} {
			c := cfg
			c.Skew, c.Replicate = skew.is, name != without
			if name == source {
				c.Policy = sim.Source
			}
			res, err := sim.Run(ctx, c)
			if err != nil {
				return t, nil, nil, fmt.Errorf("%s: %w", name, err)
			}
			if answered := res.Reads + res.Unanswered; name != source && (res.StaleReads > 0 || answered != uint64(c.Reads)) {
				return t, nil, nil, rounds.Wrong("%s: %d stale reads, %d of %d reads", name, res.StaleReads, answered, c.Reads)
			}
			each[name] = res
			zipf := strconv.FormatFloat(skew.is, 'g', -1, 64)
			data[name+", "+zipf] = res
			t.Lines = append(t.Lines, []string{
				name, zipf, fmt.Sprintf("%.2f", res.MaxMean), strconv.FormatUint(res.DBReads, 10), strconv.FormatUint(res.StaleReads, 10),
				fmt.Sprintf("%.1f", float64(res.Invalidations)/float64(max(res.Writes, 1))),
			})
		}
		claims = append(claims,
			rounds.Claim{
				What: fmt.Sprintf("load of the busiest of %d nodes, of the mean, Zipf %v", cfg.Nodes, skew.is), Unit: "×",
				Got: each[with].MaxMean, Reach: skew.reach, Aim: skew.aim, Smaller: true,
			},
			rounds.Claim{
				What: fmt.Sprintf("database reads with copies, of those without, Zipf %v", skew.is), Unit: "×",
				Got: float64(each[with].DBReads) / float64(max(each[without].DBReads, 1)), Reach: 1.02, Smaller: true,
			})
	}
	return t, claims, data, nil
}

// simLost drops messages about invalidations while memory is on: broadcasts at random, and all that one server would
// have heard, without telling it. Each must be noticed before memory is trusted again.
func (e *env) simLost(ctx context.Context) (report.Table, []rounds.Claim, *sim.Result, error) {
	cfg := e.simWorld()
	cfg.Reads, cfg.L1, cfg.WriteEvery = e.dose(simReads/4), true, 20
	length := float64(cfg.Reads) / cfg.Rate // seconds
	for _, f := range []string{fmt.Sprintf("lose@0s+%.3fs:0.2", length), fmt.Sprintf("cut@%.3fs+%.3fs:1", length/4, length/4)} {
		fault, err := sim.ParseFault(f)
		if err != nil {
			return report.Table{}, nil, nil, err
		}
		cfg.Faults = append(cfg.Faults, fault)
	}
	res, err := sim.Run(ctx, cfg)
	if err != nil {
		return report.Table{}, nil, nil, err
	}
	if res.StaleReads > 0 || res.LostHeard == 0 {
		return report.Table{}, nil, nil, rounds.Wrong("%d stale reads, %d broadcasts lost", res.StaleReads, res.LostHeard)
	}
	t := report.Table{
		Title: "Lost invalidations",
		Head:  []string{"", "messages lost", "broadcasts not heard", "noticed in time", "stale reads"},
		Text: fmt.Sprintf("%d reads by %d servers with memory, a write after %d; a fifth of the messages is lost, and one server hears nothing for a quarter of the time. Noticed in time is: within %v, for which memory may be trusted.",
			cfg.Reads, cfg.Servers, cfg.WriteEvery, cfg.Trust),
		Lines: [][]string{{ours, strconv.FormatUint(res.LostMessages, 10), strconv.FormatUint(res.LostHeard, 10),
			strconv.FormatUint(res.LostNoticed, 10), strconv.FormatUint(res.StaleReads, 10)}},
	}
	noticed := 100 * float64(res.LostNoticed) / float64(res.LostHeard)
	return t, []rounds.Claim{{What: "lost broadcasts that were noticed in time", Unit: "%", Got: noticed, Reach: 100}}, res, nil
}
