package main

import (
	"context"
	"fmt"
	"runtime"

	"github.com/latchkey-go/latchkey/bench/internal/floor"
	"github.com/latchkey-go/latchkey/bench/internal/report"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// mapHeapRounds is how often each copy is made: the live heap hardly varies.
const mapHeapRounds = 5

// mapHeap is what a copy costs each process that has one.
func mapHeap() row {
	r := row{name: mapPrefix + "-heap", title: fmt.Sprintf("Live heap of a copy of %d keys", mapMany)}
	r.tables = func(ctx context.Context, e *env) (tables, error) {
		keys := mapKeys(e.dose(mapMany))
		s, err := e.startMapServer(ctx)
		if err != nil {
			return tables{}, err
		}
		own, err := s.ours(ctx, e, mapName, keys)
		if err != nil {
			return tables{}, err
		}
		own.Close()
		filler, err := floor.Join(ctx, s.client, mapName, nil)
		if err != nil {
			return tables{}, err
		}
		err = filler.Fill(ctx, keys, mapTexts(keys))
		filler.Close()
		if err != nil {
			return tables{}, err
		}
		data := make(map[string]rounds.Spread)
		t := report.Table{
			Title: "Bytes of a key", Head: []string{"", "live heap", "least", "most"},
			Text: fmt.Sprintf("After a collection, less what was live before the join, in %d joins of %d keys from Redis.", mapHeapRounds, len(keys)),
		}
		for _, c := range []struct {
			name string
			join func() (copied, error)
		}{
			{ours, func() (copied, error) { return s.join(ctx, mapName) }},
			{plain, func() (copied, error) { return floor.Join(ctx, s.client, mapName, nil) }},
		} {
			each, err := heapOf(keys, c.join)
			if err != nil {
				return tables{}, fmt.Errorf("%s: %w", c.name, err)
			}
			data[c.name] = each
			t.Lines = append(t.Lines, []string{c.name, report.Figure(each.Median), report.Figure(each.Least), report.Figure(each.Most)})
		}
		return tables{[]report.Table{t}, []rounds.Claim{{
			What: fmt.Sprintf("live heap of a key, of %d B of data, most", mapKeyLen+mapValLen), Unit: "B", Got: data[ours].Most, Reach: 230, Smaller: true,
		}}, data}, nil
	}
	return r
}

// heapOf joins again and again and returns the bytes of a key.
func heapOf(keys []string, join func() (copied, error)) (rounds.Spread, error) {
	var each []float64
	for range mapHeapRounds {
		before := liveHeap()
		m, err := join()
		if err != nil {
			return rounds.Spread{}, err
		}
		each = append(each, float64(int64(liveHeap()-before))/float64(len(keys)))
		err = allTexts(keys, m.Len(), m.Get)
		m.Close()
		if err != nil {
			return rounds.Spread{}, err
		}
	}
	return rounds.SpreadOf(each), nil
}

// liveHeap collects twice, so that what finalizers and pools held is gone as well.
func liveHeap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
