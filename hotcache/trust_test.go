package hotcache_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A trustNode notes for how long its followers want to be among the members.
type trustNode struct {
	*hotcache.Embedded
	trust *atomic.Int64
}

type trustFeed struct {
	hotcache.Feed
	trust *atomic.Int64
}

func (n trustNode) Follow(as hotcache.Member, l hotcache.Listener) (hotcache.Feed, error) {
	f, err := n.Embedded.Follow(as, l)
	return trustFeed{f, n.trust}, err
}

func (f trustFeed) Beat(ctx context.Context, trust time.Duration) (hotcache.Position, error) {
	f.trust.Store(int64(trust))
	return f.Feed.Beat(ctx, trust)
}

// TestMembersOutliveTrust: by a clock that is a little fast, a node must not take a process off the list of its members
// while that still trusts its memory by a slower one.
func TestMembersOutliveTrust(t *testing.T) {
	node := trustNode{hotcache.NewEmbedded(hotcache.Rules{}), new(atomic.Int64)}
	const trust = 100 * time.Millisecond
	c, err := hotcache.New(func(context.Context, string, hotcache.Version) (string, hotcache.Version, error) {
		return "", 1, nil
	}, hotcache.Options[string, string]{Nodes: []hotcache.NamedNode{{Name: "a", Node: node}}, Trust: trust})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(node.trust.Load()); got < trust+trust/100 {
		t.Errorf("the node counts a member for %v, which trusts its memory for %v by its own clock", got, trust)
	}
}
