package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheredis"
)

const (
	staleCaches  = 4 // and as many writers
	staleReaders = 4 // of each cache
	staleKeys    = 8
	replicaLag   = 20 * time.Millisecond
	writePause   = 10 * time.Millisecond // of each writer
	readPause    = 500 * time.Microsecond

	asideName    = "cache-aside"
	staleReads   = "stale reads, %"
	leftStale    = "keys left stale"
	longestWrite = "longest write, ms"
	fromMain     = "loads from the primary, %"
)

// cacheStale is how often a read that begins after a write has finished gets what was before it.
func cacheStale() row {
	r := row{
		name: cachePrefix + "-stale",
		title: fmt.Sprintf("Reads that get less than the last finished write: %d caches, %d readers each, %d writers at %d keys with %v between their writes, a replica %v behind",
			staleCaches, staleReaders, staleCaches, staleKeys, writePause, replicaLag),
	}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		own, err := e.staleOurs(ctx)
		if err != nil {
			return nil, nil, err
		}
		peer, err := e.staleAside(ctx)
		if err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{own, peer}, Ours: ours, Value: func(d rounds.Digest) float64 { return d.Facts[staleReads] },
			Unit: staleReads, Smaller: true,
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		facts := res.Arm(ours).Facts
		return res, []rounds.Claim{
			{What: "stale reads, most", Unit: "%", Got: facts[staleReads].Most, Smaller: true},
			{What: leftStale + ", most", Got: facts[leftStale].Most, Smaller: true},
		}, nil
	}
	return r
}

// lagging is a database in this process: rows that are versions only, and a replica that has each a while later.
type lagging struct {
	rows [staleKeys]laggingRow
	main atomic.Int64 // loads that went to the primary
	all  atomic.Int64
}

type laggingRow struct {
	mu       sync.Mutex // guards what follows
	version  uint64
	replica  uint64
	pending  []change // what the replica has not yet
	finished atomic.Uint64
}

type change struct {
	version uint64
	at      time.Time
}

// newLagging returns one whose rows have version 1: 0 would be none.
func newLagging() *lagging {
	l := new(lagging)
	for i := range l.rows {
		l.rows[i].version, l.rows[i].replica = 1, 1
		l.rows[i].finished.Store(1)
	}
	return l
}

func (l *lagging) write(i int) uint64 {
	r := &l.rows[i]
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	r.pending = append(r.pending, change{r.version, time.Now()})
	return r.version
}

func (l *lagging) read(i int, primary bool) uint64 {
	l.all.Add(1)
	r := &l.rows[i]
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.pending) > 0 && time.Since(r.pending[0].at) >= replicaLag {
		r.replica, r.pending = r.pending[0].version, r.pending[1:]
	}
	if primary {
		l.main.Add(1)
		return r.version
	}
	return r.replica
}

// A staleSide is one of the caches that are compared: how one process reads a row, and what it does after a write.
type staleSide struct {
	read  func(ctx context.Context, i int) (uint64, error)
	wrote func(ctx context.Context, i int, version uint64) error
}

// staleKey names row i, and staleIndex is its inverse.
func staleKey(i int) string { return "row" + strconv.Itoa(i) }

func staleIndex(key string) (int, error) { return strconv.Atoi(key[len("row"):]) }

func (e *env) staleOurs(ctx context.Context) (rounds.Arm, error) {
	s, err := e.startRedis(ctx, false)
	if err != nil {
		return rounds.Arm{}, err
	}
	db := newLagging()
	load := func(_ context.Context, key string, min hotcache.Version) (int, hotcache.Version, error) {
		i, err := staleIndex(key)
		if err != nil {
			return 0, 0, err
		}
		v := db.read(i, min > 0)
		return int(v), hotcache.Version(v), nil
	}
	var sides []staleSide
	for range staleCaches {
		node, err := hotcacheredis.Open(ctx, "redis://"+s.addr, hotcacheredis.Options{})
		if err != nil {
			return rounds.Arm{}, err
		}
		e.later(func() error { node.Close(); return nil })
		c, err := hotcache.New(load, hotcache.Options[string, int]{Nodes: []hotcache.NamedNode{{Name: "redis", Node: node}}})
		if err != nil {
			return rounds.Arm{}, err
		}
		e.later(func() error { c.Close(); return nil })
		if err := stands(ctx, c.Sync); err != nil {
			return rounds.Arm{}, err
		}
		sides = append(sides, staleSide{
			read: func(ctx context.Context, i int) (uint64, error) {
				v, err := c.Get(ctx, staleKey(i))
				return uint64(v), err
			},
			wrote: func(ctx context.Context, i int, version uint64) error {
				return c.Invalidate(ctx, staleKey(i), hotcache.Version(version))
			},
		})
	}
	return staleArm(ours, "memory on, strict", s, db, sides), nil
}

