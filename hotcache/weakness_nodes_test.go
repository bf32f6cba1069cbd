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

// TestMissingRow is about weakness 18: that there is no row is remembered, in all processes, and hides no insert.
func TestMissingRow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		node := hotcache.NewEmbedded(hotcache.Rules{})
		a := open(t, r.load, hotcache.Options[string, uint64]{}, node)
		defer a.Close()
		b := open(t, r.load, hotcache.Options[string, uint64]{}, node)
		defer b.Close()
		for range 10 {
			for _, c := range []*cache{a, b} {
				if _, err := c.Get(t.Context(), "k"); !errors.Is(err, hotcache.ErrNotFound) {
					t.Errorf("a row that is not there: %v", err)
				}
			}
		}
		if n := r.loads.Load(); n != 1 {
			t.Errorf("%d loads of a row that is not there", n)
		}
		r.write(1)
		invalidate(t, a, "k", 1)
		wants(t, a, "k", 1)
		wants(t, b, "k", 1)
	})
}

// TestTimeBeginsWithTheLoad is about weakness 19: neither the node nor memory begins the time anew.
func TestTimeBeginsWithTheLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		r.write(1)
		node := hotcache.NewEmbedded(hotcache.Rules{})
		o := hotcache.Options[string, uint64]{TTL: 10 * time.Second, RefreshAfter: -1}
		a := open(t, takes(4*time.Second, r.load), o, node)
		defer a.Close()
		b := open(t, takes(4*time.Second, r.load), o, node)
		defer b.Close()
		began := time.Now()
		wants(t, a, "k", 1)
		r.write(2) // and nobody says so
		time.Sleep(5*time.Second - 10*time.Millisecond)
		wants(t, b, "k", 1) // into b's memory, a moment before the end
		time.Sleep(time.Second + 20*time.Millisecond)
		if age := time.Since(began); age < 10*time.Second || age > 11*time.Second {
			t.Fatalf("%v have passed", age)
		}
		wants(t, b, "k", 2)
		wants(t, a, "k", 2)
	})
}

// A dead node fails whatever it is asked, after a while. It is for a synctest bubble.
type dead struct{ hotcache.Node }

var errDead = errors.New("no answer")

// Ask takes a while, in a synctest bubble.
func (dead) Ask(ctx context.Context, _ hotcache.Ask) (hotcache.Answer, error) {
	time.Sleep(10 * time.Millisecond)
	return hotcache.Answer{}, errDead
}

func (dead) Invalidate(context.Context, string, hotcache.Version, hotcache.Member) (hotcache.Invalidation, []hotcache.Member, error) {
	return hotcache.Invalidation{}, nil, errDead
}

// TestNodeIsDown is about weakness 20: reads go on, and the database is asked within a limit; a write says that the
// cache was not told.
func TestNodeIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int64
		load := func(context.Context, string, hotcache.Version) (uint64, hotcache.Version, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(20 * time.Millisecond)
			return 1, 1, nil
		}
		o := hotcache.Options[string, uint64]{MaxDirectLoads: 4, MaxWaitingLoads: 100}
		c := open(t, load, o, dead{hotcache.NewEmbedded(hotcache.Rules{})})
		defer c.Close()
		var readers sync.WaitGroup
		for i := range 50 {
			readers.Go(func() { wants(t, c, fmt.Sprint("key", i), 1) })
		}
		readers.Wait()
		if m := most.Load(); m > 4 {
			t.Errorf("%d loads at a time, the limit is 4", m)
		}
		if !c.Lag()[0].Out {
			t.Error("the node is not out")
		}
		var told *hotcache.NotInvalidatedError
		if err := c.Invalidate(t.Context(), "k", 2); !errors.As(err, &told) || told.Version != 2 || !errors.Is(err, errDead) {
			t.Errorf("a write that the cache was not told of: %v", err)
		}
	})
}

// TestNodesChange is about weakness 21: a node is added while everything runs, in the steps that the guide has. Each
// process has one cache that it reads, and tells both that of the old nodes and that of the new ones of its writes.
func TestNodesChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		r.write(1)
		var nodes []hotcache.Node
		for range 3 {
			nodes = append(nodes, hotcache.NewEmbedded(hotcache.Rules{}))
		}
		type process struct{ before, after *cache }
		var processes []process
		for range 3 {
			p := process{
				open(t, r.load, hotcache.Options[string, uint64]{}, nodes[:2]...),
				open(t, r.load, hotcache.Options[string, uint64]{}, nodes...),
			}
			defer p.before.Close()
			defer p.after.Close()
			processes = append(processes, p)
		}
		const keys = 30
		moved := 0 // how many processes read the new nodes
		for v := uint64(2); moved <= len(processes); v++ {
			writer := processes[v%3]
			r.write(v)
			for i := range keys {
				key := fmt.Sprint("key", i)
				invalidate(t, writer.before, key, hotcache.Version(v))
				invalidate(t, writer.after, key, hotcache.Version(v))
				for j, p := range processes {
					if j < moved {
						wants(t, p.after, key, v)
					} else {
						wants(t, p.before, key, v)
					}
				}
			}
			time.Sleep(time.Second)
			if v%4 == 0 {
				moved++
			}
		}
	})
}

// TestRefreshAhead is about weakness 22: whoever reads a key that is in use never waits for its load.
func TestRefreshAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r row
		r.write(1)
		c := open(t, takes(200*time.Millisecond, r.load), hotcache.Options[string, uint64]{TTL: 4 * time.Second})
		defer c.Close()
		wants(t, c, "k", 1)
		for range 600 {
			time.Sleep(50 * time.Millisecond)
			began := time.Now()
			wants(t, c, "k", 1)
			if took := time.Since(began); took > 0 {
				t.Fatalf("a read waited for %v", took)
			}
		}
		if n := r.loads.Load(); n < 8 || n > 14 {
			t.Errorf("%d loads in 30 s of a ttl of 4 s", n)
		}
	})
}

// TestRefreshesAreSpread is about weakness 22: what was loaded at one moment is not loaded anew at one moment.
func TestRefreshesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys = 50
		began := time.Now()
		var mu sync.Mutex
		moments := map[time.Duration]int{} // in tenths of a second: how many keys were loaded
		load := func(context.Context, string, hotcache.Version) (uint64, hotcache.Version, error) {
			mu.Lock()
			defer mu.Unlock()
			moments[time.Since(began).Truncate(100*time.Millisecond)]++
			return 1, 1, nil
		}
		c := open(t, load, hotcache.Options[string, uint64]{TTL: 40 * time.Second, RefreshAfter: 30 * time.Second})
		defer c.Close()
		for time.Since(began) < 35*time.Second {
			for i := range keys {
				wants(t, c, fmt.Sprint("key", i), 1)
			}
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if first := moments[0]; first != keys {
			t.Fatalf("%d keys were loaded at the beginning", first)
		}
		delete(moments, 0)
		for at, n := range moments {
			if at < 27*time.Second || at > 30*time.Second || n > keys/3 {
				t.Errorf("%d keys were loaded anew after %v", n, at)
			}
		}
		if len(moments) < 10 {
			t.Errorf("all were loaded anew at %d moments", len(moments))
		}
	})
}
