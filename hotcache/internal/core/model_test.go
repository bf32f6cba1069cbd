package core

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A plainHome is what a Home is to be, in plain maps that forget nothing.
type plainHome struct {
	now     time.Duration
	items   map[string]kept
	leases  map[string]lease
	failed  map[string]failure
	floors  map[string][]plainFloor
	tokens  []Token
	numbers uint64
}

type plainFloor struct {
	at      time.Duration
	version Version
}

// floor is what is remembered of the invalidations of a key, if those not older than age are: than age now, or, when one
// keeps what the next one before it left, than age when the one after it came.
func (m *plainHome) floor(key string, age time.Duration, chain bool) (f floor) {
	after := m.now
	for _, x := range slices.Backward(m.floors[key]) {
		if after-x.at >= age {
			break
		}
		f.version, f.unnamed = max(f.version, x.version), f.unnamed || x.version == 0
		if chain {
			after = x.at
		}
	}
	return f
}

// TestHomeModel holds a Home against plain maps, for any row of events.
func TestHomeModel(t *testing.T) { rapid.Check(t, homeModel) }

// FuzzHomeModel does so for what a fuzzer thinks of.
func FuzzHomeModel(f *testing.F) { f.Fuzz(rapid.MakeFuzz(homeModel)) }

func homeModel(t *rapid.T) {
	rules := Rules{LeaseTTL: 900, FloorTTL: 5000, MaxFloors: 1 << 20}
	h := NewHome(0, rules, rand.New(rand.NewPCG(1, 2)))
	m := &plainHome{items: map[string]kept{}, leases: map[string]lease{}, failed: map[string]failure{}, floors: map[string][]plainFloor{}}
	key := rapid.SampledFrom([]string{"a", "b"})
	version := rapid.SampledFrom([]Version{0, 1, 2, 3, 4, Fresh})
	t.Repeat(map[string]func(*rapid.T){
		"wait": func(t *rapid.T) {
			m.now += time.Duration(rapid.SampledFrom([]int{1, 100, 450, 900, 4999, 20_000}).Draw(t, "d"))
		},
		"ask": func(t *rapid.T) {
			m.ask(t, h, key.Draw(t, "key"), version.Draw(t, "min"), rapid.Bool().Draw(t, "look"))
		},
		"fill":       func(t *rapid.T) { m.fill(t, h, key.Draw(t, "key"), version.Filter(named).Draw(t, "version")) },
		"renew":      func(t *rapid.T) { m.renew(t, h, key.Draw(t, "key")) },
		"fail":       func(t *rapid.T) { m.fail(t, h, key.Draw(t, "key")) },
		"invalidate": func(t *rapid.T) { m.invalidate(t, h, key.Draw(t, "key"), version.Filter(named).Draw(t, "version")) },
	})
}

func named(v Version) bool { return v != Fresh }

// held is the lease of a key that lasts.
func (m *plainHome) held(key string) (lease, bool) {
	l, ok := m.leases[key]
	return l, ok && m.now < l.until
}

func (m *plainHome) ask(t *rapid.T, h *Home, key string, min Version, look bool) {
	var token Token
	if !look {
		token = Token(len(m.tokens) + 1)
		m.tokens = append(m.tokens, token)
	}
	a := h.Ask(m.now, Ask{Key: key, Min: min, Token: token})
	k, there := m.items[key]
	times := k.times.Minus(m.now - k.since)
	there = there && times.Keep > 0 && min != Fresh && k.item.Version >= min
	l, held := m.held(key)
	f, off := m.failed[key]
	off = off && m.now < f.until
	want, lent := Lease, !look
	switch {
	case there && times.Hard > 0:
		want, lent = Hit, !look && times.Soft <= 0 && !held && !off
	case look:
		want = Miss
	case held:
		want, lent = Busy, false
		l.waiters = true
		m.leases[key] = l
	case off:
		want, lent = Failed, false
	}
	if a.State != want || (a.Item != nil) != there || there && (a.Item.Version != k.item.Version || a.Times != times) {
		t.Fatalf("%+v, want state %d and %+v: %v", a, want, k, there)
	}
	if lent != (a.Token == token && token != 0) || want == Busy && a.Retry != l.until-m.now || want == Failed && a.Retry != f.until-m.now {
		t.Fatalf("%+v: lease %v, %+v, %+v", a, lent, l, f)
	}
	if !lent {
		return
	}
	least, most := m.floor(key, h.rules.FloorTTL, false), m.floor(key, 2*h.rules.FloorTTL, true)
	if a.Floor < least.version || a.Floor > most.version {
		t.Fatalf("floor %d, want from %d to %d", a.Floor, least.version, most.version)
	}
	young := m.now < h.rules.FloorTTL
	if a.Min != Fresh && (young || min == Fresh || least.unnamed || a.Min != max(min, a.Floor)) || a.Min == Fresh && !young && min != Fresh && !most.unnamed {
		t.Fatalf("the load is to ask for %d: young %v, min %d, floor %+v to %+v", a.Min, young, min, least, most)
	}
	m.leases[key] = lease{token: token, until: m.now + h.rules.LeaseTTL, min: a.Min}
}

