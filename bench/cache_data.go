package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheredis"
)

const (
	cachePrefix = "cache" // of the names of these rows
	cacheKeys   = 1000    // keys that are read in turn
	fromMemory  = "memory"
	fromHome    = "home"
)

// cached is the group of the rows about the cache.
func cached() *report.Group {
	return &report.Group{
		Title: "Cache",
		Text: "The read-through cache over a Redis server without persistence, with its invalidations, its proofs of being current and its counting of hot keys on, as it is by default. " +
			"Every arm has a Redis server of its own, where it needs one, and talks to it through rueidis. " +
			fmt.Sprintf("Keys have %d bytes and values %d, where nothing else is said. ", mapKeyLen, mapValLen) +
			"Every value that is read says which key it belongs to, and after each round it is counted where the answers came from.",
	}
}

func cacheRows() []row {
	rows := []row{
		cacheHit(1), cacheHit(2), cacheHome(1), cacheHome(many), cacheStampede(), cacheInvalidate(1), cacheInvalidate(4), cacheStale(), cacheSim(),
	}
	for i := range rows {
		rows[i].group, rows[i].inProcess = cached(), true
	}
	return rows
}

// textOf is a loader of first values, for rows in which nothing changes.
func textOf(_ context.Context, key string, _ hotcache.Version) (string, hotcache.Version, error) {
	return mapText(key, 0), 1, nil
}

// texts is a cache with what it is over.
type texts struct {
	*hotcache.Cache[string, string]
	server *redisServer
	before hotcache.Stats
}

// startTexts starts a Redis with a cache over it, which is ready.
func (e *env) startTexts(ctx context.Context, o hotcache.Options[string, string]) (*texts, rueidis.Client, error) {
	s, err := e.startRedis(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	client, err := mapClient(s.addr)
	if err != nil {
		return nil, nil, err
	}
	e.later(func() error { client.Close(); return nil })
	node, err := hotcacheredis.New(client, hotcacheredis.Options{})
	if err != nil {
		return nil, nil, err
	}
	e.later(func() error { node.Close(); return nil })
	o.Nodes = []hotcache.NamedNode{{Name: "redis", Node: node}}
	c, err := hotcache.New(textOf, o)
	if err != nil {
		return nil, nil, err
	}
	e.later(func() error { c.Close(); return nil })
	t := &texts{Cache: c, server: s}
	return t, client, stands(ctx, c.Sync)
}

// stands waits until the feed of a cache is up.
func stands(ctx context.Context, sync func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		err := sync(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// warm reads every key, twice, so that whatever keeps values has them.
func warm(ctx context.Context, keys []string, get func(context.Context, string) (string, error)) error {
	for range 2 {
		for _, k := range keys {
			v, err := get(ctx, k)
			if err == nil {
				err = isText(k, v, true)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// answered checks that of so many reads all, but for slack of them, came from one place, and that none was loaded.
func (t *texts) answered(from string, ops, slack int) error {
	now := t.Stats()
	before := t.before
	t.before = now
	if n := int(now.Reads[from] - before.Reads[from]); n > ops || n < ops-slack {
		return rounds.Wrong("of %d reads %d came from %s", ops, n, from)
	}
	if before.Reads != nil && now.Loads != before.Loads {
		return rounds.Wrong("%d reads were loaded", now.Loads-before.Loads)
	}
	return nil
}

// began forgets what was counted until now.
func (t *texts) began() { t.before = t.Stats() }

// turned returns keys from a place on, so that several readers are not at the same key.
func turned(keys []string, at int) []string { return slices.Concat(keys[at:], keys[:at]) }
