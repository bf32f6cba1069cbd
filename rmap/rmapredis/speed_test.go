package rmapredis

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
)

// BenchmarkWrite compares a write with the least that could be done in its place, HSET and PUBLISH in a transaction,
// in turns, and tells what the server needs for each.
func BenchmarkWrite(b *testing.B) {
	server := redistest.Start(b, redistest.Options{})
	s, err := Open(b.Context(), server.URL(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := strings.Repeat("v", 100)
	life := rmap.Lifetime{}
	w := rmap.Write{Lifetime: &life, MaxEntries: rmap.DefaultMaxEntries,
		Ops: []rmap.Op{{Do: rmap.DoSet, Key: "key:000001", Value: plain(data)}}}
	ours := func() {
		if _, err := s.Write(b.Context(), "m", w); err != nil {
			b.Fatal(err)
		}
	}
	floor := func() {
		c := s.client
		for _, r := range c.DoMulti(b.Context(), c.B().Multi().Build(),
			c.B().Hset().Key("floor").FieldValue().FieldValue("key:000001", data).Build(),
			c.B().Publish().Channel("floor").Message("key:000001"+data).Build(), c.B().Exec().Build()) {
			if err := r.Error(); err != nil && !rueidis.IsRedisNil(err) {
				b.Fatal(err)
			}
		}
	}
	ours()
	var took [2][]time.Duration
	for b.Loop() {
		for i, do := range []func(){ours, floor} {
			began := time.Now()
			for range 20 {
				do()
			}
			took[i] = append(took[i], time.Since(began)/20)
		}
	}
	for i := range took {
		slices.Sort(took[i])
	}
	quartile := func(i int) float64 { return float64(took[i][len(took[i])/4].Nanoseconds()) / 1000 }
	b.ReportMetric(quartile(0), "us/write")
	b.ReportMetric(quartile(1), "us/floor")
	b.ReportMetric(quartile(0)/quartile(1), "ratio")
	b.ReportMetric(0, "ns/op")
	for line := range strings.Lines(server.Text("INFO", "commandstats")) {
		if strings.Contains(line, "evalsha") || strings.Contains(line, "exec") {
			b.Log(strings.TrimSpace(line))
		}
	}
}