// token is that of the lease, or any.
func (m *plainHome) token(t *rapid.T, key string) Token {
	if l, ok := m.held(key); ok && rapid.Bool().Draw(t, "right") {
		return l.token
	}
	return rapid.SampledFrom(append(slices.Clone(m.tokens), 12345)).Draw(t, "token")
}

func (m *plainHome) fill(t *rapid.T, h *Home, key string, v Version) {
	token := m.token(t, key)
	times := Times{Soft: 300, Hard: 600, Keep: 20_000}
	r, wake := h.Fill(m.now, Fill{Key: key, Token: token, Item: Item{Version: v}, Times: times})
	l, held := m.held(key)
	if !held || l.token != token {
		if r.Refusal != LostLease || wake {
			t.Fatalf("%+v without the lease", r)
		}
		return
	}
	delete(m.leases, key)
	k, there := m.items[key]
	if there && m.now-k.since >= k.times.Keep {
		there = false // the node removes it only when it is asked for
	}
	least, most := m.floor(key, h.rules.FloorTTL, false), m.floor(key, 2*h.rules.FloorTTL, true)
	old := v < least.version || there && v < k.item.Version
	good := v >= most.version && (len(m.floors[key]) == 0 || v >= m.items[key].item.Version)
	if wake != l.waiters || r.Refusal == LostLease || old && r.Refusal == Stored || good && r.Refusal != Stored && v >= m.items[key].item.Version {
		t.Fatalf("%+v, wake %v, of version %d: floor %+v to %+v, there %+v", r, wake, v, least, most, k)
	}
	if r.Refusal == Stored {
		delete(m.failed, key)
		m.items[key] = kept{item: Item{Version: v}, since: m.now, times: times}
	}
}

func (m *plainHome) renew(t *rapid.T, h *Home, key string) {
	token := m.token(t, key)
	l, held := m.held(key)
	held = held && l.token == token
	if h.Renew(m.now, key, token) != held {
		t.Fatalf("renewed, want %v", held)
	}
	if held {
		l.until = m.now + h.rules.LeaseTTL
		m.leases[key] = l
	}
}

func (m *plainHome) fail(t *rapid.T, h *Home, key string) {
	token := m.token(t, key)
	l, held := m.held(key)
	held = held && l.token == token
	if wake := h.Fail(m.now, key, token, "why", 500); wake != (held && l.waiters) {
		t.Fatalf("wake %v", wake)
	}
	if held {
		delete(m.leases, key)
		m.failed[key] = failure{until: m.now + 500}
	}
}

func (m *plainHome) invalidate(t *rapid.T, h *Home, key string, v Version) {
	l, held := m.held(key)
	_, there := h.leases[key]
	inv, wake := h.Invalidate(m.now, key, v)
	m.numbers++
	m.floors[key] = append(m.floors[key], plainFloor{m.now, v})
	voids := v == 0 || l.min < v
	if inv.Number != m.numbers || inv.Key != key || inv.Version != v || held && wake != (voids && l.waiters) || !there && wake {
		t.Fatalf("%+v, wake %v, lease %+v %v", inv, wake, l, held)
	}
	if voids {
		delete(m.leases, key)
	}
	if k, ok := m.items[key]; ok && (v == 0 || k.item.Version < v) {
		delete(m.items, key)
	}
	delete(m.failed, key)
}
