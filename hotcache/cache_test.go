package hotcache_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

func TestReadThrough(t *testing.T) {
	var loads atomic.Int64
	var price atomic.Int64
	price.Store(1)
	c, err := hotcache.New(func(ctx context.Context, id int64, min hotcache.Version) (string, hotcache.Version, error) {
		loads.Add(1)
		if id == 404 {
			return "", 0, hotcache.ErrNotFound
		}
		return "price", hotcache.Version(price.Load()), nil
	}, hotcache.Options[int64, string]{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if err := c.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if v, err := c.Get(ctx, 7); v != "price" || err != nil {
			t.Fatalf("Get = %q, %v", v, err)
		}
	}
	if n := loads.Load(); n != 1 {
		t.Fatalf("%d loads, want 1", n)
	}
	price.Store(2)
	if err := c.Invalidate(ctx, 7, 2); err != nil {
		t.Fatal(err)
	}
	if _, v, err := c.GetVersion(ctx, 7); v != 2 || err != nil {
		t.Fatalf("after the invalidation: version %d, %v", v, err)
	}
	for range 2 {
		if _, err := c.Get(ctx, 404); !errors.Is(err, hotcache.ErrNotFound) {
			t.Fatalf("Get of a missing row: %v", err)
		}
	}
	if n := loads.Load(); n != 3 {
		t.Fatalf("%d loads, want 3", n)
	}
	t.Logf("%+v", c.Stats())
}

func TestOneLoadForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := hotcache.NewEmbedded(hotcache.Rules{})
		var loads atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			c, err := hotcache.New(func(ctx context.Context, key string, min hotcache.Version) (string, hotcache.Version, error) {
				loads.Add(1)
				time.Sleep(50 * time.Millisecond)
				return "value", 1, nil
			}, hotcache.Options[string, string]{Nodes: []hotcache.NamedNode{{Name: "a", Node: node}}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for range 250 {
				all.Add(1)
				go func() {
					defer all.Done()
					if v, err := c.Get(t.Context(), "hot"); v != "value" || err != nil {
						t.Errorf("Get = %q, %v", v, err)
					}
				}()
			}
		}
		began := time.Now()
		all.Wait()
		if took := time.Since(began); loads.Load() != 1 || took != 50*time.Millisecond {
			t.Errorf("%d loads, all served after %v", loads.Load(), took)
		}
	})
}
