package rmapprom_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
	"github.com/latchkey-go/latchkey/rmap/rmapprom"
)

// A source says what the test wants, so that every number in the text can be another one.
type source struct {
	name  string
	stats rmap.Stats
	lag   rmap.Lag
}

func (s *source) Name() string      { return s.name }
func (s *source) Stats() rmap.Stats { return s.stats }
func (s *source) Lag() rmap.Lag     { return s.lag }

func registry(t *testing.T, c prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(c); err != nil {
		t.Fatal(err)
	}
	return r
}

const want = `# HELP latchkey_map_broken_entries Entries in the copy whose values did not decode.
# TYPE latchkey_map_broken_entries gauge
latchkey_map_broken_entries{map="flags"} 2
# HELP latchkey_map_catchups_total Times that missed changes were got from the store's change log.
# TYPE latchkey_map_catchups_total counter
latchkey_map_catchups_total{map="flags"} 10
# HELP latchkey_map_changes_total Changes applied.
# TYPE latchkey_map_changes_total counter
latchkey_map_changes_total{map="flags"} 3
# HELP latchkey_map_duplicates_total Changes ignored because the copy had them.
# TYPE latchkey_map_duplicates_total counter
latchkey_map_duplicates_total{map="flags"} 4
# HELP latchkey_map_entries Entries in the copy.
# TYPE latchkey_map_entries gauge
latchkey_map_entries{map="flags"} 1
# HELP latchkey_map_heads_total Times that the store was asked where the map stands.
# TYPE latchkey_map_heads_total counter
latchkey_map_heads_total{map="flags"} 9
# HELP latchkey_map_lag_seconds Time since the copy was last proved current: it shows every write that finished before.
# TYPE latchkey_map_lag_seconds gauge
latchkey_map_lag_seconds{map="flags"} 0.25
# HELP latchkey_map_last_reload_seconds How long the last reading of the whole map took.
# TYPE latchkey_map_last_reload_seconds gauge
latchkey_map_last_reload_seconds{map="flags"} 1.5
# HELP latchkey_map_losses_total Times that the subscription to the store was lost.
# TYPE latchkey_map_losses_total counter
latchkey_map_losses_total{map="flags"} 8
# HELP latchkey_map_reloads_total Times that the whole map was read, by cause.
# TYPE latchkey_map_reloads_total counter
latchkey_map_reloads_total{cause="gap",map="flags"} 22
latchkey_map_reloads_total{cause="generation",map="flags"} 23
latchkey_map_reloads_total{cause="join",map="flags"} 21
latchkey_map_reloads_total{cause="rollback",map="flags"} 24
# HELP latchkey_map_replayed_total Changes got from the store's change log.
# TYPE latchkey_map_replayed_total counter
latchkey_map_replayed_total{map="flags"} 11
# HELP latchkey_map_revision_number Number of the change that the copy stands at, within the present life of the map.
# TYPE latchkey_map_revision_number gauge
latchkey_map_revision_number{map="flags"} 42
# HELP latchkey_map_state 1 for the state of the copy, 0 for the others.
# TYPE latchkey_map_state gauge
latchkey_map_state{map="flags",state="catching up"} 0
latchkey_map_state{map="flags",state="closed"} 0
latchkey_map_state{map="flags",state="cut off"} 1
latchkey_map_state{map="flags",state="live"} 0
latchkey_map_state{map="flags",state="refused"} 0
# HELP latchkey_map_strange_total Changes that did not follow what the copy has: a gap, another life, a stray message.
# TYPE latchkey_map_strange_total counter
latchkey_map_strange_total{map="flags"} 5
# HELP latchkey_map_subscriber_dropped_total Events that subscribers did not get because they fell behind.
# TYPE latchkey_map_subscriber_dropped_total counter
latchkey_map_subscriber_dropped_total{map="flags"} 13
# HELP latchkey_map_subscriber_overflows_total Times that a subscriber fell behind and was told to read again.
# TYPE latchkey_map_subscriber_overflows_total counter
latchkey_map_subscriber_overflows_total{map="flags"} 12
# HELP latchkey_map_undecoded_total Keys and values that did not decode.
# TYPE latchkey_map_undecoded_total counter
latchkey_map_undecoded_total{map="flags"} 7
# HELP latchkey_map_unreadable_total Broadcasts that could not be read.
# TYPE latchkey_map_unreadable_total counter
latchkey_map_unreadable_total{map="flags"} 6
# HELP latchkey_map_writes_total Writes of this process, by what became of them.
# TYPE latchkey_map_writes_total counter
latchkey_map_writes_total{map="flags",outcome="applied"} 14
latchkey_map_writes_total{map="flags",outcome="conflict"} 15
latchkey_map_writes_total{map="flags",outcome="failed"} 16
latchkey_map_writes_total{map="flags",outcome="unknown"} 17
`

