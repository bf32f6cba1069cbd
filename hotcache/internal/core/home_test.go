package core

import (
	"math/rand/v2"
	"strconv"
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

// TestFill: a lease is good for one fill, of what is not outdated.
func TestFill(t *testing.T) {
	h, now := oldHome()
	if r := fill(h, now, "k", 1, 1); r != LostLease {
		t.Errorf("without a lease: %d", r)
	}
	h.Ask(now, Ask{Key: "k", Token: 1})
	if r := fill(h, now, "k", 2, 1); r != LostLease {
		t.Errorf("with another's lease: %d", r)
	}
	if r := fill(h, now+900*time.Millisecond, "k", 1, 1); r != LostLease {
		t.Errorf("after the lease: %d", r)
	}
	now += time.Second
	h.Ask(now, Ask{Key: "k", Token: 3})
	if r := fill(h, now, "k", 3, 5); r != Stored {
		t.Errorf("with the lease: %d", r)
	}
	if a := h.Ask(now, Ask{Key: "k", Min: 6, Token: 4}); a.State != Lease || a.Item != nil || a.Min != 6 {
		t.Errorf("%+v", a)
	}
	r, wake := h.Fill(now, Fill{Key: "k", Token: 4, Item: item(4), Times: good})
	if r.Refusal != Outdated || r.Floor != 5 || wake {
		t.Errorf("an item below the one that is there: %+v", r)
	}
	if a := h.Ask(now, Ask{Key: "k"}); a.State != Hit || a.Item.Version != 5 {
		t.Errorf("%+v", a)
	}
}

// TestAnswers: what a node says, by what it has.
func TestAnswers(t *testing.T) {
	h, now := oldHome()
	if a := h.Ask(now, Ask{Key: "k"}); a.State != Miss || a.Token != 0 {
		t.Errorf("only looking: %+v", a)
	}
	h.Ask(now, Ask{Key: "k", Token: 1})
	if a := h.Ask(now+100*time.Millisecond, Ask{Key: "k", Token: 2}); a.State != Busy || a.Retry != 800*time.Millisecond {
		t.Errorf("while it is loaded: %+v", a)
	}
	r, wake := h.Fill(now, Fill{Key: "k", Token: 1, Item: item(1), Times: Times{time.Second, 2 * time.Second, 3 * time.Second}})
	if r.Refusal != Stored || !wake {
		t.Error(r, wake)
	}
	if a := h.Ask(now+500*time.Millisecond, Ask{Key: "k", Token: 2}); a.State != Hit || a.Token != 0 || a.Times.Soft != 500*time.Millisecond {
		t.Errorf("when it is there: %+v", a)
	}
	now += time.Second
	if a := h.Ask(now, Ask{Key: "k", Token: 2}); a.State != Hit || a.Token != 2 {
		t.Errorf("when it is to be refreshed: %+v", a)
	}
	if a := h.Ask(now, Ask{Key: "k", Token: 3}); a.State != Hit || a.Token != 0 {
		t.Errorf("while it is refreshed: %+v", a)
	}
	if h.Fail(now, "k", 3, "not mine", time.Second) || h.Renew(now, "k", 3) {
		t.Error("somebody else's lease")
	}
	h.Fail(now, "k", 2, "broken", time.Second)
	if a := h.Ask(now, Ask{Key: "k", Token: 4}); a.State != Hit || a.Token != 0 {
		t.Errorf("after the refresh failed: %+v", a)
	}
	if a := h.Ask(now, Ask{Key: "k", Token: 4, Min: Fresh}); a.State != Failed || a.Why != "broken" || a.Item != nil {
		t.Errorf("fresh, after the load failed: %+v", a)
	}
	now += time.Second
	if a := h.Ask(now, Ask{Key: "k", Token: 5}); a.State != Lease || a.Item == nil || a.Times.Hard != 0 {
		t.Errorf("past its hard time: %+v", a)
	}
	if a := h.Ask(now+time.Second, Ask{Key: "k", Token: 6}); a.State != Lease || a.Item != nil {
		t.Errorf("past all its times and the lease: %+v", a)
	}
	if items, _ := h.Len(); items != 0 {
		t.Error("it is still there")
	}
}

// TestInvalidate: the number, the lease, the failure, the item and those who wait.
func TestInvalidate(t *testing.T) {
	h, now := oldHome()
	before := h.At()
	h.Ask(now, Ask{Key: "k", Token: 1})
	h.Ask(now, Ask{Key: "k", Token: 2})
	inv, wake := h.Invalidate(now, "k", 3)
	if !wake || inv.Prev != before.Nonce || inv.Number != before.Number+1 || inv.Generation != before.Generation || inv.Position != h.At() {
		t.Errorf("%+v after %+v, wake %v", inv, before, wake)
	}
	if h.Renew(now, "k", 1) || fill(h, now, "k", 1, 9) != LostLease {
		t.Error("the lease was not voided")
	}
	if a := h.Ask(now, Ask{Key: "k", Token: 3}); a.State != Lease || a.Min != 3 || a.Floor != 3 {
		t.Fatalf("%+v", a)
	}
	h.Invalidate(now, "k", 3) // the load asks for that
	h.Invalidate(now, "k", 2) // an older write was slower to tell
	if !h.Renew(now, "k", 3) {
		t.Error("a lease was voided whose load asks for what was invalidated")
	}
	if r := fill(h, now, "k", 3, 3); r != Stored {
		t.Error(r)
	}
	h.Invalidate(now, "k", 3)
	if a := h.Ask(now, Ask{Key: "k"}); a.State != Hit {
		t.Error("an item was removed that is new enough")
	}
	h.Invalidate(now, "k", 0)
	if a := h.Ask(now, Ask{Key: "k", Token: 4}); a.State != Lease || a.Min != Fresh {
		t.Errorf("%+v", a)
	}
	h.Fail(now, "k", 4, "broken", time.Hour)
	h.Invalidate(now, "k", 4)
	if a := h.Ask(now, Ask{Key: "k", Token: 5}); a.State != Lease {
		t.Errorf("a failure outlives the row that it is about: %+v", a)
	}
}

// TestFloorsAreForgotten: after FloorTTL at least and twice that at most; if there are too many the node begins anew.
func TestFloorsAreForgotten(t *testing.T) {
	h, now := oldHome()
	ttl := h.rules.FloorTTL
	h.Invalidate(now, "a", 5)
	h.Invalidate(now+ttl-1, "b", 6)
	for _, step := range []struct {
		after time.Duration
		a, b  Version
	}{{0, 5, 6}, {ttl, 5, 6}, {2*ttl - 1, 5, 6}, {2 * ttl, 0, 0}} {
		a, _ := h.least(now+step.after, "a", 0)
		if b, _ := h.least(now+step.after, "b", 0); a != step.a || b != step.b {
			t.Errorf("after %v: %d and %d", step.after, a, b)
		}
	}
	h, now = oldHome()
	h.rules.MaxFloors = 2
	h.Ask(now, Ask{Key: "k", Token: 1})
	fill(h, now, "k", 1, 1)
	h.Invalidate(now, "a", 5)
	h.Invalidate(now, "b", 5)
	before := h.At()
	inv, _ := h.Invalidate(now+3*ttl, "c", 5)
	if inv.Generation != before.Generation {
		t.Error("floors whose time is over count as room that is taken")
	}
	h.Invalidate(now+3*ttl, "d", 5)
	now += 3*ttl + 1
	inv, _ = h.Invalidate(now, "e", 5)
	if inv.Generation == before.Generation || inv.Number != 1 || inv.Prev == 0 {
		t.Errorf("%+v", inv)
	}
	if a := h.Ask(now, Ask{Key: "k", Token: 2}); a.State != Lease || a.Min != Fresh {
		t.Errorf("a node that forgot floors: %+v", a)
	}
	if a := h.Ask(now+ttl, Ask{Key: "l", Token: 3}); a.Min != 0 {
		t.Errorf("after the time of floors: %+v", a)
	}
}

// TestNegative: that there is no row is an item like another, and an insert goes over it.
func TestNegative(t *testing.T) {
	h, now := oldHome()
	h.Ask(now, Ask{Key: "k", Token: 1})
	h.Fill(now, Fill{Key: "k", Token: 1, Item: Item{Absent: true}, Times: good})
	if a := h.Ask(now, Ask{Key: "k"}); a.State != Hit || !a.Item.Absent {
		t.Fatalf("%+v", a)
	}
	h.Invalidate(now, "k", 1)
	if a := h.Ask(now, Ask{Key: "k", Token: 2}); a.State != Lease || a.Min != 1 || a.Item != nil {
		t.Errorf("%+v", a)
	}
	if r, _ := h.Fill(now, Fill{Key: "k", Token: 2, Item: Item{Absent: true}, Times: good}); r.Refusal != Outdated {
		t.Errorf("a replica that has not got the row: %+v", r)
	}
}

// TestHomeIsBounded: leases and failures of keys that nobody asks for again go too.
func TestHomeIsBounded(t *testing.T) {
	h, now := oldHome()
	name := strconv.Itoa
	for i := range maxLeases {
		h.Ask(now, Ask{Key: name(i), Token: 1})
	}
	h.Ask(now+100*time.Millisecond, Ask{Key: "x", Token: 1})
	if len(h.leases) != maxLeases+1 {
		t.Fatal(len(h.leases))
	}
	h.Ask(now+1050*time.Millisecond, Ask{Key: "y", Token: 1})
	if len(h.leases) != 1 {
		t.Errorf("%d leases are left", len(h.leases))
	}
	for i := range maxFailures {
		h.failed[name(i)] = failure{"", now + time.Duration(i%2)*time.Hour}
	}
	h.forgetFailures(now)
	if len(h.failed) != maxFailures/2 {
		t.Errorf("%d failures are left", len(h.failed))
	}
	for i := range maxFailures {
		h.failed[name(i)] = failure{"", now + time.Hour}
	}
	h.forgetFailures(now)
	if len(h.failed) != 0 {
		t.Errorf("%d failures are left", len(h.failed))
	}
	long := make([]byte, 2*maxWhy)
	h.Fail(now, "x", 1, string(long), time.Hour)
	h.rules.LeaseTTL = time.Hour
	h.Ask(now, Ask{Key: "w", Token: 1})
	h.Fail(now, "w", 1, string(long), time.Hour)
	if a := h.Ask(now, Ask{Key: "w", Token: 2}); a.State != Failed || len(a.Why) != maxWhy {
		t.Errorf("%+v", a)
	}
}

// TestEviction: items go, floors stay.
func TestEviction(t *testing.T) {
	h, now := oldHome()
	h.rules.MaxItems = 2
	h.begin(now - time.Hour)
	h.Invalidate(now, "a", 5)
	for i, key := range []string{"a", "b", "c"} {
		h.Ask(now, Ask{Key: key, Token: Token(i + 1)})
		fill(h, now, key, Token(i+1), 5)
	}
	if n, bytes := h.Len(); n != 2 || bytes != 4 || h.Evicted() != 1 {
		t.Error(n, bytes, h.Evicted())
	}
	if a := h.Ask(now, Ask{Key: "a", Token: 9}); a.State != Lease || a.Min != 5 {
		t.Errorf("%+v", a)
	}
}
