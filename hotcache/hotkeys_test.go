package hotcache_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A hotFleet is several processes that read from the same nodes, each from one goroutine, in fake time.
type hotFleet struct {
	t       *testing.T
	nodes   []hotcache.NamedNode
	o       hotcache.Options[string, uint64]
	caches  []*hotcache.Cache[string, uint64]
	version atomic.Uint64 // of every row
	hot     atomic.Uint64 // how many of a thousand reads are of the key "hot"
	end     chan struct{}
	readers sync.WaitGroup
}

func newHotFleet(t *testing.T, nodes, processes int, o hotcache.Options[string, uint64]) *hotFleet {
	f := &hotFleet{t: t, o: o, end: make(chan struct{})}
	f.version.Store(1)
	for i := range nodes {
		f.nodes = append(f.nodes, hotcache.NamedNode{Name: fmt.Sprint("node", i), Node: hotcache.NewEmbedded(hotcache.Rules{})})
	}
	f.o.Nodes = f.nodes
	for range processes {
		f.join()
	}
	return f
}

// join has another process begin.
func (f *hotFleet) join() *hotcache.Cache[string, uint64] {
	c, err := hotcache.New(func(_ context.Context, key string, _ hotcache.Version) (uint64, hotcache.Version, error) {
		v := f.version.Load()
		time.Sleep(5 * time.Millisecond)
		return v, hotcache.Version(v), nil
	}, f.o)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.Close)
	f.caches = append(f.caches, c)
	return c
}

// read has every process read 1000 times a second, four at a time.
func (f *hotFleet) read() {
	for i, c := range f.caches {
		r := rand.New(rand.NewPCG(uint64(i), 5))
		f.readers.Go(func() {
			for {
				select {
				case <-f.end:
					return
				case <-time.After(4 * time.Millisecond):
				}
				for range 4 {
					key := fmt.Sprint("cold", r.IntN(500))
					if r.Uint64N(1000) < f.hot.Load() {
						key = "hot"
					}
					if _, err := c.Get(f.t.Context(), key); err != nil {
						f.t.Errorf("Get(%q): %v", key, err)
					}
				}
			}
		})
	}
}

func (f *hotFleet) stop() {
	close(f.end)
	f.readers.Wait()
	for _, c := range f.caches {
		c.Close()
	}
}

// hotIn returns in how many processes the key is hot.
func (f *hotFleet) hotIn() (n int) {
	for _, c := range f.caches {
		if slices.ContainsFunc(c.HotKeys(), func(k hotcache.HotKey[string]) bool { return k.Key == "hot" }) {
			n++
		}
	}
	return n
}

var hotOptions = hotcache.Options[string, uint64]{HotShare: 0.02, Copies: 4, MemoryEntries: -1}

// TestHotKeySpreads has a key become hot in the middle of a window: within a second every process reads it from several
// nodes. A process that begins knows it at once, and when it is read no more it is cold everywhere.
func TestHotKeySpreads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHotFleet(t, 6, 4, hotOptions)
		f.read()
		time.Sleep(5*time.Second + 300*time.Millisecond)
		for _, c := range f.caches {
			if hot := c.HotKeys(); len(hot) != 0 {
				t.Fatalf("hot while all keys are read alike: %v", hot)
			}
		}
		f.hot.Store(200)
		began := time.Now()
		for f.hotIn() < len(f.caches) {
			if time.Since(began) > time.Second {
				t.Fatalf("after a second the key is hot in %d of %d processes", f.hotIn(), len(f.caches))
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Logf("hot everywhere after %v", time.Since(began))

		before := f.caches[0].Stats()
		time.Sleep(3 * time.Second) // the counts are those of the last window, and of others perhaps the one before
		hot, after := f.caches[0].HotKeys(), f.caches[0].Stats()
		if len(hot) != 1 || len(hot[0].Nodes) != 4 || hot[0].Reads < 700 || hot[0].Reads > 900 || hot[0].Reads-hot[0].Error > 900 || hot[0].Share < 0.15 || hot[0].Share > 0.25 {
			t.Errorf("of about 800 in 4000 reads HotKeys says %+v", hot)
		}
		if n := after.Reads["copy"] - before.Reads["copy"]; n < 300 || after.HotKeys != 1 {
			t.Errorf("%d of about 600 reads of the hot key came from copies; %+v", n, after)
		}

		newcomer := f.join()
		synctest.Wait()
		if keys := newcomer.HotKeys(); len(keys) != 1 || keys[0].Key != "hot" {
			t.Errorf("a process that begins has %v as hot keys", keys)
		}

		f.hot.Store(0)
		time.Sleep(4 * time.Second)
		if n := f.hotIn(); n != 0 {
			t.Errorf("the key is still hot in %d processes", n)
		}
		f.stop()
	})
}

