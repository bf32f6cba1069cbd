package main

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

const (
	npmBroker = "live-mutex"
	lmxHeld   = 20_000 // keys held in the row about them
)

// liveMutex is the group of the rows in which our broker and that of the npm
// package serve the same clients.
func liveMutex() *report.Group {
	return &report.Group{
		Title: "live-mutex dialect",
		Text: "Raw pairs of a lock and an unlock in the live-mutex wire protocol over loopback TCP, on our broker and on the npm package's own. " +
			"The driver is the same for both and sends what the JavaScript client sends: a version frame, then for each hold a lock, " +
			"lock-received when the grant comes, and an unlock, with as many frames in one write as there are. " +
			"In the contended row every 64th holder asks the broker something before it unlocks, in which time nobody else may get the key; " +
			"one echo round trip is the least that a hand-over takes, since the next holder must hear of its grant and say that it is done. " +
			"After each round every key is asked for and must be free, and our broker's own counts must agree.",
	}
}

// lmxRows are the loads without held keys.
func lmxRows() []row {
	reach := func(reach, aim float64) *rounds.Claim {
		return &rounds.Claim{What: "rate, of the npm package's broker", Unit: "×", Reach: reach, Aim: aim}
	}
	return []row{
		lmxPairs("lmx-1", "Lock and unlock on 1 connection, one after the other", lmxLoad{connections: 1, keys: 1}, nil),
		lmxPairs("lmx-64", "Lock and unlock with 64 in flight on 1 connection", lmxLoad{connections: 1, keys: many}, reach(1.5, 3)),
		lmxPairs("lmx-16", "Lock and unlock on 16 connections, each with a key of its own, one after the other", lmxLoad{connections: waiters, keys: 1}, nil),
		lmxPairs("lmx-contended", "Lock and unlock of one key wanted by 16 connections", lmxLoad{connections: waiters, keys: 1, contest: true}, reach(3, 6)),
		lmxKeysHeld(),
	}
}

// lmxPairs compares our broker with the npm package's under one load. Without a
// claim the row states a ratio and no target.
func lmxPairs(name, title string, l lmxLoad, claim *rounds.Claim) row {
	r := row{name: name, title: title, group: liveMutex()}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		peer, err := e.lmxNPM(ctx, npmBroker)
		if err != nil {
			return nil, nil, err
		}
		_, theirs, err := e.lmxArm(ctx, peer, l)
		if err != nil {
			return nil, nil, err
		}
		b, err := e.lmxOurs(ctx, ours)
		if err != nil {
			return nil, nil, err
		}
		own, arm, err := e.lmxArm(ctx, b, l)
		if err != nil {
			return nil, nil, err
		}
		arms := []rounds.Arm{arm, theirs}
		if l.contest {
			x, err := e.startEcho(ctx)
			if err != nil {
				return nil, nil, err
			}
			arms = append(arms, x.arm("one echo round trip", 1))
		}
		res, err := rounds.Run(ctx, rounds.Row{Arms: arms, Ours: ours, Peer: npmBroker, Value: rounds.Rate, Unit: "pairs/s"}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		var claims []rounds.Claim
		if claim != nil {
			c := *claim
			c.Got = res.Worse
			claims = append(claims, c)
		}
		if l.contest {
			claims = append(claims, evenGrants(ours, own.grants))
		}
		return res, claims, nil
	}
	return r
}

// lmxKeysHeld shows what keys that are held cost those that move.
func lmxKeysHeld() row {
	r := row{name: "lmx-held", group: liveMutex(), title: "Lock and unlock with 64 in flight on 1 connection while 20 000 other keys are held, against none held"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		const none = ", none held"
		var arms []rounds.Arm
		for _, start := range []struct {
			with func(context.Context, string) (*lmxBroker, error)
			name string
			held int
		}{
			{e.lmxNPM, npmBroker, e.dose(lmxHeld)},
			{e.lmxNPM, npmBroker + none, 0},
			{e.lmxOurs, ours, e.dose(lmxHeld)},
			{e.lmxOurs, ours + none, 0},
		} {
			b, err := start.with(ctx, start.name)
			if err != nil {
				return nil, nil, err
			}
			_, arm, err := e.lmxArm(ctx, b, lmxLoad{connections: 1, keys: many, held: start.held})
			if err != nil {
				return nil, nil, fmt.Errorf("%v: %w", b, err)
			}
			arms = append(arms, arm)
		}
		res, err := rounds.Run(ctx, rounds.Row{Arms: arms, Ours: ours, Peer: ours + none, Value: rounds.Rate, Unit: "pairs/s"}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{What: "rate, of that with no key held", Unit: "×", Got: res.Worse, Reach: 0.85}}, nil
	}
	return r
}
