package main

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/hotcache"
)

const (
	bareOtter   = "otter"
	clientCache = "rueidis client-side cache"
	asideSteps  = "rueidisaside's steps"
)

// cacheHit is the price of a read that this process's memory answers.
func cacheHit(readers int) row {
	name := cachePrefix + "-hit"
	if readers > 1 {
		name += fmt.Sprintf("-%d", readers)
	}
	r := row{name: name, title: fmt.Sprintf("Read a value that this process has in its memory, %s, against a bare otter cache and the client-side cache of rueidis", plural(readers, "reader"))}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		keys := mapKeys(cacheKeys)
		own, err := e.memoryHits(ctx, keys, readers)
		if err != nil {
			return nil, nil, err
		}
		side, aside, err := e.clientSideHits(ctx, keys, readers)
		if err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{own, otterHits(keys, readers), side, aside},
			Ours: ours, Peer: bareOtter, Value: rounds.Each, Unit: "ns a read", Smaller: true,
			Pairs: []rounds.Pair{{Ours: ours, Peer: bareOtter}, {Ours: ours, Peer: asideSteps}},
		}, e.shorter())
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{
			{What: objects + ", upper quartile", Got: res.Arm(ours).Facts[objects].High, Reach: 0.001, Smaller: true},
			{
				What: "time of a read, more than of otter, upper quartile; the aim is 0.3 of otter's", Unit: "ns",
				Got: res.Pair(ours, bareOtter).More.High, Reach: 60, Aim: 0.3 * res.Arm(bareOtter).Value.Median, Smaller: true,
			},
			{What: "time of a read, of what rueidisaside does for one", Unit: "×", Got: res.Pair(ours, asideSteps).Worse, Reach: 0.25, Smaller: true},
		}, nil
	}
	return r
}

func (e *env) memoryHits(ctx context.Context, keys []string, readers int) (rounds.Arm, error) {
	t, _, err := e.startTexts(ctx, hotcache.Options[string, string]{})
	if err != nil {
		return rounds.Arm{}, err
	}
	if err := warm(ctx, keys, t.Get); err != nil {
		return rounds.Arm{}, err
	}
	t.began()
	a := hits(ours, fmt.Sprintf("%s, %d keys, 1 node, its default options", plural(readers, "reader"), len(keys)), keys, readers, t.Get)
	a.PIDs = []int{t.server.process.PID()}
	// A proof that comes late on a busy machine has reads go to the home until it is there.
	a.Check = func(_ context.Context, s *rounds.Sample) error { return t.answered(fromMemory, s.Ops, s.Ops/1000) }
	return a, nil
}

func otterHits(keys []string, readers int) rounds.Arm {
	c := otter.Must(&otter.Options[string, string]{MaximumSize: 10_000})
	for _, k := range keys {
		c.Set(k, mapText(k, 0))
	}
	a := hits(bareOtter, fmt.Sprintf("%s, %d keys, GetIfPresent, at most 10 000 entries, no connection", plural(readers, "reader"), len(keys)), keys, readers,
		func(_ context.Context, key string) (string, error) {
			v, ok := c.GetIfPresent(key)
			if !ok {
				return "", rounds.Wrong("otter has no %q", key)
			}
			return v, nil
		})
	a.Check = func(context.Context, *rounds.Sample) error { return nil } // each read was checked
	return a
}

// clientSideHits makes two arms: the client-side cache of rueidis alone, and with what rueidisaside does on top of it for
// a hit. The latter is a context with a deadline, and a channel for the key to wait by, which is looked up in a map behind
// a mutex. The module of that name is not to be had from the module proxy, so these steps stand for it.
func (e *env) clientSideHits(ctx context.Context, keys []string, readers int) (bare, aside rounds.Arm, err error) {
	s, err := e.startRedis(ctx, false)
	if err != nil {
		return bare, aside, err
	}
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.addr}, ForceSingleClient: true, PipelineMultiplex: -1})
	if err != nil {
		return bare, aside, fmt.Errorf("redis: %w", err)
	}
	e.later(func() error { c.Close(); return nil })
	for _, k := range keys {
		if err := c.Do(ctx, c.B().Set().Key(k).Value(mapText(k, 0)).Ex(time.Hour).Build()).Error(); err != nil {
			return bare, aside, fmt.Errorf("redis: %w", err)
		}
	}
	warmed := false
	get := func(ctx context.Context, key string) (string, error) {
		r := c.DoCache(ctx, c.B().Get().Key(key).Cache(), time.Hour)
		if warmed && !r.IsCacheHit() {
			return "", rounds.Wrong("%q was not in the client-side cache", key)
		}
		return r.ToString()
	}
	if err := warm(ctx, keys, get); err != nil {
		return bare, aside, err
	}
	warmed = true
	setting := fmt.Sprintf("%s, %d keys, 1 connection", plural(readers, "reader"), len(keys))
	bare = hits(clientCache, setting+", DoCache", keys, readers, get)
	w := &waitList{channels: map[string]chan struct{}{}}
	aside = hits(asideSteps, setting+", DoCache under a deadline, and a channel to wait by from a locked map, which is what the library does for a hit", keys, readers,
		func(ctx context.Context, key string) (string, error) {
			ctx, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			w.of(key)
			return get(ctx, key)
		})
	for _, a := range []*rounds.Arm{&bare, &aside} {
		a.PIDs = []int{s.process.PID()}
		a.Check = func(context.Context, *rounds.Sample) error { return nil } // each read was checked
	}
	return bare, aside, nil
}

// waitList has a channel for every key that somebody may wait for.
type waitList struct {
	mu       sync.Mutex // guards channels
	channels map[string]chan struct{}
}

func (w *waitList) of(key string) chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := w.channels[key]
	if !ok {
		c = make(chan struct{})
		w.channels[key] = c
	}
	return c
}

// hits makes an arm of readers who read all keys in turn, each from another key on. The clock is read once in a batch.
func hits(name, setting string, keys []string, readers int, get func(context.Context, string) (string, error)) rounds.Arm {
	const batch = 1 << 9
	each := make([][]string, readers)
	for i := range each {
		each[i] = mapKeys(len(keys)) // other texts, as those are that come with a request
		each[i] = turned(each[i], i*len(keys)/readers)
	}
	read := func(ctx context.Context, keys []string, start time.Time, d time.Duration) (int, error) {
		at, ops := 0, 0
		for time.Since(start) < d {
			for range batch {
				v, err := get(ctx, keys[at])
				if err != nil {
					return ops, err
				}
				if err := isText(keys[at], v, true); err != nil {
					return ops, err
				}
				if at++; at == len(keys) {
					at = 0
				}
			}
			ops += batch
		}
		return ops, ctx.Err()
	}
	return rounds.Arm{
		Name: name, Setting: setting,
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			ops, errs := make([]int, readers), make([]error, readers)
			start := time.Now()
			var all sync.WaitGroup
			for i := 1; i < readers; i++ {
				all.Go(func() { ops[i], errs[i] = read(ctx, each[i], start, d) })
			}
			ops[0], errs[0] = read(ctx, each[0], start, d)
			all.Wait()
			s := rounds.Sample{Elapsed: time.Since(start)}
			runtime.ReadMemStats(&after)
			for i := range readers {
				s.Ops += ops[i]
				if errs[i] != nil {
					return rounds.Sample{}, errs[i]
				}
			}
			s.Facts = map[string]float64{objects: float64(after.Mallocs-before.Mallocs) / float64(max(s.Ops, 1))}
			return s, nil
		},
	}
}
