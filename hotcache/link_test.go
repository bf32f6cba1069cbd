package hotcache_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A farNode takes a while for every message between members.
type farNode struct {
	*hotcache.Embedded
	tells *atomic.Int64
}

type farFeed struct {
	hotcache.Feed
	node farNode
}

const farAway = 100 * time.Millisecond

func (n farNode) Follow(as hotcache.Member, l hotcache.Listener) (hotcache.Feed, error) {
	f, err := n.Embedded.Follow(as, l)
	return farFeed{f, n}, err
}

// Tell takes its time, in a synctest bubble.
func (f farFeed) Tell(ctx context.Context, to hotcache.Member, text string) error {
	f.node.tells.Add(1)
	time.Sleep(farAway)
	return f.Feed.Tell(ctx, to, text)
}

// TestManyAcknowledgements: those of many invalidations at the same time, of several writers, take about two round trips
// and not one each; and none of them has the proofs wait by which memory is served.
func TestManyAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const writers, each = 3, 50
		node := farNode{hotcache.NewEmbedded(hotcache.Rules{}), new(atomic.Int64)}
		var caches []*hotcache.Cache[int, int]
		for range writers + 1 {
			c, err := hotcache.New(func(_ context.Context, key int, _ hotcache.Version) (int, hotcache.Version, error) {
				return key, 1, nil
			}, hotcache.Options[int, int]{Nodes: []hotcache.NamedNode{{Name: "a", Node: node}}, Trust: 400 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if err := c.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			caches = append(caches, c)
		}
		began := time.Now()
		var all sync.WaitGroup
		for i := range writers * each {
			all.Go(func() {
				if err := caches[i%writers].Invalidate(t.Context(), i, 2); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if took := time.Since(began); took > 3*farAway {
			t.Errorf("they took %v", took)
		}
		if n := node.tells.Load(); n > 100 {
			t.Errorf("%d messages for %d invalidations of %d writers", n, writers*each, writers)
		}
		for range 20 {
			time.Sleep(10 * time.Millisecond)
			if l := caches[writers].Lag()[0]; l.Age > 110*time.Millisecond {
				t.Errorf("the last proof is of %v ago", l.Age)
			}
		}
	})
}
