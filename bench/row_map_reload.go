package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/floor"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/rmap"
)

// mapReload is what readers feel while the copy is read anew as a whole.
func mapReload() row {
	r := row{name: mapPrefix + "-reload", title: fmt.Sprintf("The longest of 64 reads in a row, while a map of %d keys is read anew, against the same without that", mapMany)}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		const rest, other = ours + ", at rest", ours + ", another map is read anew"
		keys := mapKeys(e.dose(mapMany))
		s, err := e.startMapServer(ctx)
		if err != nil {
			return nil, nil, err
		}
		own, err := s.ours(ctx, e, mapName, keys)
		if err != nil {
			return nil, nil, err
		}
		second, err := s.ours(ctx, e, mapName+"-other", keys)
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
		mine, its := &reloader{s, own, keys, 0}, &reloader{s, second, keys, 0}
		arms := []rounds.Arm{
			s.reads(ours, "the map is read anew all the time", keys, own.Get, mine.reload),
			s.reads(rest, "nothing else happens", keys, own.Get, nil),
			s.reads(other, "another map of this process is read anew all the time", keys, own.Get, its.reload),
			p.reads(plain, "HGETALL under its lock all the time", keys, peer.Get, (&plainReloader{p, peer, keys, 0}).reload),
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: arms, Ours: ours, Peer: plain, Value: rounds.Tail, Unit: "p99 µs", Smaller: true,
			Pairs: []rounds.Pair{{Ours: ours, Peer: rest}, {Ours: ours, Peer: other}},
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		p99, longest := res.Pair(ours, rest).More.High/1000, res.Pair(ours, rest).Longest.High/1000
		return res, []rounds.Claim{
			{What: "p99 of the longest of 64 reads beyond that at rest in the same round, upper quartile", Unit: "ms", Got: p99, Reach: 1, Smaller: true},
			{What: "the longest read beyond that at rest in the same round, upper quartile", Unit: "ms", Got: longest, Reach: 1, Smaller: true},
		}, nil
	}
	return r
}

// reads makes an arm that reads now and then, as a service does that is not at its
// limit: 64 reads, then a pause of 100 µs. Meanwhile reload is called again and again.
func (s *mapServer) reads(name, meanwhile string, keys []string, get func(string) (string, bool), reload func(context.Context) error) rounds.Arm {
	return rounds.Arm{
		Name: name, PIDs: []int{s.process.PID()},
		Setting: fmt.Sprintf("%d keys, 1 reader that pauses for 100 µs after 64 reads; %s", len(keys), meanwhile),
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			done, n := make(chan error, 1), 0
			start := time.Now()
			go func() { // ends with the last reload that begins before d has passed
				var err error
				for reload != nil && err == nil && time.Since(start) < d {
					err = reload(ctx)
					n++
				}
				done <- err
			}()
			var longest []time.Duration
			for at, over := 0, false; !over; {
				l, err := longestRead(keys, &at, get)
				if err != nil {
					return rounds.Sample{}, err
				}
				longest = append(longest, l)
				time.Sleep(100 * time.Microsecond)
				if reload == nil {
					over = time.Since(start) >= d
					continue
				}
				select {
				case err := <-done:
					if err != nil {
						return rounds.Sample{}, err
					}
					over = true
				default:
				}
			}
			out := rounds.Sample{Ops: len(longest), Elapsed: time.Since(start), Latency: longest}
			if reload != nil {
				out.Facts = map[string]float64{"ms to read it anew": out.Elapsed.Seconds() * 1000 / float64(n)}
			}
			return out, nil
		},
		Check: func(context.Context, *rounds.Sample) error { return nil }, // each read and each reload was checked
	}
}

// longestRead reads 64 keys and returns how long the longest read took.
func longestRead(keys []string, at *int, get func(string) (string, bool)) (time.Duration, error) {
	var longest time.Duration
	before := time.Now()
	for range 64 {
		key := keys[*at]
		v, ok := get(key)
		now := time.Now()
		longest = max(longest, now.Sub(before))
		if err := isText(key, v, ok); err != nil {
			return 0, err
		}
		if *at++; *at == len(keys) {
			*at = 0
		}
		before = time.Now()
	}
	return longest, nil
}

// reloader makes a copy of ours read the whole map anew.
type reloader struct {
	server *mapServer
	copy   *rmap.Map[string, string]
	keys   []string
	write  int
}

// reload makes a change that nobody is told of and that no log has, so that nothing but
// the whole map will do, and has the copy notice.
func (r *reloader) reload(ctx context.Context) error {
	c, hash := r.server.client, "latchkey:map:{"+r.copy.Name()+"}"
	head, err := c.Do(ctx, c.B().Hget().Key(hash).Field("").Build()).ToString()
	if err != nil {
		return fmt.Errorf("read the header: %w", err)
	}
	words := strings.Fields(head)
	if len(words) != 9 || words[0] != "1" {
		return fmt.Errorf("the header %q is not of the version that this row knows", head)
	}
	number, err := strconv.ParseUint(words[2], 10, 64)
	if err != nil {
		return fmt.Errorf("the header %q: %w", head, err)
	}
	words[2], words[3] = strconv.FormatUint(number+1, 10), fmt.Sprintf("%016x", rand.Uint64()|1)
	r.write++
	key := r.keys[r.write%len(r.keys)]
	entry := words[2] + "." + words[3] + "::p" + mapText(key, r.write)
	for _, a := range c.DoMulti(ctx, c.B().Multi().Build(),
		c.B().Hset().Key(hash).FieldValue().FieldValue("", strings.Join(words, " ")).FieldValue(key, entry).Build(),
		c.B().Del().Key(hash+":log").Build(), c.B().Exec().Build()) {
		if err := a.Error(); err != nil {
			return fmt.Errorf("change it in silence: %w", err)
		}
	}
	before := r.copy.Stats().Reloaded(rmap.ReloadGap)
	if err := r.copy.Sync(ctx); err != nil {
		return err
	}
	if n := r.copy.Stats().Reloaded(rmap.ReloadGap) - before; n != 1 {
		return rounds.Wrong("one silent change, and %d reloads", n)
	}
	if v, ok := r.copy.Get(key); v != mapText(key, r.write) || r.copy.Len() != len(r.keys) {
		return rounds.Wrong("after write %d there is %.24q, %t under %q, of %d entries", r.write, v, ok, key, r.copy.Len())
	}
	return nil
}

// plainReloader does the same to a plain map, which must be told.
type plainReloader struct {
	server *mapServer
	copy   *floor.Map
	keys   []string
	write  int
}

func (r *plainReloader) reload(ctx context.Context) error {
	r.write++
	key := r.keys[r.write%len(r.keys)]
	set := r.server.client.B().Hset().Key(mapName).FieldValue().FieldValue(key, mapText(key, r.write)).Build()
	if err := r.server.client.Do(ctx, set).Error(); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if err := r.copy.Reload(ctx); err != nil {
		return err
	}
	if v, ok := r.copy.Get(key); v != mapText(key, r.write) || r.copy.Len() != len(r.keys) {
		return rounds.Wrong("after write %d there is %.24q, %t under %q, of %d entries", r.write, v, ok, key, r.copy.Len())
	}
	return nil
}
