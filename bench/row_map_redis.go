package main

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/floor"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/rmap"
)

// mapSync is the price of being sure that nothing is missing, when nothing is.
func mapSync() row {
	r := row{name: mapPrefix + "-sync", title: fmt.Sprintf("Sync of a current copy of %d keys, against one round trip", mapMany)}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		const few, ping, hget = ours + ", few keys", "PING", "HGET"
		s, err := e.startMapServer(ctx)
		if err != nil {
			return nil, nil, err
		}
		large, err := s.ours(ctx, e, mapName, mapKeys(e.dose(mapMany)))
		if err != nil {
			return nil, nil, err
		}
		small, err := s.ours(ctx, e, mapName+"-few", mapKeys(10))
		if err != nil {
			return nil, nil, err
		}
		b := s.client.B()
		const probe = "bench:probe"
		if err := s.client.Do(ctx, b.Hset().Key(probe).FieldValue().FieldValue("field", "value").Build()).Error(); err != nil {
			return nil, nil, err
		}
		arms := []rounds.Arm{
			s.syncs(ours, large), s.syncs(few, small),
			s.asks(ping, func(ctx context.Context) (string, error) { return s.client.Do(ctx, b.Ping().Build()).ToString() }, "PONG"),
			s.asks(hget, func(ctx context.Context) (string, error) {
				return s.client.Do(ctx, b.Hget().Key(probe).Field("field").Build()).ToString()
			}, "value"),
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: arms, Ours: ours, Peer: ping, Value: rounds.Median, Unit: "median µs", Smaller: true,
			Pairs: []rounds.Pair{{Ours: few, Peer: ping}, {Ours: ours, Peer: few}, {Ours: ours, Peer: hget}},
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{
			{What: fmt.Sprintf("median time at %d keys, of a PING", large.Len()), Unit: "×", Got: res.Worse, Reach: 3, Smaller: true},
			{What: fmt.Sprintf("median time at %d keys, of a PING", small.Len()), Unit: "×", Got: res.Pair(few, ping).Worse, Reach: 3, Smaller: true},
		}, nil
	}
	return r
}

// syncs makes an arm of one Sync after another. None may find anything to read.
func (s *mapServer) syncs(name string, m *rmap.Map[string, string]) rounds.Arm {
	before := m.Stats()
	return rounds.Arm{
		Name: name, Setting: fmt.Sprintf("%d keys, 1 caller, 1 connection for the changes", m.Len()), PIDs: []int{s.process.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, 1, d, func(ctx context.Context, _ int) error { return m.Sync(ctx) })
		},
		Check: func(_ context.Context, sample *rounds.Sample) error {
			now := m.Stats()
			heads := now.Heads - before.Heads
			if heads < uint64(sample.Ops) {
				return rounds.Wrong("%d times it was synced, and asked %d times where the map stands", sample.Ops, heads)
			}
			if now.Reloads != before.Reloads || now.CaughtUp != before.CaughtUp {
				return rounds.Wrong("a current copy was read again: %+v", now)
			}
			before = now
			return nil
		},
	}
}

// asks makes an arm of one command after another.
func (s *mapServer) asks(name string, ask func(context.Context) (string, error), want string) rounds.Arm {
	return rounds.Arm{
		Name: name, Setting: "1 caller, 1 connection, the same client", PIDs: []int{s.process.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, 1, d, func(ctx context.Context, _ int) error {
				got, err := ask(ctx)
				if err == nil && got != want {
					return rounds.Wrong("%s was answered with %q", name, got)
				}
				return err
			})
		},
		Check: func(context.Context, *rounds.Sample) error { return nil }, // each answer was checked
	}
}

// mapSetKeys is how many keys the map has that is written to.
const mapSetKeys = 1000

// mapSet is the price of a write, for whoever waits for its answer.
func mapSet(writers int) row {
	r := row{name: fmt.Sprintf("%s-set-%d", mapPrefix, writers), title: fmt.Sprintf("Set by %s, against HSET and PUBLISH in one MULTI", plural(writers, "writer"))}
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
		before := own.Stats() // what began the map is a life that a copy reads anew
		arms := []rounds.Arm{
			s.sets(ours, keys[:writers], func(ctx context.Context, key, value string) error {
				_, err := own.Set(ctx, key, value)
				return err
			}, own.Get, own.Sync),
			p.sets(plain, keys[:writers], peer.Set, peer.Get, func(context.Context) error { return nil }),
		}
		res, err := rounds.Run(ctx, rounds.Row{Arms: arms, Ours: ours, Peer: plain, Value: rounds.Median, Unit: "median µs", Smaller: true}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		if n := own.Stats(); n.Strange != before.Strange || n.Unreadable+n.Losses > 0 || n.Reloads != before.Reloads {
			return nil, nil, rounds.Wrong("changes were lost: %+v", n)
		}
		return res, []rounds.Claim{{What: "median time, of the plain map", Unit: "×", Got: res.Worse, Reach: 1.5, Smaller: true}}, nil
	}
	return r
}

