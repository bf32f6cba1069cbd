package hotcache_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// prices stands for a table of a database: an id, a price in cents, and a version that every update raises.
var prices = struct{ cents, version atomic.Uint64 }{}

func setPrice(cents uint64) hotcache.Version {
	prices.cents.Store(cents)
	return hotcache.Version(prices.version.Add(1))
}

// loadPrice is a loader: it returns the row and its version. With min above zero it would ask the primary.
func loadPrice(_ context.Context, id int64, min hotcache.Version) (uint64, hotcache.Version, error) {
	if id != 7 {
		return 0, 0, hotcache.ErrNotFound
	}
	fmt.Println("loading", id)
	return prices.cents.Load(), hotcache.Version(prices.version.Load()), nil
}

func ExampleNew() {
	setPrice(1999)
	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, uint64]{
		TTL:         time.Minute,
		NegativeTTL: 5 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	ctx := context.Background()
	for range 3 {
		cents, err := cache.Get(ctx, 7)
		fmt.Println(cents, err)
	}
	// Output:
	// loading 7
	// 1999 <nil>
	// 1999 <nil>
	// 1999 <nil>
}

func ExampleCache_Get() {
	setPrice(1999)
	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, uint64]{})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	_, err = cache.Get(context.Background(), 8) // that there is none is remembered too
	fmt.Println(errors.Is(err, hotcache.ErrNotFound))
	fmt.Println(err)
	// Output:
	// true
	// hotcache: key 8: not found
}

func ExampleCache_Invalidate() {
	setPrice(1999)
	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, uint64]{})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	ctx := context.Background()
	fmt.Println(cache.Get(ctx, 7))
	version := setPrice(1799) // commits
	var told *hotcache.NotInvalidatedError
	if err := cache.Invalidate(ctx, 7, version); errors.As(err, &told) {
		log.Print("it is written, and the cache does not know: ", told) // do it again, or let the outbox
	}
	fmt.Println(cache.Get(ctx, 7)) // here, and in any other process
	// Output:
	// loading 7
	// 1999 <nil>
	// loading 7
	// 1799 <nil>
}

// A request that wrote in one process, and reads in another, takes the version along.
func ExampleCache_GetAtLeast() {
	setPrice(1999)
	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, uint64]{})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	ctx := context.Background()
	fmt.Println(cache.Get(ctx, 7))
	version := setPrice(1799) // somewhere else; nobody has invalidated it yet
	cents, got, err := cache.GetAtLeast(ctx, 7, version)
	fmt.Println(cents, got >= version, err)
	// Output:
	// loading 7
	// 1999 <nil>
	// loading 7
	// 1799 true <nil>
}

func ExampleCache_Peek() {
	setPrice(1999)
	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, uint64]{})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	ctx := context.Background()
	fmt.Println(cache.Peek(ctx, 7)) // does not load
	if _, err := cache.Get(ctx, 7); err != nil {
		log.Fatal(err)
	}
	price, ok, err := cache.Peek(ctx, 7)
	for err == nil && !ok { // what a Get brought is stored a moment after it has returned
		price, ok, err = cache.Peek(ctx, 7)
	}
	fmt.Println(price, ok, err)
	// Output:
	// 0 false <nil>
	// loading 7
	// 1999 true <nil>
}

func ExampleCache_HotKeys() {
	setPrice(1999)
	nodes := make([]hotcache.NamedNode, 3) // of hotcacheredis, in a real program
	for i := range nodes {
		nodes[i] = hotcache.NamedNode{Name: fmt.Sprint("cache-", i), Node: hotcache.NewEmbedded(hotcache.Rules{})}
	}
	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, uint64]{
		Nodes: nodes, Copies: 2, HotShare: 0.05, HotWindow: 50 * time.Millisecond,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer cache.Close()

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	hot := cache.HotKeys()
	for ; len(hot) == 0 && ctx.Err() == nil; hot = cache.HotKeys() {
		if _, err := cache.Get(ctx, 7); err != nil {
			log.Fatal(err)
		}
	}
	for _, k := range hot {
		fmt.Println(k.Key, "is on", len(k.Nodes), "nodes, and has more than half of all reads:", k.Share > 0.5)
	}
	// Output:
	// loading 7
	// 7 is on 2 nodes, and has more than half of all reads: true
}
