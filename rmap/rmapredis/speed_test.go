package rmapredis

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
)

// BenchmarkWrite compares a write with the least that could be done in its place, HSET and PUBLISH in a transaction,
// in turns, and tells what the server needs for each. Both have a subscriber.
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
	feed, err := s.Follow("m", quiet{})
	if err != nil {
		b.Fatal(err)
	}
	defer feed.Close()
	sub, err := s.hub.Subscribe("floor", &keeper{kept: make(map[string]string)})
	if err != nil {
		b.Fatal(err)
	}
	defer sub.Close()
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
	report(b, took, 1e3, "us")
	for line := range strings.Lines(server.Text("INFO", "commandstats")) {
		if strings.Contains(line, "evalsha") || strings.Contains(line, "exec") {
			b.Log(strings.TrimSpace(line))
		}
	}
}

// quiet follows and does nothing.
type quiet struct{}

func (quiet) Up()                 {}
func (quiet) Changed(rmap.Change) {}
func (quiet) Unreadable(error)    {}
func (quiet) Down(error)          {}

// A keeper is the least that a copy can be.
type keeper struct {
	mu   sync.Mutex
	kept map[string]string
}

func (k *keeper) Up()        {}
func (k *keeper) Down(error) {}
func (k *keeper) Message(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[text[:10]] = text[10:]
}

// BenchmarkScan compares the reading of a map of 100 000 entries with that of a hash, in turns.
func BenchmarkScan(b *testing.B) {
	server := redistest.Start(b, redistest.Options{})
	s, err := Open(b.Context(), server.URL(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	data := strings.Repeat("v", 100)
	const batch = 500
	for i := 0; i < 100_000; i += batch {
		var w rmap.Write
		hset := s.client.B().Hset().Key("floor").FieldValue()
		for j := i; j < i+batch; j++ {
			key := fmt.Sprintf("key:%07d", j)
			w.Ops = append(w.Ops, rmap.Op{Do: rmap.DoSet, Key: key, Value: plain(data)})
			hset = hset.FieldValue(key, data)
		}
		if _, err := s.Write(b.Context(), "m", w); err != nil {
			b.Fatal(err)
		}
		if err := s.client.Do(b.Context(), hset.Build()).Error(); err != nil {
			b.Fatal(err)
		}
	}
	var took [2][]time.Duration
	for b.Loop() {
		for i, do := range []func() int{func() int {
			m := make(map[string]string)
			if err := s.Scan(b.Context(), "m", func(chunk []rmap.Entry) error {
				for _, e := range chunk {
					m[e.Key] = e.Value.Data
				}
				return nil
			}); err != nil {
				b.Fatal(err)
			}
			return len(m)
		}, func() int {
			m, err := s.client.Do(b.Context(), s.client.B().Hgetall().Key("floor").Build()).AsStrMap()
			if err != nil {
				b.Fatal(err)
			}
			return len(m)
		}} {
			began := time.Now()
			if n := do(); n != 100_000 {
				b.Fatalf("%d entries", n)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	report(b, took, 1e6, "ms")
}

// report tells the lower quartiles of both and their ratio.
func report(b *testing.B, took [2][]time.Duration, in float64, unit string) {
	var quartile [2]float64
	for i := range took {
		slices.Sort(took[i])
		quartile[i] = float64(took[i][len(took[i])/4].Nanoseconds()) / in
	}
	b.ReportMetric(quartile[0], unit+"/ours")
	b.ReportMetric(quartile[1], unit+"/floor")
	b.ReportMetric(quartile[0]/quartile[1], "ratio")
	b.ReportMetric(0, "ns/op")
}
