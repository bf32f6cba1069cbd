package hotcache_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/hotcache"
)

type place struct{ Shop, Shelf int }

// TestKeysOfAStruct: who has them is told what to write.
func TestKeysOfAStruct(t *testing.T) {
	load := func(context.Context, place, hotcache.Version) (string, hotcache.Version, error) {
		return "nails", 1, nil
	}
	_, err := hotcache.New(load, hotcache.Options[place, string]{})
	if !errors.Is(err, hotcache.ErrInvalid) || !strings.Contains(err.Error(), "hotcache.JSON[hotcache_test.place]()") {
		t.Errorf("without a codec: %v", err)
	}
	cache, err := hotcache.New(load, hotcache.Options[place, string]{Keys: hotcache.JSON[place]()})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if v, err := cache.Get(t.Context(), place{1, 2}); v != "nails" || err != nil {
		t.Errorf("Get = %q, %v", v, err)
	}
}