// sets makes an arm in which each writer writes to a key of its own. Afterwards the copy
// of this process must show the last write to each.
func (s *mapServer) sets(name string, keys []string, set func(ctx context.Context, key, value string) error,
	get func(string) (string, bool), sync func(context.Context) error,
) rounds.Arm {
	written := make([]int, len(keys))
	return rounds.Arm{
		Name: name, PIDs: []int{s.process.PID()},
		Setting: fmt.Sprintf("%s, %d keys, 1 connection for writes and 1 for the changes, a copy in the same process", plural(len(keys), "writer"), mapSetKeys),
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			return rounds.Callers(ctx, len(keys), d, func(ctx context.Context, i int) error {
				written[i]++
				return set(ctx, keys[i], mapText(keys[i], written[i]))
			})
		},
		Check: func(ctx context.Context, _ *rounds.Sample) error {
			if err := sync(ctx); err != nil {
				return err
			}
			return comes(ctx, func() error {
				for i, key := range keys {
					if v, ok := get(key); written[i] > 0 && v != mapText(key, written[i]) {
						return rounds.Wrong("after write %d there is %.24q, %t under %q", written[i], v, ok, key)
					}
				}
				return nil
			})
		},
	}
}

// comes waits until there is nothing wrong any more: the plain map cannot say when it
// is current. It returns what is still wrong after some seconds.
func comes(ctx context.Context, wrong func() error) error {
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	limit := time.Now().Add(5 * time.Second)
	for {
		err := wrong()
		if err == nil || time.Now().After(limit) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// mapJoin is how long a process waits for its copy.
func mapJoin() row {
	r := row{name: mapPrefix + "-join", title: fmt.Sprintf("Join of a map of %d keys, against HGETALL into a Go map", mapMany)}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		keys := mapKeys(e.dose(mapMany))
		s, err := e.startMapServer(ctx)
		if err != nil {
			return nil, nil, err
		}
		own, err := s.ours(ctx, e, mapName, keys)
		if err != nil {
			return nil, nil, err
		}
		own.Close() // the copies that are measured are the only ones
		p, err := e.startMapServer(ctx)
		if err != nil {
			return nil, nil, err
		}
		filler, err := floor.Join(ctx, p.client, mapName, nil)
		if err != nil {
			return nil, nil, err
		}
		err = filler.Fill(ctx, keys, mapTexts(keys))
		filler.Close()
		if err != nil {
			return nil, nil, err
		}
		arms := []rounds.Arm{
			s.joins(ours, keys, func(ctx context.Context) (copied, error) { return s.join(ctx, mapName) }),
			p.joins(plain, keys, func(ctx context.Context) (copied, error) { return floor.Join(ctx, p.client, mapName, nil) }),
		}
		res, err := rounds.Run(ctx, rounds.Row{Arms: arms, Ours: ours, Peer: plain, Value: rounds.Median, Unit: "median µs", Smaller: true}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{{What: "median time, of the plain map", Unit: "×", Got: res.Worse, Reach: 1.25, Smaller: true}}, nil
	}
	return r
}

// copied is what both maps are when they are joined.
type copied interface {
	Get(key string) (string, bool)
	Len() int
	Close()
}

// joins makes an arm of one join after another. The last copy of a round is looked at
// as a whole, the others are counted.
func (s *mapServer) joins(name string, keys []string, join func(context.Context) (copied, error)) rounds.Arm {
	var last copied
	return rounds.Arm{
		Name: name, PIDs: []int{s.process.PID()},
		Setting: fmt.Sprintf("%d keys, 1 connection for reading and 1 for the changes, connected before", len(keys)),
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			var took []time.Duration
			start := time.Now()
			for time.Since(start) < d {
				if last != nil {
					last.Close()
					last = nil
				}
				at := time.Now()
				m, err := join(ctx)
				if err != nil {
					return rounds.Sample{}, err
				}
				took = append(took, time.Since(at))
				if m.Len() != len(keys) {
					return rounds.Sample{}, rounds.Wrong("the copy has %d entries, not %d", m.Len(), len(keys))
				}
				last = m
			}
			return rounds.Sample{Ops: len(took), Elapsed: time.Since(start), Latency: took}, nil
		},
		Check: func(context.Context, *rounds.Sample) error {
			err := allTexts(keys, last.Len(), last.Get)
			last.Close()
			last = nil
			return err
		},
	}
}
