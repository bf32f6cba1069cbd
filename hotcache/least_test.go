package hotcache_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// TestAbsentAtAVersionThatIsNone: a reader who asks for a version that nobody wrote must not have what does not exist
// remembered as of that version: the insert has a lower one, and would remove nothing.
func TestAbsentAtAVersionThatIsNone(t *testing.T) {
	for _, c := range []struct {
		during  bool
		version hotcache.Version // of the insert: a lower one, or the one that the reader asks for
	}{{false, 1}, {true, 1}, {false, 1_000_000}, {true, 1_000_000}} {
		during := c.during
		synctest.Test(t, func(t *testing.T) {
			var row atomic.Uint64
			cache, err := hotcache.New(func(context.Context, int64, hotcache.Version) (string, hotcache.Version, error) {
				v := row.Load()
				time.Sleep(50 * time.Millisecond)
				if v == 0 {
					return "", 0, hotcache.ErrNotFound
				}
				return "row", hotcache.Version(v), nil
			}, hotcache.Options[int64, string]{})
			if err != nil {
				t.Fatal(err)
			}
			defer cache.Close()
			if err := cache.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			read := make(chan error)
			go func() {
				_, _, err := cache.GetAtLeast(t.Context(), 1, 1_000_000)
				read <- err
			}()
			synctest.Wait()
			if !during {
				if err := <-read; !errors.Is(err, hotcache.ErrNotFound) {
					t.Fatal(err)
				}
				synctest.Wait() // until it is stored
			}
			row.Store(uint64(c.version))
			if err := cache.Invalidate(t.Context(), 1, c.version); err != nil {
				t.Fatal(err)
			}
			if during {
				<-read
				synctest.Wait()
			}
			if v, err := cache.Get(t.Context(), 1); v != "row" || err != nil {
				t.Errorf("%+v: after the insert %q, %v", c, v, err)
			}
		})
	}
}

// TestVersionThatIsNone: who asks for a version that nobody wrote gets an error, and nobody else does: not those who wait
// with him, and not those who come after him.
func TestVersionThatIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loads atomic.Int64
		cache, err := hotcache.New(func(context.Context, int64, hotcache.Version) (string, hotcache.Version, error) {
			loads.Add(1)
			time.Sleep(50 * time.Millisecond)
			return "row", 3, nil
		}, hotcache.Options[int64, string]{})
		if err != nil {
			t.Fatal(err)
		}
		defer cache.Close()
		if err := cache.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		bogus := make(chan error, 1)
		go func() {
			_, _, err := cache.GetAtLeast(t.Context(), 1, 1_000_000)
			bogus <- err
		}()
		synctest.Wait()
		for _, min := range []hotcache.Version{0, 3} {
			if v, got, err := cache.GetAtLeast(t.Context(), 1, min); v != "row" || got != 3 || err != nil {
				t.Errorf("beside him, who wants %d gets %q, %d, %v", min, v, got, err)
			}
		}
		if err := <-bogus; !errors.Is(err, hotcache.ErrOutdated) {
			t.Errorf("he gets %v", err)
		}
		synctest.Wait()
		before := loads.Load()
		if v, err := cache.Get(t.Context(), 1); v != "row" || err != nil {
			t.Errorf("after him: %q, %v", v, err)
		}
		if n := loads.Load() - before; n != 0 {
			t.Errorf("what he had loaded was loaded again, %d times", n)
		}
	})
}
