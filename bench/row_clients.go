package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/agent"
	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/lease"
)

// languages are the clients besides Go, by the names of their folders.
var languages = []string{"typescript", "python", "rust", "java"}

const (
	goClient  = "go"
	npmClient = "npm live-mutex, its own broker"
)

func clientsGroup() *report.Group {
	return &report.Group{
		Title: "Clients",
		Text: "Pairs of an acquire and a release by each client on a broker of its own, in memory, over one connection of loopback TCP. " +
			"Every client is a program of its own that is told what to do over its standard input, the Go client too; " +
			"the peer is the client of the npm package live-mutex on the broker of that package. " +
			"Our broker's counts must agree with what each client says that it did. The processor time of client and broker together is in the server's column.",
	}
}

func clientRows() []row { return []row{clientPairs(1), clientPairs(many)} }

// clientPairs compares the clients with so many callers.
func clientPairs(callers int) row {
	r := row{
		name: fmt.Sprintf("clients-%d", callers), group: clientsGroup(),
		title: fmt.Sprintf("Lock and unlock with %s in flight, by the clients of each language", plural(callers, "pair")),
	}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		root, err := moduleDir(ctx)
		if err != nil {
			return nil, nil, err
		}
		program := filepath.Join(e.dir, "agent-go")
		build := exec.CommandContext(ctx, "go", "build", "-o", program, "./clients/check/agent")
		build.Dir = root
		if text, err := build.CombinedOutput(); err != nil {
			return nil, nil, fmt.Errorf("build the Go client: %w: %s", err, text)
		}
		own, err := e.clientArm(ctx, goClient, callers, program)
		if err != nil {
			return nil, nil, err
		}
		arms := []rounds.Arm{own}
		for _, name := range languages {
			run := filepath.Join(root, "clients", name, "run")
			if err := setUp(ctx, name, run); err != nil {
				return nil, nil, err
			}
			arm, err := e.clientArm(ctx, name, callers, run, "agent")
			if err != nil {
				return nil, nil, err
			}
			arms = append(arms, arm)
		}
		peer, err := e.npmClientArm(ctx, callers)
		if err != nil {
			return nil, nil, err
		}
		row := rounds.Row{Arms: append(arms, peer), Ours: goClient, Peer: npmClient, Value: rounds.Rate, Unit: "pairs/s"}
		for _, name := range languages {
			row.Pairs = append(row.Pairs, rounds.Pair{Ours: name, Peer: goClient}, rounds.Pair{Ours: name, Peer: npmClient})
		}
		res, err := rounds.Run(ctx, row, e.rounds)
		return res, nil, err
	}
	return r
}

// released asks for programs as they are shipped, where a client also has a quicker build for its tests.
const released = "LATCHKEY_PROFILE=release"

// setUp installs and builds what a client needs, within its folder.
func setUp(ctx context.Context, name, run string) error {
	if text, err := exec.CommandContext(ctx, run, "toolchain").CombinedOutput(); err != nil {
		return leaveOut("the client for %s cannot be built here: %s", name, strings.TrimSpace(string(text)))
	}
	c := exec.CommandContext(ctx, run, "setup")
	c.Env = append(os.Environ(), released)
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("set up the client for %s: %w: %s", name, err, text)
	}
	return nil
}

// clientArm starts a broker and a client of it.
func (e *env) clientArm(ctx context.Context, name string, callers int, program string, args ...string) (rounds.Arm, error) {
	b, err := e.startBroker(ctx, false)
	if err != nil {
		return rounds.Arm{}, err
	}
	a, err := agent.Start(ctx, name, b.addr, []string{released}, program, args...)
	if err != nil {
		return rounds.Arm{}, err
	}
	e.later(a.Close)
	var before lease.Stats
	return rounds.Arm{
		Name: name, Setting: fmt.Sprintf("%s, 1 connection, %s", plural(callers, "caller"), b.durability()),
		PIDs: []int{b.process.PID(), a.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			var err error
			if before, err = b.service.Stats(ctx); err != nil {
				return rounds.Sample{}, err
			}
			return a.Run(ctx, callers, d)
		},
		Check: func(ctx context.Context, s *rounds.Sample) error {
			now, err := b.service.Stats(ctx)
			if err != nil {
				return err
			}
			return tallyOf(now).Since(tallyOf(before), s.Ops)
		},
	}, nil
}

func (e *env) npmClientArm(ctx context.Context, callers int) (rounds.Arm, error) {
	b, err := e.lmxNPM(ctx, npmBroker)
	if err != nil {
		return rounds.Arm{}, err
	}
	script := filepath.Join(e.npm, "agent.js")
	if err := os.WriteFile(script, npmAgent, 0o600); err != nil {
		return rounds.Arm{}, err
	}
	a, err := agent.Start(ctx, npmBroker, b.addr, nil, "node", script)
	if err != nil {
		return rounds.Arm{}, err
	}
	e.later(a.Close)
	return rounds.Arm{
		Name: npmClient, Setting: fmt.Sprintf("%s, 1 connection, %s", plural(callers, "caller"), b.setting),
		PIDs:  []int{b.process.PID(), a.PID()},
		Run:   func(ctx context.Context, d time.Duration) (rounds.Sample, error) { return a.Run(ctx, callers, d) },
		Check: func(context.Context, *rounds.Sample) error { return nil }, // it has no counts to compare with
	}, nil
}
