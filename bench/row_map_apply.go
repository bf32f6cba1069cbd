package main

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/floor"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

// stopwatch is a store that takes the time in which its follower takes a change.
type stopwatch struct {
	rmap.Store
	took []time.Duration // written by whoever writes to the map, since its store calls followers inside of a write
}

// Follow puts the stopwatch between.
func (s *stopwatch) Follow(name string, f rmap.Follower) (rmap.Feed, error) {
	return s.Store.Follow(name, timed{f, s})
}

type timed struct {
	rmap.Follower
	watch *stopwatch
}

func (t timed) Changed(c rmap.Change) {
	start := time.Now()
	t.Follower.Changed(c)
	t.watch.took = append(t.watch.took, time.Since(start))
}

// mapApply is what a change of one key costs each process that has a copy.
func mapApply() row {
	r := row{name: mapPrefix + "-apply", title: fmt.Sprintf("One change applied to a copy of %d keys", mapMany)}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		const few = ours + ", few keys"
		own, err := e.appliesOurs(ctx, ours, mapMany)
		if err != nil {
			return nil, nil, err
		}
		small, err := e.appliesOurs(ctx, few, mapFew)
		if err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{own, small, appliesFloor()}, Ours: ours, Peer: plain, Value: rounds.Median, Unit: "median µs", Smaller: true,
			Pairs: []rounds.Pair{{Ours: ours, Peer: few}},
		}, e.shorter())
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{
			{What: "median time of a change, upper quartile", Unit: "µs", Got: res.Arm(ours).Value.High, Reach: 20, Smaller: true},
			{What: "p99 of the time of a change, upper quartile", Unit: "µs", Got: res.Arm(ours).P99.High, Reach: 20, Smaller: true},
		}, nil
	}
	return r
}

// appliesOurs writes key after key to a map in this process, and counts what its copy
// takes of that.
func (e *env) appliesOurs(ctx context.Context, name string, n int) (rounds.Arm, error) {
	watch := &stopwatch{Store: rmaplocal.New(rmaplocal.Options{})}
	e.later(func() error { watch.Store.(*rmaplocal.Store).Close(); return nil })
	m, err := rmap.Join(ctx, watch, mapName, rmap.Options[string, string]{})
	if err != nil {
		return rounds.Arm{}, err
	}
	e.later(func() error { m.Close(); return nil })
	keys := mapKeys(n)
	if err := fillMap(ctx, m, keys, func(i int) string { return mapText(keys[i], 0) }); err != nil {
		return rounds.Arm{}, err
	}
	write := 0
	return rounds.Arm{
		Name: name, Setting: fmt.Sprintf("%d keys, 1 writer, no connection; the time is that of the copy alone, after the change was parsed", n),
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			watch.took = make([]time.Duration, 0, 1+int(d/time.Microsecond))
			start := time.Now()
			for time.Since(start) < d {
				write++
				key := keys[write%n]
				if _, err := m.Set(ctx, key, mapText(key, write)); err != nil {
					return rounds.Sample{}, err
				}
			}
			return rounds.Sample{Ops: len(watch.took), Elapsed: time.Since(start), Latency: watch.took}, nil
		},
		Check: func(_ context.Context, s *rounds.Sample) error {
			if key := keys[write%n]; s.Ops > 0 {
				if v, ok := m.Get(key); v != mapText(key, write) {
					return rounds.Wrong("after write %d there is %.24q, %t under %q", write, v, ok, key)
				}
			}
			return allTexts(keys, m.Len(), m.Get)
		},
	}, nil
}

// appliesFloor does the same to the plain map.
func appliesFloor() rounds.Arm {
	keys := mapKeys(mapMany)
	entries := make(map[string]string)
	for _, k := range keys {
		entries[k] = mapText(k, 0)
	}
	m, write := floor.Of(entries), 0
	return rounds.Arm{
		Name: plain, Setting: fmt.Sprintf("%d keys, 1 writer, no connection; parses the message as well", len(keys)),
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			var took []time.Duration
			start := time.Now()
			for time.Since(start) < d {
				write++
				key := keys[write%len(keys)]
				message := floor.Message(key, mapText(key, write))
				at := time.Now()
				m.Apply(message)
				took = append(took, time.Since(at))
			}
			return rounds.Sample{Ops: len(took), Elapsed: time.Since(start), Latency: took}, ctx.Err()
		},
		Check: func(context.Context, *rounds.Sample) error { return allTexts(keys, m.Len(), m.Get) },
	}
}
