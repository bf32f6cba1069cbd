package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

const (
	ours  = "latchkey"
	many  = 64 // callers of the rows with many
	redis = "redis"
)

// memoryOne is the price of one lock at a time against the least that two round
// trips cost.
func memoryOne() row {
	r := row{name: "memory-1", title: "Lock and unlock by one caller, in memory, against two bare round trips"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		b, err := e.startBroker(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		l, err := b.lockers(ctx, e, 1)
		if err != nil {
			return nil, nil, err
		}
		x, err := e.startEcho(ctx)
		if err != nil {
			return nil, nil, err
		}
		peer, err := e.redisArm(ctx, false, redis, 1, 1)
		if err != nil {
			return nil, nil, err
		}
		const echoes = "two echo round trips"
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{l.arm(ours, ""), x.arm(echoes, 2), peer},
			Ours: ours, Peer: echoes, Value: rounds.Rate, Unit: "pairs/s",
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{What: "rate, of two bare round trips", Unit: "×", Got: res.Worse, Reach: 0.6, Aim: 0.8}}, nil
	}
	return r
}

// memoryMany is throughput over one connection.
func memoryMany() row {
	r := row{name: "memory-64", title: "Lock and unlock by 64 callers over one connection, in memory, against Redis"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		res, err := e.againstRedis(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{What: "rate, of Redis through rueidis", Unit: "×", Got: res.Worse, Reach: 1.5, Aim: 3}}, nil
	}
	return r
}

// durableMany is group commit against group commit.
func durableMany() row {
	r := row{name: "durable-64", title: "Lock and unlock by 64 callers over one connection, synced before every answer, against Redis"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		res, err := e.againstRedis(ctx, true)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{What: "rate, of Redis with appendfsync always through rueidis", Unit: "×", Got: res.Worse, Reach: 0.7, Aim: 1}}, nil
	}
	return r
}

// againstRedis runs many callers on a broker and on Redis, both over one
// connection, and shows Redis over the library's usual four as well.
func (e *env) againstRedis(ctx context.Context, durable bool) (*rounds.Result, error) {
	b, err := e.startBroker(ctx, durable)
	if err != nil {
		return nil, err
	}
	l, err := b.lockers(ctx, e, many)
	if err != nil {
		return nil, err
	}
	one, err := e.redisArm(ctx, durable, redis, 1, many)
	if err != nil {
		return nil, err
	}
	four, err := e.redisArm(ctx, durable, redis+", 4 connections", 4, many)
	if err != nil {
		return nil, err
	}
	return rounds.Run(ctx, rounds.Row{
		Arms: []rounds.Arm{l.arm(ours, ""), one, four},
		Ours: ours, Peer: redis, Value: rounds.Rate, Unit: "pairs/s",
	}, e.rounds)
}

// redisArm starts a Redis for one arm alone, so that its count of commands is
// the arm's.
func (e *env) redisArm(ctx context.Context, durable bool, name string, connections, callers int) (rounds.Arm, error) {
	s, err := e.startRedis(ctx, durable)
	if err != nil {
		return rounds.Arm{}, err
	}
	c, err := s.dial(ctx, e, connections, callers)
	if err != nil {
		return rounds.Arm{}, err
	}
	return s.arm(c, name, connections), nil
}

// durableOne is the price of durability for one caller: two syncs, of the lock
// and of the unlock.
func durableOne() row {
	r := row{name: "durable-1", title: "Lock and unlock by one caller, synced before every answer, against two bare syncs"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		b, err := e.startBroker(ctx, true)
		if err != nil {
			return nil, nil, err
		}
		l, err := b.lockers(ctx, e, 1)
		if err != nil {
			return nil, nil, err
		}
		d, err := e.openDisk()
		if err != nil {
			return nil, nil, err
		}
		peer, err := e.redisArm(ctx, true, redis, 1, 1)
		if err != nil {
			return nil, nil, err
		}
		const syncs = "two fdatasyncs"
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{l.arm(ours, ""), d.arm(syncs, 2), peer},
			Ours: ours, Peer: syncs, Value: rounds.Rate, Unit: "pairs/s",
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, b.journalClaims(res), nil
	}
	return r
}

// slackSyncs lets a new segment or a snapshot sync now and then.
const slackSyncs = 0.02

func (b *broker) journalClaims(res *rounds.Result) []rounds.Claim {
	return []rounds.Claim{
		{What: "syncs a pair, upper quartile", Got: res.Arm(ours).Facts[syncsPerPair].High, Reach: 2 + slackSyncs, Smaller: true},
		{What: "journal file allocated beyond its last record", Unit: "B", Got: float64(b.ahead()), Reach: 1},
	}
}

// ahead is how many bytes the newest segment of the journal occupies beyond the
// last byte that was written to it: above zero when it is preallocated.
func (b *broker) ahead() int64 {
	segments, err := filepath.Glob(filepath.Join(b.data, "*.log"))
	if err != nil || len(segments) == 0 {
		return 0
	}
	newest := slices.Max(segments)
	text, err := os.ReadFile(newest)
	if err != nil {
		return 0
	}
	return process.Allocated(newest) - int64(len(bytes.TrimRight(text, "\x00")))
}
