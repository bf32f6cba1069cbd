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
	seeds := uint64(4)
	if soak() {
		seeds = 200
	}
	for seed := range seeds {
		cfg := small(Ours)
		cfg.Seed, cfg.Faults, cfg.Lag, cfg.WriteEvery = seed, everyFault(t), 20*time.Millisecond, 20
		r := run(t, cfg)
		if r.StaleReads != 0 || r.LeftStale != 0 || r.Unanswered != 0 || r.UnsureWrites != 0 {
			t.Errorf("seed %d: %d stale reads, %d keys left stale, %d unanswered, %d unsure", seed, r.StaleReads, r.LeftStale, r.Unanswered,
				r.UnsureWrites)
		}
		if r.LostHeard == 0 || r.LostNoticed != r.LostHeard || r.Crashes == 0 {
			t.Errorf("seed %d: of %d missed broadcasts %d were noticed; %d crashes", seed, r.LostHeard, r.LostNoticed, r.Crashes)
		}
		cfg.Policy = Source
		r = run(t, cfg)
		if r.StaleReads == 0 || r.LeftStale == 0 || r.UnsureWrites == 0 || r.FailedReads == 0 {
			t.Errorf("seed %d, source: %d stale reads, %d keys left stale, %d unsure, %d failed", seed, r.StaleReads, r.LeftStale,
				r.UnsureWrites, r.FailedReads)
		}
	}
}

// TestUnnoticedLossIsCounted says that a broadcast got lost of which nothing is missing, so that nobody can notice it:
// then the figure is not what it is to be.
func TestUnnoticedLossIsCounted(t *testing.T) {
	cfg := small(Ours)
	cfg.WriteEvery = 0
	w := newWorld(&cfg, nil)
	w.after(500*time.Millisecond, w.policy.(*ours).servers[1].links[2].missed)
	w.run(t.Context())
	if w.finish(); w.res.LostHeard != 1 || w.res.LostNoticed != 0 {
		t.Errorf("of %d broadcasts missed %d were noticed", w.res.LostHeard, w.res.LostNoticed)
	}
}

// TestRest: nothing goes on for ever when the work is done, and every read that began has ended.
func TestRest(t *testing.T) {
	for _, policy := range []string{Ours, Source} {
		cfg := small(policy)
		cfg.Reads, cfg.Faults = 5_000, everyFault(t)
		w := newWorld(&cfg, nil)
		w.run(t.Context())
		for end := w.now + time.Hour; len(w.events) > 0; {
			if w.step(); w.now > end {
				t.Fatalf("%s: %d events are still to come an hour later", policy, len(w.events))
			}
		}
		if w.waiting != 0 || w.res.Reads != 5_000 {
			t.Errorf("%s: %d reads wait, %d were answered", policy, w.waiting, w.res.Reads)
		}
	}
}
