package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/rmap"
)

const (
	mapPrefix = "map"   // of the names of these rows
	mapName   = "bench" // of the map in its store
	mapFew    = 100     // keys of the small map
	mapMany   = 100_000 // keys of the large one
	mapKeyLen = 11      // bytes of a key
	mapValLen = 100     // bytes of a value
	plain     = "plain map"
)

// replicated is the group of the rows about the replicated map.
func replicated() *report.Group {
	return &report.Group{
		Title: "Replicated map",
		Text: "A map that every process has a copy of, kept current by Redis, against the least that does the same while nothing goes wrong: " +
			"the plain map is HSET and PUBLISH in one MULTI, a subscription that a goroutine applies to a Go map behind a lock, and no recovery from anything. " +
			"It uses the same client library with the same options, a Redis server of its own, and one connection for the subscription, as ours does. " +
			fmt.Sprintf("Keys have %d bytes and values %d, where nothing else is said. ", mapKeyLen, mapValLen) +
			"Every value that is read says which key it belongs to and which write it is of, and after each round the copies are compared with what was written.",
	}
}

func mapRows() []row {
	rows := []row{
		mapGet(mapFew), mapGet(mapMany), mapSnapshot(), mapApply(), mapSync(), mapReload(),
		mapSet(1), mapSet(waiters), mapPropagate(), mapJoin(), mapHeap(),
	}
	for i := range rows {
		rows[i].group, rows[i].inProcess = replicated(), true
	}
	return rows
}

// mapKeys returns keys in an order that no map has them in.
func mapKeys(n int) []string {
	keys := make([]string, n)
	for i, k := range rand.New(rand.NewPCG(1, 2)).Perm(n) {
		keys[i] = fmt.Sprintf("key%0*d", mapKeyLen-3, k)
	}
	return keys
}

// mapText is the value that a write has for a key. Its beginning says so.
func mapText(key string, write int) string {
	head := fmt.Sprintf("%s/%09d/", key, write)
	return head + strings.Repeat("x", mapValLen-len(head))
}

// mapTexts are the first values of keys.
func mapTexts(keys []string) []string {
	texts := make([]string, len(keys))
	for i, k := range keys {
		texts[i] = mapText(k, 0)
	}
	return texts
}

// isText judges a value that was read.
func isText(key, value string, ok bool) error {
	if !ok || len(value) != mapValLen || !strings.HasPrefix(value, key) {
		return rounds.Wrong("under %q there is %.24q, %t", key, value, ok)
	}
	return nil
}

// allTexts judges a whole copy: as many entries as keys, each of its key.
func allTexts(keys []string, n int, get func(string) (string, bool)) error {
	if n != len(keys) {
		return rounds.Wrong("the copy has %d entries, not %d", n, len(keys))
	}
	for _, k := range keys {
		v, ok := get(k)
		if err := isText(k, v, ok); err != nil {
			return err
		}
	}
	return nil
}

// fillMap writes many entries of a map in as few writes as that takes.
func fillMap[V any](ctx context.Context, m *rmap.Map[string, V], keys []string, value func(i int) V) error {
	for from := 0; from < len(keys); from += rmap.MaxOps {
		b := m.Batch()
		for i := from; i < min(from+rmap.MaxOps, len(keys)); i++ {
			b.Set(keys[i], value(i))
		}
		if _, err := b.Write(ctx); err != nil {
			return err
		}
	}
	return m.Sync(ctx)
}
