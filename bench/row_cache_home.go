package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/hotcache"
)

// cacheHome is the price of a read that the key's node answers.
func cacheHome(callers int) row {
	const get = "GET"
	r := row{
		name:  fmt.Sprintf("%s-home-%d", cachePrefix, callers),
		title: fmt.Sprintf("Read a value that Redis has, nothing kept in memory, %s, against a plain GET by the same client", plural(callers, "caller")),
	}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		keys := mapKeys(cacheKeys)
		t, client, err := e.startTexts(ctx, hotcache.Options[string, string]{MemoryEntries: -1})
		if err != nil {
			return nil, nil, err
		}
		if err := warm(ctx, keys, t.Get); err != nil {
			return nil, nil, err
		}
		t.began()
		for _, k := range keys {
			if err := client.Do(ctx, client.B().Set().Key(k).Value(mapText(k, 0)).Build()).Error(); err != nil {
				return nil, nil, fmt.Errorf("redis: %w", err)
			}
		}
		pids := []int{t.server.process.PID()}
		own := reads(ours, plural(callers, "caller")+", 1 connection, and 1 for the invalidations", keys, callers, pids, t.Get)
		// Callers who ask for the same key at the same moment are answered by one look.
		own.Check = func(_ context.Context, s *rounds.Sample) error { return t.answered(fromHome, s.Ops, 0) }
		peer := reads(get, plural(callers, "caller")+", the same client and connection", keys, callers, pids, func(ctx context.Context, key string) (string, error) {
			return client.Do(ctx, client.B().Get().Key(key).Build()).ToString()
		})
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{own, peer}, Ours: ours, Peer: get, Value: rounds.Median, Unit: "median µs", Smaller: true,
		}, e.rounds)
		return res, nil, err
	}
	return r
}

// reads makes an arm of callers who read one key after another.
func reads(name, setting string, keys []string, callers int, pids []int, get func(context.Context, string) (string, error)) rounds.Arm {
	at := make([]int, callers)
	for i := range at {
		at[i] = i * len(keys) / callers
	}
	return rounds.Arm{
		Name: name, Setting: setting, PIDs: pids,
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, callers, d, func(ctx context.Context, caller int) error {
				key := keys[at[caller]%len(keys)]
				at[caller]++
				v, err := get(ctx, key)
				if err != nil {
					return err
				}
				return isText(key, v, true)
			})
		},
		Check: func(context.Context, *rounds.Sample) error { return nil }, // each read was checked
	}
}

// plainDel is the peer of an invalidation.
const plainDel = "DEL"

// cacheInvalidate is the price of an invalidation, for whoever waits for it.
func cacheInvalidate(others int) row {
	const del16, bounded, ours16 = plainDel + ", 16 callers", ours + ", bounded", ours + ", 16 callers"
	r := row{
		name:  fmt.Sprintf("%s-invalidate-%d", cachePrefix, others),
		title: fmt.Sprintf("Invalidate while %s cache as well, all of which are waited for, against a plain DEL", pluralProcesses(others)),
	}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		strict, client, err := e.startTexts(ctx, hotcache.Options[string, string]{})
		if err != nil {
			return nil, nil, err
		}
		loose, _, err := e.startTexts(ctx, hotcache.Options[string, string]{Bounded: true})
		if err != nil {
			return nil, nil, err
		}
		var each [2][]int
		for i, t := range []*texts{strict, loose} {
			started, err := e.startCacheReaders(ctx, ours, others, t.server.addr)
			if err != nil {
				return nil, nil, err
			}
			each[i] = append(each[i], t.server.process.PID())
			for _, p := range started {
				each[i] = append(each[i], p.process.PID())
			}
		}
		setting := "1 connection, and 1 for the invalidations in each process, " + pluralProcesses(others)
		del := func(ctx context.Context, key string, _ hotcache.Version) error {
			return client.Do(ctx, client.B().Del().Key(key).Build()).Error()
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{
				strict.invalidates(ours, "1 caller, "+setting, 1, each[0], strict.Invalidate),
				strict.invalidates(ours16, "16 callers, "+setting, 16, each[0], strict.Invalidate),
				loose.invalidates(bounded, "1 caller, "+setting, 1, each[1], loose.Invalidate),
				strict.invalidates(plainDel, "1 caller, 1 connection", 1, each[0], del),
				strict.invalidates(del16, "16 callers, 1 connection", 16, each[0], del),
			},
			Ours: ours, Peer: plainDel, Value: rounds.Median, Unit: "median µs", Smaller: true,
			Pairs: []rounds.Pair{{Ours: bounded, Peer: plainDel}, {Ours: ours16, Peer: del16}},
		}, e.rounds)
		return res, nil, err
	}
	return r
}

func pluralProcesses(n int) string {
	if n == 1 {
		return "1 other process"
	}
	return fmt.Sprintf("%d other processes", n)
}

const (
	aSecond = "calls a second"
	late    = "calls that waited for as long as memory is trusted"

	trusted = 250 * time.Millisecond // the default: how long an invalidation takes when somebody does not answer
)

// invalidates makes an arm of one invalidation after another.
func (t *texts) invalidates(name, setting string, callers int, pids []int, invalidate func(context.Context, string, hotcache.Version) error) rounds.Arm {
	keys, version := mapKeys(cacheKeys), make([]int, callers)
	var before uint64
	return rounds.Arm{
		Name: name, Setting: setting, PIDs: pids,
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			before = t.Stats().Invalidations
			s, err := rounds.Callers(ctx, callers, d, func(ctx context.Context, caller int) error {
				version[caller]++
				return invalidate(ctx, keys[(caller+callers*version[caller])%len(keys)], hotcache.Version(version[caller]))
			})
			waited := 0
			for _, took := range s.Latency {
				if took >= trusted {
					waited++
				}
			}
			s.Facts = map[string]float64{aSecond: float64(s.Ops) / max(s.Elapsed.Seconds(), 1e-9), late: float64(waited)}
			return s, err
		},
		Check: func(ctx context.Context, s *rounds.Sample) error {
			if err := t.Sync(ctx); err != nil {
				return err
			}
			if n := t.Stats().Invalidations - before; !strings.HasPrefix(name, plainDel) && n != uint64(s.Ops) {
				return rounds.Wrong("%d invalidations were made, and %d heard", s.Ops, n)
			}
			return nil
		},
	}
}
