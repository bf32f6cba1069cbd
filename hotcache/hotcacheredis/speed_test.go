package hotcacheredis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// BenchmarkAsk compares a read that hits with a plain GET of as much, in turns, and tells what the server needs for
// each script.
func BenchmarkAsk(b *testing.B) {
	server := redistest.Start(b, redistest.Options{})
	n := open(b, server.URL(), Options{})
	ctx, c := b.Context(), n.client
	item := hotcache.Item{Version: 1, Data: []byte(strings.Repeat("v", 100))}
	a, err := n.Ask(ctx, hotcache.Ask{Key: "k", Token: 1})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := n.Fill(ctx, hotcache.Fill{Key: "k", Token: a.Token, Item: item, Times: hotcache.Times{Soft: time.Hour, Hard: time.Hour, Keep: time.Hour}}); err != nil {
		b.Fatal(err)
	}
	if err := c.Do(ctx, c.B().Set().Key("floor").Value(string(item.Data)).Build()).Error(); err != nil {
		b.Fatal(err)
	}
	do := []func() error{
		func() error { _, err := n.Ask(ctx, hotcache.Ask{Key: "k", Token: 2}); return err },
		func() error { return c.Do(ctx, c.B().Get().Key("floor").Build()).Error() },
		func() error { _, _, err := n.Invalidate(ctx, "j", 1, ""); return err },
		func() error { _, err := n.Ask(ctx, hotcache.Ask{Key: "i"}); return err },
	}
	took := make([][]time.Duration, len(do))
	server.Do("CONFIG", "RESETSTAT")
	spent := make([]int64, len(do))
	const each = 20
	for b.Loop() {
		for i, do := range do {
			before := usec(b, server)
			began := time.Now()
			for range each {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
			took[i] = append(took[i], time.Since(began)/each)
			spent[i] += usec(b, server) - before
		}
	}
	for i, name := range []string{"hit", "get", "invalidate", "miss"} {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/4].Nanoseconds())/1e3, name+"-us")
		b.ReportMetric(float64(spent[i])/float64(each*len(took[i])), name+"-server-us")
	}
}

// usec returns how long the server has worked on scripts.
func usec(b *testing.B, server *redistest.Server) int64 {
	for line := range strings.Lines(server.Text("INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_evalsha:"); ok {
			var n int64
			for part := range strings.SplitSeq(rest, ",") {
				if text, ok := strings.CutPrefix(part, "usec="); ok {
					for _, d := range text {
						n = n*10 + int64(d-'0')
					}
				}
			}
			return n
		}
	}
	return 0
}
