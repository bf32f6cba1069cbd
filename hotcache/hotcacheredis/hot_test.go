package hotcacheredis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// TestHotKeyOnServers has three processes read a key so often that it gets copies on other servers: strict writes hold,
// and a process that begins knows the key.
func TestHotKeyOnServers(t *testing.T) {
	var nodes []hotcache.NamedNode
	for i := range 3 {
		server := redistest.Start(t, redistest.Options{})
		nodes = append(nodes, hotcache.NamedNode{Name: fmt.Sprint("node", i), Node: open(t, server.URL(), Options{})})
	}
	var written, finished atomic.Uint64
	written.Store(1)
	join := func() *hotcache.Cache[string, uint64] {
		c, err := hotcache.New(func(context.Context, string, hotcache.Version) (uint64, hotcache.Version, error) {
			v := written.Load()
			return v, hotcache.Version(v), nil
		}, hotcache.Options[string, uint64]{Nodes: nodes, HotShare: 0.05, MemoryEntries: -1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		soon(t, "the feeds stand", func() bool { return c.Sync(t.Context()) == nil })
		return c
	}
	caches := []*hotcache.Cache[string, uint64]{join(), join(), join()}
	stop := make(chan struct{})
	var readers sync.WaitGroup
	end := sync.OnceFunc(func() { close(stop); readers.Wait() })
	defer end()
	for i, c := range caches {
		for range 2 {
			readers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					key := "hot"
					if rand.IntN(2) == 0 {
						key = fmt.Sprint("cold", rand.IntN(200))
					}
					least := finished.Load()
					if v, err := c.Get(context.Background(), key); err != nil || key == "hot" && v < least {
						t.Errorf("process %d read version %d of %s, %v, after %d was written", i, v, key, err, least)
						return
					}
				}
			})
		}
	}
	knows := func(c *hotcache.Cache[string, uint64]) bool {
		hot := c.HotKeys()
		return len(hot) > 0 && hot[0].Key == "hot" && len(hot[0].Nodes) == len(nodes)
	}
	soon(t, "the key is hot in all processes, and copies answer", func() bool {
		for _, c := range caches {
			if !knows(c) || c.Stats().Reads["copy"] < 50 {
				return false
			}
		}
		return true
	})
	for i := range 100 {
		v := written.Add(1)
		if err := caches[i%3].Invalidate(t.Context(), "hot", hotcache.Version(v)); err != nil {
			t.Fatal(err)
		}
		finished.Store(v)
	}
	soon(t, "the set of hot keys is kept", func() bool {
		for _, n := range nodes {
			if c, err := n.Node.GetCopy(t.Context(), "\x00latchkey:hot"); err == nil && c != nil {
				return true
			}
		}
		return false
	})
	end()
	newcomer := join()
	soon(t, "a process that begins knows the key, with nobody there to tell", func() bool { return knows(newcomer) })
	for _, c := range caches {
		if s := c.Stats(); s.HotBroken > 0 || s.HotHeard == 0 {
			t.Errorf("reports: %d heard, %d broken", s.HotHeard, s.HotBroken)
		}
	}
}
