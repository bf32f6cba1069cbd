package hotcache_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A gauge counts loads: how many there were of each key, and how many at most at the same time.
type gauge struct {
	mu        sync.Mutex
	now, most int
	of        map[int]int
}

// load takes its time, in a synctest bubble.
func (g *gauge) load(_ context.Context, key int, _ hotcache.Version) (int, hotcache.Version, error) {
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.of[key]++
	g.mu.Unlock()
	time.Sleep(500 * time.Millisecond)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.now--
	return key, 1, nil
}

// TestEmptyNode: an empty node has all keys loaded that are read, but only so many at a time in a process. The others wait,
// longer than a lease lasts, and are loaded once by the fleet all the same; beyond that there is an error.
func TestEmptyNode(t *testing.T) {
	for _, c := range []struct{ loads, waiting, most, failed int }{{2, 6, 4, 0}, {2, 1, 4, 5}, {-1, 1, 8, 0}, {0, 1, 8, 0}} {
		synctest.Test(t, func(t *testing.T) {
			g := gauge{of: map[int]int{}}
			nodes := []hotcache.NamedNode{{Name: "a", Node: hotcache.NewEmbedded(hotcache.Rules{})}}
			var caches []*hotcache.Cache[int, int]
			for range 2 {
				cache, err := hotcache.New(g.load, hotcache.Options[int, int]{Nodes: nodes, MaxLoads: c.loads, MaxWaitingLoads: c.waiting})
				if err != nil {
					t.Fatal(err)
				}
				defer cache.Close()
				if err := cache.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				caches = append(caches, cache)
			}
			var readers sync.WaitGroup
			var failed atomic.Int64
			read := func(cache, key int) {
				readers.Go(func() {
					v, err := caches[cache].Get(t.Context(), key)
					if errors.Is(err, hotcache.ErrOverloaded) {
						failed.Add(1)
					} else if err != nil || v != key {
						t.Errorf("%d, %v", v, err)
					}
				})
			}
			for key := range 8 {
				read(0, key)
			}
			if c.failed == 0 {
				synctest.Wait()
				for key := range 8 {
					read(1, key)
				}
			}
			readers.Wait()
			if g.most > c.most || int(failed.Load()) != c.failed {
				t.Errorf("%+v: %d loads at a time, %d reads are refused", c, g.most, failed.Load())
			}
			for key, n := range g.of {
				if n != 1 {
					t.Errorf("%+v: key %d was loaded %d times", c, key, n)
				}
			}
			if n := caches[0].Stats().Reads["shed"]; int(n) != c.failed {
				t.Errorf("%d are counted", n)
			}
		})
	}
}

// TestLeastOfWhatDoesNotDecode: who wants a version gets nothing below it, also when what a node has must be loaded anew
// since it does not decode.
func TestLeastOfWhatDoesNotDecode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := []hotcache.NamedNode{{Name: "a", Node: hotcache.NewEmbedded(hotcache.Rules{})}}
		other, err := hotcache.New(func(context.Context, int, hotcache.Version) (string, hotcache.Version, error) {
			return "no number", 10, nil
		}, hotcache.Options[int, string]{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		cache, err := hotcache.New(func(context.Context, int, hotcache.Version) (int, hotcache.Version, error) {
			return 3, 3, nil // a replica, though a version is asked for
		}, hotcache.Options[int, int]{Nodes: nodes})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		if _, err := other.Get(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if v, version, err := cache.GetAtLeast(t.Context(), 1, 9); !errors.Is(err, hotcache.ErrOutdated) {
			t.Errorf("%d at version %d, %v", v, version, err)
		}
	})
}

// TestLoadersThatNeverReturn: each of them is a goroutine that nobody can end, so there is a limit to them: beyond it no
// loader is called, and there is an error at once, until some have returned.
func TestLoadersThatNeverReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var calls atomic.Int64
		cache, err := hotcache.New(func(_ context.Context, key int, _ hotcache.Version) (int, hotcache.Version, error) {
			calls.Add(1)
			<-release
			return key, 1, nil
		}, hotcache.Options[int, int]{LoadTimeout: 10 * time.Millisecond, MaxLoads: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		before := runtime.NumGoroutine()
		for key := range 4 * hotcache.MaxStuckLoads {
			if _, err := cache.Get(t.Context(), key); err == nil {
				t.Fatal("read what was not loaded")
			} else if key >= hotcache.MaxStuckLoads && (!errors.Is(err, hotcache.ErrOverloaded) || !strings.Contains(err.Error(), "not returned")) {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if n := calls.Load(); n != hotcache.MaxStuckLoads {
			t.Errorf("the loader was called %d times", n)
		}
		if n := runtime.NumGoroutine() - before; n > hotcache.MaxStuckLoads+20 {
			t.Errorf("%d goroutines more", n)
		}
		if s := cache.Stats(); s.StuckLoads != hotcache.MaxStuckLoads {
			t.Errorf("%+v", s)
		}
		close(release)
		synctest.Wait()
		if v, err := cache.Get(t.Context(), -7); v != -7 || err != nil {
			t.Errorf("after they returned: %d, %v", v, err)
		}
		if s := cache.Stats(); s.StuckLoads != 0 {
			t.Errorf("%+v", s)
		}
	})
}
