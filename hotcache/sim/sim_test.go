package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"runtime"
	"testing"
	"time"
)

func run(t *testing.T, cfg Config) *Result {
	t.Helper()
	r, err := Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// small is a world that takes a moment.
func small(policy string) Config {
	cfg := Defaults()
	cfg.Policy, cfg.Reads, cfg.Keys, cfg.Rate, cfg.Nodes = policy, 20_000, 2_000, 10_000, 6
	return cfg
}

func encode(t *testing.T, r *Result) []byte {
	t.Helper()
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func everyFault(t *testing.T) []Fault {
	t.Helper()
	var all []Fault
	for _, text := range []string{"crash@300ms", "crash@400ms+200ms:0.5", "lose@100ms+400ms:0.2", "cut@600ms+500ms:1",
		"node@800ms+300ms:2", "away@1.2s+300ms:3", "lag@1s+500ms:50ms"} {
		f, err := ParseFault(text)
		if err != nil {
			t.Fatal(err)
		}
		if f.String() != text {
			t.Errorf("%q is written %q", text, f)
		}
		all = append(all, f)
	}
	return all
}

// TestSameSeedSameBytes makes every run twice, with other numbers of processors, and one with another seed.
func TestSameSeedSameBytes(t *testing.T) {
	for _, policy := range []string{Ours, Source} {
		cfg := small(policy)
		cfg.Faults = everyFault(t)
		first := encode(t, run(t, cfg))
		before := runtime.GOMAXPROCS(1)
		second := encode(t, run(t, cfg))
		runtime.GOMAXPROCS(before)
		if !bytes.Equal(first, second) {
			t.Errorf("%s: two runs differ:\n%s\n%s", policy, first, second)
		}
		cfg.Seed = 2
		if bytes.Equal(first, encode(t, run(t, cfg))) {
			t.Errorf("%s: another seed gives the same", policy)
		}
	}
}

// TestInterrupted ends a run early: there is what there was until then.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := small(Ours)
	cfg.Progress = func(done, _ int) {
		if done > 1000 {
			cancel()
		}
	}
	r, err := Run(ctx, cfg)
	if err != nil || !r.Interrupted || r.Reads < 1000 || r.Reads >= 20_000 {
		t.Errorf("got %v, %+v", err, r)
	}
}

// TestOursAgainstFaults has everything go wrong: nobody gets what is older than a write that was finished, and what
// crashed writers left behind is mended. The hand-written cache fails both, so the counters can be trusted.
func TestOursAgainstFaults(t *testing.T) {
	cfg := small(Ours)
	cfg.Faults, cfg.Lag, cfg.WriteEvery = everyFault(t), 20*time.Millisecond, 20
	r := run(t, cfg)
	if r.StaleReads != 0 || r.LeftStale != 0 || r.Unanswered != 0 || r.UnsureWrites != 0 {
		t.Errorf("%d stale reads, %d keys left stale, %d unanswered, %d unsure", r.StaleReads, r.LeftStale, r.Unanswered, r.UnsureWrites)
	}
	if r.LostHeard == 0 || r.LostNoticed != r.LostHeard || r.Crashes == 0 {
		t.Errorf("of %d missed broadcasts %d were noticed; %d crashes", r.LostHeard, r.LostNoticed, r.Crashes)
	}
	cfg.Policy = Source
	r = run(t, cfg)
	if r.StaleReads == 0 || r.LeftStale == 0 || r.UnsureWrites == 0 || r.FailedReads == 0 {
		t.Errorf("source: %d stale reads, %d keys left stale, %d unsure, %d failed", r.StaleReads, r.LeftStale, r.UnsureWrites, r.FailedReads)
	}
}