func TestText(t *testing.T) {
	s := &source{name: "flags", lag: rmap.Lag{State: rmap.CutOff, Age: 250 * time.Millisecond, Revision: rmap.Revision{Number: 42}}}
	s.stats = rmap.Stats{Entries: 1, Broken: 2, Changes: 3, Duplicates: 4, Strange: 5, Unreadable: 6, Undecoded: 7, Losses: 8,
		Heads: 9, CaughtUp: 10, Replayed: 11, ReloadTime: 1500 * time.Millisecond, Overflows: 12, Dropped: 13,
		Writes: 14, Conflicts: 15, Failures: 33, Unknown: 17}
	for i := range s.stats.Reloads {
		s.stats.Reloads[i] = uint64(21 + i)
	}
	c := rmapprom.New()
	if err := c.Add(s); err != nil {
		t.Fatal(err)
	}
	r := registry(t, c)
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
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
	a, b, otherA := &source{name: "a"}, &source{name: "b"}, &source{name: "a"}
	c := rmapprom.New()
	r := registry(t, c)
	count := func(want int) {
		t.Helper()
		n, err := testutil.GatherAndCount(r, "latchkey_map_entries")
		if err != nil || n != want {
			t.Fatalf("%d maps are shown (%v), want %d", n, err, want)
		}
	}
	count(0)
	for _, m := range []*source{a, b, a} {
		if err := c.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	count(2)
	if err := c.Add(otherA); !errors.Is(err, rmapprom.ErrDuplicate) || !strings.Contains(err.Error(), `"a"`) {
		t.Fatalf("a second map of a name: %v", err)
	}
	c.Remove(otherA) // it is not the one that is shown
	count(2)
	c.Remove(a)
	count(1)
	c.Remove(a)
	if err := c.Add(otherA); err != nil {
		t.Fatal(err)
	}
	count(2)
}

// A real map, of any type, is a source, while it lives and after.
func TestMap(t *testing.T) {
	store := rmaplocal.New(rmaplocal.Options{})
	defer store.Close()
	ctx := context.Background()
	m, err := rmap.Join(ctx, store, "limits", rmap.Options[string, int]{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c := rmapprom.New()
	if err := c.Add(m); err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetAndWait(ctx, "k", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := m.SetIfAbsent(ctx, "k", 2); !errors.Is(err, rmap.ErrConflict) {
		t.Fatal(err)
	}
	r := registry(t, c)
	compare := func(live, closed string) {
		t.Helper()
		err := testutil.GatherAndCompare(r, strings.NewReader(`# HELP latchkey_map_entries Entries in the copy.
# TYPE latchkey_map_entries gauge
latchkey_map_entries{map="limits"} 1
# HELP latchkey_map_state 1 for the state of the copy, 0 for the others.
# TYPE latchkey_map_state gauge
latchkey_map_state{map="limits",state="catching up"} 0
latchkey_map_state{map="limits",state="closed"} `+closed+`
latchkey_map_state{map="limits",state="cut off"} 0
latchkey_map_state{map="limits",state="live"} `+live+`
latchkey_map_state{map="limits",state="refused"} 0
# HELP latchkey_map_writes_total Writes of this process, by what became of them.
# TYPE latchkey_map_writes_total counter
latchkey_map_writes_total{map="limits",outcome="applied"} 1
latchkey_map_writes_total{map="limits",outcome="conflict"} 1
latchkey_map_writes_total{map="limits",outcome="failed"} 0
latchkey_map_writes_total{map="limits",outcome="unknown"} 0
`), "latchkey_map_entries", "latchkey_map_state", "latchkey_map_writes_total")
		if err != nil {
			t.Error(err)
		}
	}
	compare("1", "0")
	m.Close()
	compare("0", "1")
}
