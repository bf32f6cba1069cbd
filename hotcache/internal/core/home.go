package core

import (
	"math/rand/v2"
	"time"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// Rules are the settings that every process of a fleet must share: what they promise one another depends on them.
type Rules struct {
	// LeaseTTL is how long a fill lease lasts unless it is renewed: a filler that died is replaced after that.
	LeaseTTL time.Duration
	// FloorTTL is how long a floor is remembered. It must outlive the slowest load and the lag of every replica.
	FloorTTL time.Duration
	// MaxFloors is how many are remembered. Beyond it the node forgets, begins a new generation, and has every load go
	// to the primary for FloorTTL.
	MaxFloors int
	// MaxItems bounds what a Home keeps. Redis is bounded by its own memory limit instead.
	MaxItems int
	// MaxBytes bounds the keys and data that a Home keeps, copies included; 0 is no bound.
	MaxBytes int
}

// DefaultRules are those of a fleet that says nothing else.
func DefaultRules() Rules {
	return Rules{
		LeaseTTL:  900 * time.Millisecond,
		FloorTTL:  time.Minute,
		MaxFloors: 1 << 20,
		MaxItems:  1 << 20,
		MaxBytes:  1 << 30,
	}
}

// DefaultSettings are those of a process that says nothing else. Where keys are is still to be said.
func DefaultSettings() Settings {
	return Settings{
		Rules:      DefaultRules(),
		Trust:      250 * time.Millisecond,
		FirstPause: 100 * time.Millisecond,
		LastPause:  5 * time.Second,
		MaxDirect:  32,
		MaxWaiting: 1024,
		MaxLoads:   64,
		BreakAfter: 3,
		BreakFor:   500 * time.Millisecond,
		Tries:      3,
	}
}

// An Ask is a read of a key at its home.
type Ask struct {
	Key   string
	Min   Version // the least version that will do; 0 any, Fresh none that is there already
	Token Token   // the name of the lease, if one is granted; zero only looks
}

// A State is what an [Answer] is.
type State uint8

const (
	// Hit: there is an item. If the answer has a token, the asker is to refresh it.
	Hit State = iota + 1
	// Lease: there is none, and the asker is to load and fill it.
	Lease
	// Busy: somebody else is loading it. A wake follows, and Retry is when that lease ends if it is not renewed.
	Busy
	// Failed: the last load failed, and until Retry has passed none is made.
	Failed
	// Miss: there is none, and the asker only looked.
	Miss
)

// An Answer is what a node says to an [Ask].
type Answer struct {
	State State
	Item  *Item   // for Hit; otherwise an item past its hard time that has not been invalidated, or nil
	Times Times   // of the item
	Stamp Stamp   // of the answer
	Token Token   // for Lease, and for a Hit that needs a refresh; zero otherwise
	Min   Version // with a token: what the load must ask for
	Floor Version // with a token: the least version that may be stored; what was read fresh is at least that
	Retry time.Duration
	Why   string // for Failed
}

// A Fill stores what a lease holder loaded.
type Fill struct {
	Key   string
	Token Token
	Item  Item
	Times Times
}

// A Refusal says why a fill was not stored.
type Refusal uint8

const (
	// Stored: it was.
	Stored Refusal = iota
	// LostLease: the lease had ended, or an invalidation voided it.
	LostLease
	// Outdated: the version is below the floor, or below that of an item that is there.
	Outdated
)

// A Filled is the outcome of a [Fill].
type Filled struct {
	Refusal Refusal
	Floor   Version // the least version that may be stored
	Stamp   Stamp
}

// An Invalidation is one number of a node's feed: what is older than Version must not be served any more.
type Invalidation struct {
	feed.Change
	Key     string
	Version Version // 0: everything older than this invalidation
}

// A Home is the state of one node: items, floors, leases and failures, and its position in its own feed. It is not
// safe for concurrent use.
//
// A key that a Home does not know has either never been invalidated here, or its floor was forgotten. The two look
// alike, so a Home that may have forgotten anything begins a new generation, and for FloorTTL has every load go to the
// primary.
type Home struct {
	rules  Rules
	random *rand.Rand
	at     feed.Position
	born   time.Duration // of the generation
	items  lru[*kept]
	copies lru[keptCopy] // of what other nodes are the homes of
	leases map[string]lease
	swept  time.Duration // when leases were last looked through
	failed map[string]failure
	floors floors
}

type kept struct {
	item  Item
	since time.Duration // when times was counted
	times Times
}

type lease struct {
	token   Token
	until   time.Duration
	min     Version // what its load must reach
	waiters bool
}

type failure struct {
	why   string
	until time.Duration
}

// NewHome returns an empty node at the beginning of a generation.
func NewHome(now time.Duration, rules Rules, random *rand.Rand) *Home {
	h := &Home{rules: rules, random: random, copies: newCopies(rules)}
	h.begin(now)
	return h
}

// begin starts a generation, with nothing in it.
func (h *Home) begin(now time.Duration) {
	h.at = feed.Position{Generation: h.nonce(), Nonce: h.nonce()}
	h.born = now
	h.items = newLRU(h.rules.MaxItems, h.rules.MaxBytes, func(k *kept) int { return len(k.item.Data) })
	h.share()
	h.leases, h.failed = map[string]lease{}, map[string]failure{}
	h.floors = floors{present: map[string]floor{}, since: now}
}

func (h *Home) nonce() uint64 {
	for {
		if n := h.random.Uint64(); n != 0 {
			return n
		}
	}
}

// At returns the node's position in its feed.
func (h *Home) At() feed.Position { return h.at }

// Len returns how many items and copies there are, and the bytes of their keys and data.
func (h *Home) Len() (items, bytes int) {
	return h.items.len() + h.copies.len(), h.items.bytes + h.copies.bytes
}

// Evicted returns how many items and copies were removed to make room.
func (h *Home) Evicted() uint64 { return h.items.evicted + h.copies.evicted }

// least returns what a load of the key must ask for, and the least version that may be stored.
func (h *Home) least(now time.Duration, key string, want Version) (ask, store Version) {
	f := h.floors.get(now, h.rules.FloorTTL, key)
	if want == Fresh || now-h.born < h.rules.FloorTTL {
		return Fresh, f.version // what was invalidated before this generation is not known here
	}
	if f.unnamed {
		return Fresh, f.version // without a version, only the primary is surely not older
	}
	return max(want, f.version), f.version
}

// Ask answers a read.
func (h *Home) Ask(now time.Duration, q Ask) Answer {
	a := Answer{Stamp: StampOf(h.at)}
	k, ok := h.items.get(q.Key)
	if ok {
		a.Item, a.Times = &k.item, k.times.Minus(now-k.since)
		if a.Times.Keep <= 0 {
			h.items.remove(q.Key)
			ok = false
		}
		if !ok || q.Min == Fresh || k.item.Version < q.Min {
			a.Item, a.Times = nil, Times{}
		}
	}
	good := a.Item != nil && a.Times.Hard > 0
	l, held := h.leases[q.Key]
	if held && l.until <= now {
		delete(h.leases, q.Key)
		held = false
	}
	f, off := h.failure(now, q.Key)
	switch {
	case good && (a.Times.Soft > 0 || held || off || q.Token == 0):
		a.State = Hit // not to be refreshed, being refreshed, or the refresh failed just now and what is there will do
		return a
	case good:
		a.State = Hit
	case q.Token == 0:
		a.State = Miss
		return a
	case held:
		l.waiters = true
		h.leases[q.Key] = l
		a.State, a.Retry = Busy, l.until-now
		return a
	case off:
		a.State, a.Retry, a.Why = Failed, f.until-now, f.why
		return a
	default:
		a.State = Lease
	}
	a.Token = q.Token
	a.Min, a.Floor = h.least(now, q.Key, q.Min)
	h.sweep(now)
	h.leases[q.Key] = lease{token: q.Token, until: now + h.rules.LeaseTTL, min: a.Min}
	return a
}

// maxLeases is how many leases there may be before those that have ended are looked for.
const maxLeases = 1 << 14

// sweep removes leases whose holders are gone and whose keys nobody asks for any more.
func (h *Home) sweep(now time.Duration) {
	if len(h.leases) < maxLeases || now < h.swept+h.rules.LeaseTTL {
		return
	}
	h.swept = now
	for key, l := range h.leases {
		if l.until <= now {
			delete(h.leases, key)
		}
	}
}

func (h *Home) failure(now time.Duration, key string) (failure, bool) {
	f, ok := h.failed[key]
	if ok && f.until <= now {
		delete(h.failed, key)
		return f, false
	}
	return f, ok
}

// Fill stores what a lease holder loaded, unless it must not be. wake tells whether somebody waits for the key.
func (h *Home) Fill(now time.Duration, f Fill) (r Filled, wake bool) {
	r.Stamp = StampOf(h.at)
	fl := h.floors.get(now, h.rules.FloorTTL, f.Key)
	r.Floor = fl.version
	l, ok := h.leases[f.Key]
	if !ok || l.token != f.Token || l.until <= now {
		r.Refusal = LostLease
		return r, false
	}
	delete(h.leases, f.Key)
	if f.Item.Version < fl.version {
		r.Refusal = Outdated
		return r, l.waiters
	}
	if k, there := h.items.get(f.Key); there && k.item.Version > f.Item.Version && k.times.Keep > now-k.since {
		r.Refusal, r.Floor = Outdated, max(r.Floor, k.item.Version)
		return r, l.waiters
	}
	delete(h.failed, f.Key)
	h.items.put(f.Key, &kept{item: f.Item, since: now, times: f.Times})
	return r, l.waiters
}

// Renew makes a lease last longer. It tells whether it still holds.
func (h *Home) Renew(now time.Duration, key string, t Token) bool {
	l, ok := h.leases[key]
	if !ok || l.token != t || l.until <= now {
		return false
	}
	l.until = now + h.rules.LeaseTTL
	h.leases[key] = l
	return true
}

// maxWhy is how much of a loader's error is kept for those who wait.
const maxWhy = 512

// Shortened is what is kept of a loader's error. It is not cut inside of a character.
func Shortened(why string) string {
	if len(why) <= maxWhy {
		return why
	}
	end := maxWhy
	for end > maxWhy-utf8.UTFMax && !utf8.RuneStart(why[end]) {
		end--
	}
	return why[:end]
}

// Fail ends a lease whose load failed. Until the pause is over nobody loads the key; those who ask are told why. wake
// tells whether somebody waits for the key.
func (h *Home) Fail(now time.Duration, key string, t Token, why string, pause time.Duration) (wake bool) {
	l, ok := h.leases[key]
	if !ok || l.token != t || l.until <= now {
		return false
	}
	delete(h.leases, key)
	if pause > 0 {
		h.forgetFailures(now)
		h.failed[key] = failure{why: Shortened(why), until: now + pause}
	}
	return l.waiters
}

// maxFailures is how many failures are remembered.
const maxFailures = 1 << 16

func (h *Home) forgetFailures(now time.Duration) {
	if len(h.failed) < maxFailures {
		return
	}
	for key, f := range h.failed {
		if f.until <= now {
			delete(h.failed, key)
		}
	}
	if len(h.failed) >= maxFailures {
		clear(h.failed)
	}
}

// Invalidate makes sure that nothing older than the version is given out or stored from now on; version 0 is anything
// older than this moment. It returns the number in the feed that everybody is to hear.
func (h *Home) Invalidate(now time.Duration, key string, version Version) (inv Invalidation, wake bool) {
	h.floors.turn(now, h.rules.FloorTTL)
	if h.floors.full(h.rules.MaxFloors) {
		h.begin(now) // so many floors that some must be forgotten: nothing that is here can be trusted any more
	}
	h.floors.raise(now, h.rules.FloorTTL, key, version)
	if k, ok := h.items.get(key); ok && (version == 0 || k.item.Version < version) {
		h.items.remove(key)
	}
	if l, ok := h.leases[key]; ok && (version == 0 || l.min < version) {
		delete(h.leases, key)
		wake = l.waiters
	}
	delete(h.failed, key)
	inv = Invalidation{Key: key, Version: version}
	inv.Prev = h.at.Nonce
	h.at.Number++
	h.at.Nonce = h.nonce()
	inv.Position = h.at
	return inv, wake
}

// floors remembers, for FloorTTL at least and twice that at most, the least version of each invalidated key. They live
// in two halves, of which the older is dropped as a whole, so that forgetting costs nothing.
type floors struct {
	present, former map[string]floor
	since           time.Duration // when present began
}

// A floor is what is remembered of all invalidations of a key. One without a version makes none with a version weaker,
// nor the other way round: the row may have been changed by both.
type floor struct {
	version Version // the highest that was named
	unnamed bool    // there was one without, so no version is known to be new enough
}

func (f *floors) turn(now, ttl time.Duration) {
	switch age := now - f.since; {
	case age >= 2*ttl:
		f.present, f.former, f.since = map[string]floor{}, nil, now
	case age >= ttl:
		f.present, f.former, f.since = map[string]floor{}, f.present, f.since+ttl
	}
}

// get returns the floor of a key, zero if there is none.
func (f *floors) get(now, ttl time.Duration, key string) floor {
	f.turn(now, ttl)
	if fl, ok := f.present[key]; ok {
		return fl
	}
	return f.former[key]
}

// raise notes an invalidation.
func (f *floors) raise(now, ttl time.Duration, key string, version Version) {
	old := f.get(now, ttl, key)
	f.present[key] = floor{max(old.version, version), old.unnamed || version == 0}
}

func (f *floors) full(most int) bool { return len(f.present)+len(f.former) >= most }