// staleAside is what most programs do: GET, else load and SET; after a write, DEL. Its reads come from Redis alone.
func (e *env) staleAside(ctx context.Context) (rounds.Arm, error) {
	s, err := e.startRedis(ctx, false)
	if err != nil {
		return rounds.Arm{}, err
	}
	db := newLagging()
	var sides []staleSide
	for range staleCaches {
		c, err := mapClient(s.addr)
		if err != nil {
			return rounds.Arm{}, err
		}
		e.later(func() error { c.Close(); return nil })
		sides = append(sides, staleSide{
			read: func(ctx context.Context, i int) (uint64, error) {
				v, err := c.Do(ctx, c.B().Get().Key(staleKey(i)).Build()).AsUint64()
				if !rueidis.IsRedisNil(err) {
					return v, err
				}
				v = db.read(i, false)
				return v, c.Do(ctx, c.B().Set().Key(staleKey(i)).Value(strconv.FormatUint(v, 10)).Ex(5*time.Minute).Build()).Error()
			},
			wrote: func(ctx context.Context, i int, _ uint64) error {
				return c.Do(ctx, c.B().Del().Key(staleKey(i)).Build()).Error()
			},
		})
	}
	return staleArm(asideName, "no memory: GET, else load, SET with 5 minutes to live; after a write DEL", s, db, sides), nil
}

// staleArm makes an arm of reads and writes at a pace.
func staleArm(name, setting string, s *redisServer, db *lagging, sides []staleSide) rounds.Arm {
	return rounds.Arm{
		Name: name, Setting: fmt.Sprintf("%d caches, each with its own connections to 1 Redis, %s", len(sides), setting), PIDs: []int{s.process.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			var all sync.WaitGroup
			var stale, made, waited, longest atomic.Int64
			took := make([][]time.Duration, len(sides)*staleReaders)
			loads, main := db.all.Load(), db.main.Load()
			start := time.Now()
			work := func(pause time.Duration, do func(n int) error) {
				all.Go(func() {
					for n := 0; time.Since(start) < d && ctx.Err() == nil; n++ {
						if err := do(n); err != nil {
							cancel(err)
						}
						time.Sleep(pause)
					}
				})
			}
			for at, side := range sides {
				work(writePause, func(n int) error { // each row has one writer
					i := at + len(sides)*(n%(staleKeys/len(sides)))
					made.Add(1)
					took, err := db.finish(ctx, side, i)
					if took >= trusted {
						waited.Add(1)
					}
					for old := longest.Load(); int64(took) > old && !longest.CompareAndSwap(old, int64(took)); old = longest.Load() {
					}
					return err
				})
				for r := range staleReaders {
					work(readPause, func(n int) error {
						i := (n + r + at) % staleKeys
						finished, start := db.rows[i].finished.Load(), time.Now()
						v, err := side.read(ctx, i)
						if v < finished {
							stale.Add(1)
						}
						took[at*staleReaders+r] = append(took[at*staleReaders+r], time.Since(start))
						return err
					})
				}
			}
			all.Wait()
			out := rounds.Sample{Elapsed: time.Since(start), Latency: slices.Concat(took...)}
			out.Ops = len(out.Latency)
			out.Facts = map[string]float64{
				staleReads: 100 * float64(stale.Load()) / float64(max(out.Ops, 1)), writes: float64(made.Load()) / out.Elapsed.Seconds(),
				late: float64(waited.Load()), longestWrite: float64(longest.Load()) / 1e6, fromMain: 100 * float64(db.main.Load()-main) / float64(max(db.all.Load()-loads, 1)),
			}
			if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
				return out, err
			}
			return out, ctx.Err()
		},
		Check: func(ctx context.Context, s *rounds.Sample) error { return db.quiet(ctx, s, sides) },
	}
}

// finish writes a row and does what has to be done after it, and tells how long that took.
func (l *lagging) finish(ctx context.Context, side staleSide, i int) (time.Duration, error) {
	v := l.write(i)
	start := time.Now()
	if err := side.wrote(ctx, i, v); err != nil {
		return 0, err
	}
	l.rows[i].finished.Store(v)
	return time.Since(start), nil
}

// quiet waits until the replica has everything, and counts who still gets something else. What is ahead of the last
// write is a wrong answer.
func (l *lagging) quiet(ctx context.Context, s *rounds.Sample, sides []staleSide) error {
	time.Sleep(2 * replicaLag)
	left := 0
	for i := range l.rows {
		last := l.rows[i].finished.Load()
		for _, side := range sides {
			v, err := side.read(ctx, i)
			if err != nil {
				return err
			}
			if v > last {
				return rounds.Wrong("row %d has version %d, and %d was read", i, last, v)
			}
			if v < last {
				left++
			}
		}
	}
	s.Facts[leftStale] = float64(left)
	return nil
}
