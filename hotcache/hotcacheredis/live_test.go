package hotcacheredis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// TestServerGoesAndComes kills the server under load: every read is answered, and the database is not flooded.
func TestServerGoesAndComes(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	const limit = 4
	var now, most, loads atomic.Int64
	load := func(ctx context.Context, key int, _ hotcache.Version) (string, hotcache.Version, error) {
		loads.Add(1)
		defer now.Add(-1)
		for at := now.Add(1); ; {
			if old := most.Load(); at <= old || most.CompareAndSwap(old, at) {
				break
			}
		}
		<-time.After(2 * time.Millisecond) // the query
		return fmt.Sprint(key), 1, nil
	}
	c, err := hotcache.New(load, hotcache.Options[int, string]{
		Nodes: []hotcache.NamedNode{{Name: "a", Node: n}}, MaxDirectLoads: limit, NodeTimeout: 200 * time.Millisecond,
		BreakFor: 50 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const keys = 20
	for key := range keys { // so that what follows is about the server
		if _, err := c.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	var reads, failed atomic.Int64
	for range 8 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				key := rand.IntN(keys)
				v, err := c.Get(context.Background(), key)
				if reads.Add(1); err != nil || v != fmt.Sprint(key) {
					failed.Add(1)
					t.Errorf("read of %d: %q, %v", key, v, err)
					return
				}
				<-time.After(50 * time.Microsecond) // readers do something else too
			}
		})
	}
	trusted := func() bool { return c.Lag()[0].Trusted }
	soon(t, "memory is trusted", trusted)
	most.Store(0)
	server.Kill()
	soon(t, "the node is out", func() bool { return c.Lag()[0].Out })
	before := reads.Load()
	soon(t, "reads go on", func() bool { return reads.Load() > before+500 })
	if m := most.Load(); m > limit {
		t.Errorf("%d loads at a time while the server is away, the limit is %d", m, limit)
	}
	server.Restart()
	soon(t, "memory is trusted again", trusted)
	soon(t, "loads end, for all is cached again", func() bool {
		was, read := loads.Load(), reads.Load()
		soon(t, "reads go on", func() bool { return reads.Load() > read+200 })
		return loads.Load() == was
	})
	close(stop)
	readers.Wait()
	t.Logf("%d reads, %d loads, at most %d at a time; %+v", reads.Load(), loads.Load(), most.Load(), c.Stats().Reads)
}

// TestInvalidateIsHeardEverywhere: a strict invalidation in one process, and no other serves what is older from its
// memory, whatever happens to the link of one of them.
func TestInvalidateIsHeardEverywhere(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	relay := redistest.NewRelay(t, server.Addr())
	var row atomic.Uint64
	row.Store(1)
	load := func(context.Context, string, hotcache.Version) (uint64, hotcache.Version, error) {
		v := row.Load()
		return v, hotcache.Version(v), nil
	}
	var caches []*hotcache.Cache[string, uint64]
	for i, address := range []string{server.Addr(), server.Addr(), relay.Addr()} {
		n := open(t, "redis://"+address, Options{})
		c, err := hotcache.New(load, hotcache.Options[string, uint64]{
			Nodes: []hotcache.NamedNode{{Name: "a", Node: n}}, NodeTimeout: 500 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		soon(t, fmt.Sprintf("cache %d is up", i), func() bool { return c.Sync(t.Context()) == nil })
		caches = append(caches, c)
	}
	var slowest time.Duration
	for i := range uint64(40) {
		for _, c := range caches {
			if _, err := c.Get(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
		}
		if i == 30 {
			relay.Freeze(redistest.Both) // from here on one of them hears nothing
		}
		v := row.Add(1)
		began := time.Now()
		if err := caches[i%2].Invalidate(t.Context(), "k", hotcache.Version(v)); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(began))
		for j, c := range caches {
			if got, err := c.Get(t.Context(), "k"); err != nil || got < v {
				t.Fatalf("cache %d reads %d after %d was written, %v", j, got, v, err)
			}
		}
	}
	t.Logf("the slowest invalidation took %v; %+v", slowest, caches[0].Stats().Reads)
}