// TestFlappingKeyStays has a key go up and down between the share and half of it.
func TestFlappingKeyStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHotFleet(t, 3, 3, hotOptions)
		f.hot.Store(40)
		f.read()
		time.Sleep(3 * time.Second)
		for i := range 30 {
			f.hot.Store([]uint64{14, 26, 17}[i%3])
			for range 10 {
				time.Sleep(73 * time.Millisecond)
				if n := f.hotIn(); n != len(f.caches) {
					t.Fatalf("round %d: the key is hot in %d of %d processes", i, n, len(f.caches))
				}
			}
		}
		f.stop()
	})
}

// TestIdleFleetHasNoHotKeys reads one key alone, but seldom.
func TestIdleFleetHasNoHotKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHotFleet(t, 3, 2, hotOptions)
		for range 500 {
			for _, c := range f.caches {
				if _, err := c.Get(t.Context(), "hot"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := f.hotIn(); n != 0 {
			t.Errorf("with 200 reads a second the key is hot in %d processes", n)
		}
		f.stop()
	})
}

// TestHotCopiesAreNeverOld writes a hot key again and again, in strict mode: no read that begins after a write has
// finished gets less than what was written, whether it is answered by a copy, the home or memory.
func TestHotCopiesAreNeverOld(t *testing.T) {
	for _, entries := range []int{-1, 100} {
		t.Run(fmt.Sprint("memory", entries), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := hotOptions
				o.MemoryEntries = entries
				f := newHotFleet(t, 6, 4, o)
				f.hot.Store(400)
				f.read()
				time.Sleep(2 * time.Second)
				var finished atomic.Uint64
				var checks sync.WaitGroup
				end := make(chan struct{})
				for i, c := range f.caches {
					for range 3 {
						checks.Go(func() {
							for {
								select {
								case <-end:
									return
								case <-time.After(3 * time.Millisecond):
								}
								least := finished.Load()
								if v, err := c.Get(t.Context(), "hot"); err != nil || v < least {
									t.Errorf("process %d read version %d, %v after %d had been written", i, v, err, least)
								}
							}
						})
					}
				}
				for i := range 200 {
					v := f.version.Add(1)
					if err := f.caches[i%4].Invalidate(t.Context(), "hot", hotcache.Version(v)); err != nil {
						t.Error(err)
					}
					finished.Store(v)
					time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
				}
				if n := f.hotIn(); n != len(f.caches) {
					t.Errorf("the key is hot in %d processes only", n)
				}
				close(end)
				checks.Wait()
				var copies uint64
				for _, c := range f.caches {
					copies += c.Stats().Reads["copy"]
				}
				if entries < 0 && copies < 1000 {
					t.Errorf("only %d reads were answered by copies, so nothing was shown", copies)
				}
				f.stop()
			})
		})
	}
}

// TestHotKeysAmongRubbish has a member of the fleet send reports that nobody can read.
func TestHotKeysAmongRubbish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newHotFleet(t, 1, 1, hotOptions)
		feed, err := f.nodes[0].Node.Follow("other", deaf{})
		if err != nil {
			t.Fatal(err)
		}
		defer feed.Close()
		for _, text := range []string{"hot1 ", "hot1 window other 1000 1000 5 9 ", "hot1 window other 0 0 0 0", "hot9"} {
			if err := feed.Tell(t.Context(), hotcache.Everybody, text); err != nil {
				t.Fatal(err)
			}
		}
		f.hot.Store(1000)
		f.read()
		time.Sleep(3 * time.Second)
		if s := f.caches[0].Stats(); s.HotBroken != 3 || f.hotIn() != 1 {
			t.Errorf("%d reports were refused, want 3; the key is hot in %d processes", s.HotBroken, f.hotIn())
		}
		f.stop()
	})
}

// deaf listens to nothing.
type deaf struct{}

func (deaf) Up()                                                {}
func (deaf) Invalidated(hotcache.Invalidation, hotcache.Member) {}
func (deaf) Woken(string)                                       {}
func (deaf) Told(string)                                        {}
func (deaf) Down(error)                                         {}

func BenchmarkMemoryHit(b *testing.B) {
	c, err := hotcache.New(func(context.Context, int64, hotcache.Version) (string, hotcache.Version, error) {
		return "price", 1, nil
	}, hotcache.Options[int64, string]{})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if err := c.Sync(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Get(b.Context(), 7); err != nil {
			b.Fatal(err)
		}
	}
}
