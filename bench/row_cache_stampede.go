package main

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

const (
	stampeding = 1000 // readers of one key
	processes  = 4    // that they are in

	loadsOfKey = "loads of a key"
)

// cacheStampede is how long readers wait for a value that one of them loads.
func cacheStampede() row {
	r := row{
		name:  cachePrefix + "-stampede",
		title: fmt.Sprintf("%d readers in %d processes ask at once for a key that nobody has, and a load takes %v", stampeding, processes, loadTakes),
	}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		s, err := e.startRedis(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		own, err := e.startCacheReaders(ctx, ours, processes, s.addr)
		if err != nil {
			return nil, nil, err
		}
		peer, err := e.startCacheReaders(ctx, groupCache, processes, "")
		if err != nil {
			return nil, nil, err
		}
		a := stampede(ours, "over Redis, 1 connection, and 1 for the invalidations in each process", own)
		a.PIDs = append(a.PIDs, s.process.PID())
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{a, stampede(groupCache, "over HTTP between the processes, connections kept", peer)},
			Ours: ours, Peer: groupCache, Value: rounds.Median, Unit: "median µs", Smaller: true,
			Pairs: []rounds.Pair{{Ours: ours, Peer: groupCache}},
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{
			{What: loadsOfKey + ", most", Got: res.Arm(ours).Facts[loadsOfKey].Most, Reach: 1, Smaller: true},
			{
				What: "median wait, more than groupcache's, upper quartile; the aim is its equal, within 2 ms", Unit: "ms",
				Got: res.Pair(ours, groupCache).More.High / 1000, Reach: 10, Aim: 2, Smaller: true,
			},
		}, nil
	}
	return r
}

// stampede makes an arm of one stampede after another, each of another key.
func stampede(name, setting string, readers []*cacheReader) rounds.Arm {
	a := rounds.Arm{
		Name:    name,
		Setting: fmt.Sprintf("%d readers in each of %d processes, %s; the time is from the start of all", stampeding/len(readers), len(readers), setting),
		Check:   func(context.Context, *rounds.Sample) error { return nil }, // each answer was checked
	}
	for _, r := range readers {
		a.PIDs = append(a.PIDs, r.process.PID())
	}
	key := 0
	a.Run = func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
		s := rounds.Sample{Facts: map[string]float64{}}
		start := time.Now()
		for time.Since(start) < d {
			now, err := clock()
			if err != nil {
				return s, err
			}
			key++
			c := rush{Key: fmt.Sprintf("key%0*d", mapKeyLen-3, key), Readers: stampeding / len(readers), At: now + int64(10*time.Millisecond)}
			took, loads, err := stampedeOf(c, readers)
			if err != nil {
				return s, err
			}
			s.Latency = append(s.Latency, took...)
			s.Facts[loadsOfKey] = max(s.Facts[loadsOfKey], float64(loads))
		}
		s.Ops, s.Elapsed = len(s.Latency), time.Since(start)
		return s, ctx.Err()
	}
	return a
}

func stampedeOf(c rush, readers []*cacheReader) (took []time.Duration, loads int64, err error) {
	for _, r := range readers {
		if err := r.tell(c); err != nil {
			return nil, 0, err
		}
	}
	for _, r := range readers {
		answer, err := r.hear()
		if err != nil {
			return nil, 0, err
		}
		took, loads = append(took, answer.Took...), loads+answer.Loads
	}
	if loads < 1 {
		return nil, 0, rounds.Wrong("%q was read without a load", c.Key)
	}
	return took, loads, nil
}
