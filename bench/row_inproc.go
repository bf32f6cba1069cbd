package main

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/inproc"
	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/internal/held"
)

const (
	inprocPrefix = "inproc"             // of the names of these rows
	cellLength   = 4 * time.Millisecond // of a cell in one round
	pairLength   = 50 * time.Millisecond
	overlapping  = 16        // goroutines of the row about reruns
	passingKeys  = 1_000_000 // of the row about memory
)

// inProcess is the group of the rows in which nothing leaves this process.
func inProcess() *report.Group {
	return &report.Group{
		Title: "Between goroutines",
		Text: "Prices of sharing state between goroutines of one process, by stm, locked and actor, by the standard library and by other packages, " +
			"with the detection of nested locks switched on. A figure is wall time for each operation that any goroutine finished; " +
			"one indirect call, which every subject pays, is part of it. All goroutines are ready before the clock starts, and after each round " +
			"what is stored is compared with what was done, so that a lost update voids the table. A cell runs for 4 ms a round. " +
			"The record that is read and replaced has 24 bytes, and replacing it depends on what it was; a map has 16 keys, each a text of 12 bytes. " +
			"Two cores show prices, and whether sharing costs anything; they do not show how anything behaves on many.\n\n" +
			"These are the prices on your machine, in about three minutes:\n\n```sh\ncd bench && go run . --only inproc\n```",
	}
}

func inprocRows() []row {
	rows := []row{
		inprocTable(inproc.Read, "Read a record"),
		inprocTable(inproc.Write, "Replace a record by the one after it"),
		inprocTable(inproc.Mix, "Nine reads of a record, then a write"),
		inprocTable(inproc.Increment, "Add one to a number"),
		inprocTorn(), inprocReruns(), inprocMemory(),
	}
	for i := range rows {
		rows[i].group, rows[i].inProcess = inProcess(), true
	}
	return rows
}

// detecting refuses to measure what nobody runs: ours without its detection.
func detecting() error {
	if !held.Detecting() {
		return leaveOut("nested locks are not detected on this system, so that the prices would be too low")
	}
	return nil
}

func inprocTable(op inproc.Op, title string) row {
	r := row{name: inprocPrefix + "-" + op.String(), title: title}
	r.tables = func(ctx context.Context, e *env) (tables, error) {
		if err := detecting(); err != nil {
			return tables{}, err
		}
		o := inproc.Options{Rounds: e.rounds.Rounds, Length: min(cellLength, e.rounds.Length), Seed: e.rounds.Seed, Progress: e.rounds.Progress}
		if e.quick {
			o.Length = cellLength / 8
		}
		t, err := inproc.Measure(ctx, inproc.Subjects(), op, o)
		if err != nil {
			return tables{}, err
		}
		return tables{t.Tables(), t.Claims(), t.Figures}, nil
	}
	return r
}

// shorter are the options of rows that need no more than some milliseconds a round.
func (e *env) shorter() rounds.Options {
	o := e.rounds
	o.Length = min(o.Length, pairLength)
	return o
}

func inprocTorn() row {
	r := row{name: inprocPrefix + "-torn", title: "Half of another transaction, seen inside of one: two variables that are equal whenever no transaction is half done"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		if err := detecting(); err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: inproc.Torn(), Ours: inproc.OurSTM, Peer: inproc.PeerSTM, Value: rounds.Rate, Unit: "transactions/s",
		}, e.shorter())
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{
			What: "torn pairs of a round, most (" + inproc.OurSTM + ")", Smaller: true,
			Got: res.Arm(inproc.OurSTM).Facts[inproc.TornPairs].Most,
		}}, nil
	}
	return r
}

func inprocReruns() row {
	r := row{name: inprocPrefix + "-reruns", title: fmt.Sprintf("Add one to one variable in transactions of %d goroutines that yield in their middle", overlapping)}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		if err := detecting(); err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: inproc.Reruns(overlapping), Ours: inproc.OurSTM, Peer: inproc.PeerSTM, Value: rounds.Rate, Unit: "commits/s",
		}, e.shorter())
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{
			What: inproc.BodyRuns + ", upper quartile", Reach: 2, Smaller: true,
			Got: res.Arm(inproc.OurSTM).Facts[inproc.BodyRuns].High,
		}}, nil
	}
	return r
}

func inprocMemory() row {
	r := row{name: inprocPrefix + "-memory", title: "Memory of maps after a million keys came and went"}
	r.tables = func(ctx context.Context, e *env) (tables, error) {
		m, err := inproc.MeasureMemory(ctx, e.dose(passingKeys))
		if err != nil {
			return tables{}, err
		}
		return tables{[]report.Table{inproc.MemoryTable(m)}, inproc.MemoryClaims(m), m}, nil
	}
	return r
}
