package hotcache_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/trial"
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

// TestClosedServesNothing: a closed cache hears of no invalidation and nobody waits for it, so its memory must not be
// served, not even for the rest of its trust.
func TestClosedServesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := hotcache.NewEmbedded(hotcache.Rules{})
		var r row
		r.write(1)
		closed, other := open(t, r.load, hotcache.Options[string, uint64]{}, node), open(t, r.load, hotcache.Options[string, uint64]{}, node)
		defer other.Close()
		if err := closed.Sync(t.Context()); err != nil {
			t.Error(err)
		}
		wants(t, closed, "k", 1)
		synctest.Wait()
		wants(t, closed, "k", 1)
		if closed.Stats().Reads["memory"] == 0 {
			t.Error("memory serves nothing before the end either")
		}
		closed.Close()
		r.write(2)
		invalidate(t, other, "k", 2)
		if v, err := closed.Get(t.Context(), "k"); !errors.Is(err, hotcache.ErrClosed) {
			t.Errorf("Get = %d, %v", v, err)
		}
		if v, _, err := closed.GetVersion(t.Context(), "k"); !errors.Is(err, hotcache.ErrClosed) {
			t.Errorf("GetVersion = %d, %v", v, err)
		}
		if v, ok, err := closed.Peek(t.Context(), "k"); ok || !errors.Is(err, hotcache.ErrClosed) {
			t.Errorf("Peek = %d, %t, %v", v, ok, err)
		}
		if err := closed.Sync(t.Context()); !errors.Is(err, hotcache.ErrClosed) {
			t.Errorf("Sync = %v", err)
		}
	})
}

// slowKeys hold up whoever decodes a key, once they have begun to.
type slowKeys struct {
	hotcache.Codec[string]
	slow  *atomic.Bool
	begun chan<- struct{}
	may   <-chan struct{}
}

func (k slowKeys) Decode(data []byte) (string, error) {
	if k.slow.CompareAndSwap(true, false) {
		k.begun <- struct{}{}
		<-k.may
	}
	return k.Codec.Decode(data)
}

// TestCodecHoldsUpNobody: a codec of the user's that does not come back, while a key is dropped from memory, holds up
// nobody who is about something else.
func TestCodecHoldsUpNobody(t *testing.T) {
	var r row
	r.write(1)
	var slow atomic.Bool
	begun, may := make(chan struct{}), make(chan struct{})
	nodes := []hotcache.Node{hotcache.NewEmbedded(hotcache.Rules{}), hotcache.NewEmbedded(hotcache.Rules{})}
	c := open(t, r.load, hotcache.Options[string, uint64]{Keys: slowKeys{hotcache.Strings[string](), &slow, begun, may}}, nodes...)
	defer c.Close()
	wants(t, c, "k", 1)
	var told sync.WaitGroup
	slow.Store(true)
	told.Go(func() { invalidate(t, c, "k", 1) })
	<-begun
	trial.Soon(t, "what takes the mutex of the cache", func() { c.Stats() })
	close(may)
	told.Wait()
}

// TestLoadsMustNotOutliveFloors: what a load brings is refused by the floor of an invalidation that came meanwhile, so
// it must be over while that is remembered.
func TestLoadsMustNotOutliveFloors(t *testing.T) {
	var r row
	for _, o := range []hotcache.Options[string, uint64]{
		{LoadTimeout: time.Minute}, {LoadTimeout: 1<<63 - 1},
		{NodeTimeout: 51 * time.Second},
		{Rules: hotcache.Rules{FloorTTL: 5 * time.Second}},
	} {
		if _, err := hotcache.New(r.load, o); !errors.Is(err, hotcache.ErrInvalid) || !strings.Contains(err.Error(), "FloorTTL") {
			t.Errorf("%v, %v, %v: %v", o.LoadTimeout, o.NodeTimeout, o.Rules.FloorTTL, err)
		}
	}
}
