package hotcache_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A badCodec does not encode what is below zero: it panics, refuses, or sleeps for an hour.
type badCodec struct{ how string }

// Encode runs in a synctest bubble.
func (b badCodec) Encode(v int) ([]byte, error) {
	if v < 0 {
		switch b.how {
		case "panics":
			panic("cannot")
		case "blocks":
			time.Sleep(time.Hour)
		case "refuses":
			return nil, errors.New("cannot")
		}
	}
	return fmt.Append(nil, v), nil
}

func (badCodec) Decode(data []byte) (v int, err error) {
	_, err = fmt.Sscan(string(data), &v)
	return v, err
}

// TestCodecThatCannotEncode: whatever the codec does, the process lives, and who reads has an error in time.
func TestCodecThatCannotEncode(t *testing.T) {
	for _, how := range []string{"panics", "blocks", "refuses"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cache, err := hotcache.New(func(_ context.Context, k int, _ hotcache.Version) (int, hotcache.Version, error) {
					return k, 1, nil
				}, hotcache.Options[int, int]{Values: badCodec{how}, LoadTimeout: time.Second})
				if err != nil {
					t.Fatal(err)
				}
				defer time.Sleep(2 * time.Hour) // on the bubble's clock, until the codec that blocks has ended
				defer cache.Close()
				begin := time.Now()
				if v, err := cache.Get(t.Context(), -1); err == nil {
					t.Errorf("read %d", v)
				}
				if took := time.Since(begin); took > 2*time.Second {
					t.Errorf("it took %v", took)
				}
				if v, err := cache.Get(t.Context(), 1); v != 1 || err != nil {
					t.Errorf("another key: %d, %v", v, err)
				}
			})
		})
	}
}

// TestMissingRowAtFresh: that a row does not exist is of no version that no insert can reach.
func TestMissingRowAtFresh(t *testing.T) {
	cache, err := hotcache.New(func(_ context.Context, _ int, min hotcache.Version) (int, hotcache.Version, error) {
		return 0, min, hotcache.ErrNotFound
	}, hotcache.Options[int, int]{})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	if _, _, err := cache.GetAtLeast(t.Context(), 1, hotcache.Fresh); !errors.Is(err, hotcache.ErrInvalid) {
		t.Errorf("a loader that returns Fresh is not told: %v", err)
	}
}
