package hotcache_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// Caches built from a Redis, a lock key and a ttl are known to fail in 23 ways. For each, the tests that show it gone
// here; "core" is hotcache/internal/core, "redis" is hotcache/hotcacheredis with real servers, "outbox" is hotcache/outbox
// with a real PostgreSQL, and what names no place is in this package.
//
//	 1 a load that read before the write is stored after it: TestLoadFromBeforeTheWrite, core TestHistories
//	 2 a load that begins after it reads a replica that lags: TestReplicaLags, core TestOutdatedLoads
//	 3 a crash between commit and invalidation: outbox TestOutbox, WriterKilled, RelayKilled and CacheIsOut
//	 4 a failover loses the invalidation or the lease: redis TestLossBeginsAGeneration, TestOldDataBeginAGeneration
//	 5 an invalidation inside of the transaction: TestInvalidateBeforeTheCommit, outbox TestOutbox, RolledBack and Woken
//	 6 copies deleted one by one, orphans when their number changes: TestWriteToAHotKey, core TestInvalidatedCopies
//	 7 a write deletes as many names as there may be copies: TestWriteToAHotKey
//	 8 each copy loads by itself: core TestBalance, TestCopiesAreRefreshed
//	 9 copies are chosen at random: core TestPick, TestBalance
//	10 the hot rule takes an estimate for a count: core TestHotRuleUsesTheLowerBound
//	11 windows: late, flapping, cold after a start: TestHotKeySpreads, TestFlappingKeyStays, core TestHotReportsAreEarly
//	12 every read pays for counting: TestHitAllocatesNothing, TestSamplerStandsForAll
//	13 a fill lock shorter than the load: TestSlowLoad, core TestRenewal, redis TestFrozenFiller
//	14 a fill lock that outlives its holder: core TestKilledFillerIsReplaced, redis TestKilledFiller
//	15 those who wait poll, each for itself: TestOneLoadForAll, redis TestStampede
//	16 a load that fails is done again by each who waits: TestFailingLoad, redis TestFailingLoader
//	17 the load depends on the first reader's context: TestFirstReaderGoesAway
//	18 missing rows are not remembered: TestMissingRow, core TestNegative
//	19 memory is never told, and its time begins late: TestTimeBeginsWithTheLoad, redis TestInvalidateIsHeardEverywhere
//	20 a node that is down fails the read: TestNodeIsDown, core TestPastLimits, redis TestServerGoesAndComes
//	21 the set of nodes changes: TestNodesChange, core TestRingMoves. Not by itself: processes with two lists of nodes at
//	   a time need the steps in docs/hotcache.md, which the test goes through
//	22 one ttl, no refresh, one type, no metrics: TestRefreshAhead, TestRefreshesAreSpread, hotcacheprom TestText. Reads are
//	   of one key at a time still; those of several goroutines share a round trip
//	23 value, lease and lock are keys in several slots: redis TestOneSlot

// A row is one row of a database: its value is its version. A replica has it too, and may lag.
type row struct{ primary, replica, loads atomic.Uint64 }

func (r *row) write(v uint64) { r.primary.Store(v); r.replica.Store(v) }

func (r *row) load(_ context.Context, _ string, min hotcache.Version) (uint64, hotcache.Version, error) {
	r.loads.Add(1)
	v := r.replica.Load()
	if min > 0 {
		v = r.primary.Load()
	}
	if v == 0 {
		return 0, 0, hotcache.ErrNotFound
	}
	return v, hotcache.Version(v), nil
}

// unversioned hides the versions of a loader.
func unversioned(load hotcache.Loader[string, uint64]) hotcache.Loader[string, uint64] {
	return func(ctx context.Context, key string, min hotcache.Version) (uint64, hotcache.Version, error) {
		v, _, err := load(ctx, key, min)
		return v, 0, err
	}
}

// takes has a loader take its time after it has read.
func takes(d time.Duration, load hotcache.Loader[string, uint64]) hotcache.Loader[string, uint64] {
	return func(ctx context.Context, key string, min hotcache.Version) (uint64, hotcache.Version, error) {
		v, version, err := load(ctx, key, min)
		time.Sleep(d)
		return v, version, err
	}
}

type cache = hotcache.Cache[string, uint64]

