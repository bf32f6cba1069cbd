package hotcacheprom_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcacheprom"
)

// A source says what the test wants, so that every number in the text can be another one.
type source struct {
	stats hotcache.Stats
	lag   []hotcache.Lag
}

func (s *source) Stats() hotcache.Stats { return s.stats }
func (s *source) Lag() []hotcache.Lag   { return s.lag }

func registry(t *testing.T, c prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestText compares all that there is to see with a file, and has Prometheus' own rules for names applied to it.
func TestText(t *testing.T) {
	s := &source{
		stats: hotcache.Stats{
			Reads: map[string]uint64{"memory": 1, "home": 2, "shed": 3}, Loads: 9, LoadErrors: 4, LoadTime: 1500 * time.Millisecond,
			RefusedLease: 6, RefusedFloor: 7, Invalidations: 8, Losses: 10, Dropped: 11, MemoryEntries: 12, MemoryEvicted: 13,
			NodeErrors: map[string]uint64{"a": 14, "b": 15}, NodeReads: map[string]uint64{"a": 16, "b": 17},
			StuckLoads: 24, HotKeys: 18, HotSamples: 19, HotMissed: 20, HotSent: 21, HotHeard: 22, HotBroken: 23,
		},
		lag: []hotcache.Lag{{Node: "a", Trusted: true, Age: 250 * time.Millisecond}, {Node: "b", Out: true}},
	}
	c := hotcacheprom.New()
	if err := c.Add("prices", s); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	r := registry(t, c)
	if err := testutil.GatherAndCompare(r, strings.NewReader(string(want))); err != nil {
		t.Error(err)
	}
	problems, err := testutil.GatherAndLint(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestAddAndRemove(t *testing.T) {
	a, b := &source{}, &source{}
	c := hotcacheprom.New()
	r := registry(t, c)
	count := func(want int) {
		t.Helper()
		n, err := testutil.GatherAndCount(r, "latchkey_cache_hot_keys")
		if err != nil || n != want {
			t.Errorf("%d caches are shown, want %d; %v", n, want, err)
		}
	}
	count(0)
	for _, err := range []error{c.Add("a", a), c.Add("b", b), c.Add("a", a)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	count(2)
	if err := c.Add("a", b); !errors.Is(err, hotcacheprom.ErrDuplicate) || !strings.Contains(err.Error(), `"a"`) {
		t.Errorf("another cache under the same name: %v", err)
	}
	for name, s := range map[string]hotcacheprom.Source{"": a, "nothing": nil} {
		if err := c.Add(name, s); !errors.Is(err, hotcacheprom.ErrInvalid) {
			t.Errorf("name %q, cache %v: %v", name, s, err)
		}
	}
	c.Remove("a")
	c.Remove("never added")
	count(1)
	if err := c.Add("a", b); err != nil {
		t.Error(err)
	}
	count(2)
}

// TestCache has a real cache, while it is used and when it is closed.
func TestCache(t *testing.T) {
	load := func(_ context.Context, key string, _ hotcache.Version) (string, hotcache.Version, error) {
		if key == "broken" {
			return "", 0, errors.New("no connection")
		}
		return "value of " + key, 1, nil
	}
	cache, err := hotcache.New(load, hotcache.Options[string, string]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	c := hotcacheprom.New()
	if err := c.Add("texts", cache); err != nil {
		t.Fatal(err)
	}
	r := registry(t, c)
	if err := cache.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.Get(t.Context(), "broken"); err == nil {
		t.Fatal("a load that fails has no error")
	}
	for range 3 {
		if _, err := cache.Get(t.Context(), "a secret key"); err != nil {
			t.Fatal(err)
		}
	}
	want := `# HELP latchkey_cache_loads_total Calls of the loader. A row that does not exist is no failure.
# TYPE latchkey_cache_loads_total counter
latchkey_cache_loads_total{cache="texts",result="failed"} 1
latchkey_cache_loads_total{cache="texts",result="loaded"} 1
`
	for range 2 {
		if err := testutil.GatherAndCompare(r, strings.NewReader(want), "latchkey_cache_loads_total"); err != nil {
			t.Error(err)
		}
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if text := f.String(); strings.Contains(text, "secret") || strings.Contains(text, "no connection") {
				t.Errorf("a key or an error is in %s", text)
			}
		}
		cache.Close()
	}
}
