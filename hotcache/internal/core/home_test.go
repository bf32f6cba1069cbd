package core

import (
	"math/rand/v2"
	"testing"
	"time"
)

func testRules() Rules {
	return Rules{LeaseTTL: 900 * time.Millisecond, FloorTTL: time.Minute, MaxFloors: 100, MaxItems: 100}
}

// oldHome is a node that is older than its floors.
func oldHome() (h *Home, now time.Duration) {
	return NewHome(0, testRules(), rand.New(rand.NewPCG(1, 1))), time.Hour
}

func fill(h *Home, now time.Duration, key string, token Token, v Version) Refusal {
	r, _ := h.Fill(now, Fill{Key: key, Token: token, Item: item(v), Times: good})
	return r.Refusal
}

// TestNamedAndUnnamed: an invalidation without a version must not hide one with a version that comes later. The load
// between them was asked for as fresh, so its lease is not voided, and the floor alone refuses what it read before the
// second.
func TestNamedAndUnnamed(t *testing.T) {
	h, now := oldHome()
	h.Invalidate(now, "k", 0)
	if a := h.Ask(now, Ask{Key: "k", Token: 1}); a.State != Lease || a.Min != Fresh {
		t.Fatalf("%+v", a)
	}
	h.Invalidate(now, "k", 5)
	if r := fill(h, now, "k", 1, 4); r != Outdated {
		t.Errorf("refusal %d of version 4 after version 5 was invalidated", r)
	}
	a := h.Ask(now, Ask{Key: "k", Token: 2})
	if a.State != Lease || a.Min != Fresh || a.Floor != 5 {
		t.Errorf("%+v", a)
	}
	if r := fill(h, now, "k", 2, 5); r != Stored {
		t.Errorf("refusal %d", r)
	}
}