// open makes a cache of one process over nodes, a new embedded one if there are none. It must be closed in a bubble.
func open(t *testing.T, load hotcache.Loader[string, uint64], o hotcache.Options[string, uint64], nodes ...hotcache.Node) *cache {
	t.Helper()
	for i, n := range nodes {
		o.Nodes = append(o.Nodes, hotcache.NamedNode{Name: fmt.Sprint("node", i), Node: n})
	}
	c, err := hotcache.New(load, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wants(t *testing.T, c *cache, key string, want uint64) {
	t.Helper()
	if v, err := c.Get(t.Context(), key); v != want || err != nil {
		t.Errorf("Get(%q) = %d, %v; want %d", key, v, err, want)
	}
}

// invalidate is strict.
func invalidate(t *testing.T, c *cache, key string, v hotcache.Version) {
	t.Helper()
	if err := c.Invalidate(t.Context(), key, v); err != nil {
		t.Error(err)
	}
}

// TestLoadFromBeforeTheWrite is about weakness 1: with versions and without.
func TestLoadFromBeforeTheWrite(t *testing.T) {
	for _, versions := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var r row
			r.write(1)
			load := takes(time.Second, r.load)
			if !versions {
				load = unversioned(load)
			}
			node := hotcache.NewEmbedded(hotcache.Rules{})
			a, b := open(t, load, hotcache.Options[string, uint64]{}, node), open(t, load, hotcache.Options[string, uint64]{}, node)
			defer a.Close()
			defer b.Close()
			var before sync.WaitGroup
			before.Go(func() { wants(t, a, "k", 1) })
			time.Sleep(time.Second / 2)
			r.write(2)
			v := hotcache.Version(2)
			if !versions {
				v = 0
			}
			invalidate(t, b, "k", v)
			var after sync.WaitGroup
			for _, c := range []*cache{a, b} {
				after.Go(func() { wants(t, c, "k", 2) })
			}
			before.Wait()
			after.Wait()
			time.Sleep(10 * time.Second)
			wants(t, a, "k", 2)
			wants(t, b, "k", 2)
		})
	}
}

// TestReplicaLags is about weakness 2.
func TestReplicaLags(t *testing.T) {
	for _, versions := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			// A node that has lived for a while asks for fresh rows only where it must.
			var r row
			r.write(1)
			load, v := r.load, hotcache.Version(2)
			if !versions {
				load, v = unversioned(r.load), 0
			}
			node := hotcache.NewEmbedded(hotcache.Rules{})
			a, b := open(t, load, hotcache.Options[string, uint64]{}, node), open(t, load, hotcache.Options[string, uint64]{}, node)
			defer a.Close()
			defer b.Close()
			time.Sleep(2 * hotcache.DefaultRules().FloorTTL)
			wants(t, a, "k", 1)
			r.primary.Store(2)
			invalidate(t, a, "k", v)
			for range 10 {
				wants(t, a, "k", 2)
				wants(t, b, "k", 2)
				time.Sleep(time.Second)
			}
		})
	}
}

// TestInvalidateBeforeTheCommit is about weakness 5: an invalidation from inside of the transaction keeps the row of
// before out of the cache, and readers get an error, not that row, until the commit.
func TestInvalidateBeforeTheCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		r.write(1)
		c := open(t, r.load, hotcache.Options[string, uint64]{})
		defer c.Close()
		wants(t, c, "k", 1)
		invalidate(t, c, "k", 2)
		if v, err := c.Get(t.Context(), "k"); !errors.Is(err, hotcache.ErrOutdated) {
			t.Errorf("before the commit: %d, %v", v, err)
		}
		r.write(2)
		time.Sleep(time.Second) // the pause after a load that failed
		wants(t, c, "k", 2)
	})
}

// A counted node counts what writes cost.
type counted struct {
	hotcache.Node
	invalidations *atomic.Int64
}

func (n counted) Invalidate(ctx context.Context, key string, v hotcache.Version, by hotcache.Member) (hotcache.Invalidation, []hotcache.Member, error) {
	n.invalidations.Add(1)
	return n.Node.Invalidate(ctx, key, v, by)
}

