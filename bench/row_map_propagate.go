package main

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// mapPropagate is how long after the call of a write another process can read it.
func mapPropagate() row {
	r := row{name: mapPrefix + "-propagate", title: "From the call of Set to the first read of the value in another process"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		keys := mapKeys(mapSetKeys)
		s, err := e.startMapServer(ctx)
		if err != nil {
			return nil, nil, err
		}
		own, err := s.ours(ctx, e, mapName, keys)
		if err != nil {
			return nil, nil, err
		}
		p, err := e.startMapServer(ctx)
		if err != nil {
			return nil, nil, err
		}
		peer, err := p.plain(ctx, e, keys)
		if err != nil {
			return nil, nil, err
		}
		mine, err := s.reaches(ctx, e, ours, func(ctx context.Context, key, value string) error {
			_, err := own.Set(ctx, key, value)
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		theirs, err := p.reaches(ctx, e, plain, peer.Set)
		if err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{mine, theirs}, Ours: ours, Peer: plain, Value: rounds.Median, Unit: "median µs", Smaller: true,
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{What: "median time, of the plain map", Unit: "×", Got: res.Worse, Reach: 1.25, Smaller: true}}, nil
	}
	return r
}

// reaches makes an arm of one write after another, each of which another process has
// to see before the next.
func (s *mapServer) reaches(ctx context.Context, e *env, name string, set func(ctx context.Context, key, value string) error) (rounds.Arm, error) {
	reader, err := e.startMapReader(ctx, name, s.addr)
	if err != nil {
		return rounds.Arm{}, err
	}
	key, write := watchedKey(), 0
	return rounds.Arm{
		Name: name, PIDs: []int{s.process.PID(), reader.process.PID()},
		Setting: fmt.Sprintf("1 writer, %d keys, a copy in each of 2 processes, each with 1 connection for the changes; the reader is told of a change and then reads", mapSetKeys),
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			var took []time.Duration
			start := time.Now()
			for time.Since(start) < d {
				write++
				sent, err := clock()
				if err != nil {
					return rounds.Sample{}, err
				}
				if err := set(ctx, key, mapText(key, write)); err != nil {
					return rounds.Sample{}, err
				}
				seen, err := reader.see(write)
				if err != nil {
					return rounds.Sample{}, err
				}
				if seen.at <= sent {
					return rounds.Sample{}, rounds.Wrong("write %d was seen %d ns before it was made", write, sent-seen.at)
				}
				took = append(took, time.Duration(seen.at-sent))
			}
			return rounds.Sample{Ops: len(took), Elapsed: time.Since(start), Latency: took}, nil
		},
		Check: func(context.Context, *rounds.Sample) error { return nil }, // each write was seen
	}, nil
}