// TestWriteToAHotKey is about weaknesses 6 and 7: two processes that do not even agree on the number of copies, a key
// that both read from copies, and writes of one command each, after which none reads what was before.
func TestWriteToAHotKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		r.write(1)
		var invalidations atomic.Int64
		var nodes []hotcache.Node
		for range 5 {
			nodes = append(nodes, counted{hotcache.NewEmbedded(hotcache.Rules{}), &invalidations})
		}
		o := hotcache.Options[string, uint64]{MemoryEntries: -1, HotShare: 0.1, Copies: 2}
		a := open(t, r.load, o, nodes...)
		defer a.Close()
		o.Copies = 5
		b := open(t, r.load, o, nodes...)
		defer b.Close()
		copies := func(c *cache) uint64 { return c.Stats().Reads["copy"] }
		read := func() {
			for range 20 {
				wants(t, a, "hot", r.primary.Load())
				wants(t, b, "hot", r.primary.Load())
			}
			time.Sleep(4 * time.Millisecond)
		}
		for began := time.Now(); copies(a) == 0 || copies(b) == 0; {
			if read(); time.Since(began) > time.Minute {
				t.Fatalf("the key is not hot: %+v, %+v", a.Stats(), b.Stats())
			}
		}
		for v := uint64(2); v < 50; v++ {
			before, read1, read2 := invalidations.Load(), copies(a), copies(b)
			r.write(v)
			invalidate(t, a, "hot", hotcache.Version(v))
			if n := invalidations.Load() - before; n != 1 {
				t.Fatalf("a write to a hot key took %d commands", n)
			}
			for range 20 {
				read()
			}
			if copies(a) == read1 || copies(b) == read2 {
				t.Fatalf("after the write to %d the copies are read no more", v)
			}
		}
	})
}

// TestHitAllocatesNothing is about weakness 12: a hit in memory, with reads being counted for hot keys.
func TestHitAllocatesNothing(t *testing.T) {
	var r row
	r.write(1)
	c := open(t, r.load, hotcache.Options[string, uint64]{})
	defer c.Close()
	ctx := t.Context()
	if err := c.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	n := testing.AllocsPerRun(20_000, func() {
		if _, err := c.Get(ctx, "k"); err != nil {
			t.Error(err)
		}
	})
	if n > 0 {
		t.Errorf("a hit allocates %v times", n)
	}
}

// TestSlowLoad is about weakness 13: a load that takes many times the lease is renewed, and done once.
func TestSlowLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		r.write(1)
		node := hotcache.NewEmbedded(hotcache.Rules{})
		var readers sync.WaitGroup
		for range 4 {
			c := open(t, takes(8*time.Second, r.load), hotcache.Options[string, uint64]{}, node)
			defer c.Close()
			for range 10 {
				readers.Go(func() { wants(t, c, "k", 1) })
			}
		}
		readers.Wait()
		if n := r.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}

// TestFailingLoad is about weakness 16: 100 readers in 4 processes, a load that fails after 50 ms.
func TestFailingLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int64
		load := func(context.Context, string, hotcache.Version) (uint64, hotcache.Version, error) {
			loads.Add(1)
			time.Sleep(50 * time.Millisecond)
			return 0, 0, errors.New("the database is away")
		}
		node := hotcache.NewEmbedded(hotcache.Rules{})
		var readers sync.WaitGroup
		began := time.Now()
		for range 4 {
			c := open(t, load, hotcache.Options[string, uint64]{}, node)
			defer c.Close()
			for range 25 {
				readers.Go(func() {
					if _, err := c.Get(t.Context(), "k"); err == nil {
						t.Error("a read of a row that cannot be loaded has no error")
					}
				})
			}
		}
		readers.Wait()
		if took := time.Since(began); loads.Load() > 4 || took > 100*time.Millisecond {
			t.Errorf("%d loads, all answered after %v", loads.Load(), took)
		}
	})
}

// TestFirstReaderGoesAway is about weakness 17.
func TestFirstReaderGoesAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		r.write(1)
		c := open(t, takes(time.Second, r.load), hotcache.Options[string, uint64]{})
		defer c.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var first, others sync.WaitGroup
		first.Go(func() {
			if _, err := c.Get(ctx, "k"); !errors.Is(err, context.Canceled) {
				t.Errorf("the first reader: %v", err)
			}
		})
		synctest.Wait()
		for range 10 {
			others.Go(func() { wants(t, c, "k", 1) })
		}
		synctest.Wait()
		cancel()
		first.Wait()
		others.Wait()
		if n := r.loads.Load(); n != 1 {
			t.Errorf("%d loads", n)
		}
	})
}
