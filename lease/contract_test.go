package lease_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Every way to break a rule of a request is refused with a reason that names it,
// and the caller's slices stay as they were.
func TestNormalizeRefuses(t *testing.T) {
	var keys []string
	for i := range lease.MaxKeys + 1 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	long := func(n int) string { return strings.Repeat("x", n+1) }
	for says, change := range map[string]func(r *lease.Request){
		"at least one key":         func(r *lease.Request) { r.Keys = nil },
		"65 keys in one":           func(r *lease.Request) { r.Keys = keys },
		`"a" appears twice`:        func(r *lease.Request) { r.Keys = []string{"a", "b", "a"} },
		"key is empty":             func(r *lease.Request) { r.Keys = []string{"a", ""} },
		"MaxKeyLength":             func(r *lease.Request) { r.Keys = []string{long(lease.MaxKeyLength)} },
		"key is not valid UTF-8":   func(r *lease.Request) { r.Keys = []string{"\xff"} },
		"only a counted request":   func(r *lease.Request) { r.Limit = 1 },
		"positive integer, got 0":  func(r *lease.Request) { r.Mode = lease.Counted },
		"positive integer, got -3": func(r *lease.Request) { r.Mode, r.Limit = lease.Counted, -3 },
		"MaxHolders":               func(r *lease.Request) { r.Mode, r.Limit = lease.Counted, lease.MaxHolders+1 },
		"9 is not a mode":          func(r *lease.Request) { r.Mode = 9 },
		"only a shared request":    func(r *lease.Request) { r.PreferReaders = true },
		"ttl: -1ns is negative":    func(r *lease.Request) { r.TTL = -1 },
		"MaxTTL); ask for Forever": func(r *lease.Request) { r.TTL = lease.MaxTTL + 1 },
		"MaxIDLength":              func(r *lease.Request) { r.ID = long(lease.MaxIDLength) },
		"id is not valid UTF-8":    func(r *lease.Request) { r.ID = "\xff" },
		"MaxLabelLength":           func(r *lease.Request) { r.Label = long(lease.MaxLabelLength) },
		"label is not valid UTF-8": func(r *lease.Request) { r.Label = "\xff" },
		"wait: -1ns is negative":   func(r *lease.Request) { r.Wait = -1 },
		"MaxWait); leave it out":   func(r *lease.Request) { r.Wait = lease.MaxWait + 1 },
		"a try does not wait":      func(r *lease.Request) { r.Try, r.Wait = true, 1 },
		"waited: ":                 func(r *lease.Request) { r.Waited = -1 },
		"max hold: ":               func(r *lease.Request) { r.MaxHold = lease.MaxTTL + 1 },
		"lock delay: ":             func(r *lease.Request) { r.LockDelay = lease.MaxLockDelay + 1 },
		"MaxDeclared":              func(r *lease.Request) { r.Declared = keys },
		`declared hold "" is not`:  func(r *lease.Request) { r.Declared = []string{""} },
	} {
		r := lease.Request{Keys: []string{"b", "a"}}
		change(&r)
		err := r.Normalize()
		if !errors.Is(err, lease.ErrRefused) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v", says, err)
		}
	}
	own := []string{"b", "a"}
	r := lease.Request{Keys: own, TTL: time.Second + 1}
	if err := r.Normalize(); err != nil || r.Keys[0] != "a" || own[0] != "b" || r.TTL != time.Second+time.Millisecond {
		t.Errorf("normalized %+v from %q: %v", r, own, err)
	}
}

// An error reads as one line that says what was attempted, on what, how it ended,
// and who is in the way; and it matches its code and cause.
func TestErrorText(t *testing.T) {
	holder := lease.Holder{Party: lease.Party{Session: "a", Host: "h", PID: 4, Label: "job"}, Since: time.Minute, Remaining: time.Second}
	for want, err := range map[string]error{
		`acquire "k": busy: 2 waiting ahead: held by a "job" on h pid 4 for 1m0s (1s left); b on h2 (never expires)`: &lease.Error{
			Code: lease.ErrBusy, Op: "acquire", Key: "k", Reason: "2 waiting ahead",
			Holders: []lease.Holder{holder, {Party: lease.Party{Session: "b", Host: "h2"}, Remaining: lease.Forever}}},
		`acquire "k": deadlock: a waits for "k", b waits for "j"`: &lease.Error{Code: lease.ErrDeadlock, Op: "acquire", Key: "k",
			Cycle: []lease.Wait{{Who: "a", Key: "k"}, {Who: "b", Key: "j"}}},
		`acquire "k": deadlock: you already hold this key: "k", as a`: &lease.Error{Code: lease.ErrDeadlock, Op: "acquire", Key: "k",
			Cycle: []lease.Wait{{Who: "a", Key: "k"}}},
		`"k": not held: context canceled`: &lease.Error{Code: lease.ErrNotHeld, Key: "k", Cause: context.Canceled},
		`renew: session lost`:             &lease.Error{Code: lease.ErrSessionLost, Op: "renew"},
		`refused: no 7`:                   lease.Refuse("no %d", 7),
	} {
		if err.Error() != want {
			t.Errorf("got  %s\nwant %s", err, want)
		}
	}
	if who := (lease.Party{PID: 3}).Who(); who != "unnamed session pid 3" {
		t.Errorf("who: %q", who)
	}
	if k := lease.QuoteKey(strings.Repeat("k", 100)); len(k) > 80 || !strings.HasSuffix(k, "…") {
		t.Errorf("a long key is shown as %s", k)
	}
}

func TestCodeOf(t *testing.T) {
	deep := fmt.Errorf("outer: %w", errors.Join(errors.New("plain"), &lease.Error{Code: lease.ErrBusy, Cause: lease.ErrForced}))
	for _, tt := range []struct {
		err  error
		want lease.Code
	}{
		{nil, ""}, {lease.ErrOver, lease.ErrOver}, {deep, lease.ErrBusy}, {errors.New("plain"), lease.ErrInternal},
		{fmt.Errorf("outer: %w", errors.New("plain")), lease.ErrInternal},
	} {
		if got := lease.CodeOf(tt.err); got != tt.want {
			t.Errorf("code of %v: %q, want %q", tt.err, got, tt.want)
		}
	}
	if !errors.Is(deep, lease.ErrBusy) || !errors.Is(deep, lease.ErrForced) || errors.Is(deep, lease.ErrOver) {
		t.Error("an error matches its code and its cause, and nothing else")
	}
}

// The margin grows with the ttl between its bounds, and what is safe is bounded by
// both lease and session, but for a detached lease.
func TestSafeUntil(t *testing.T) {
	for ttl, want := range map[time.Duration]time.Duration{
		100 * time.Millisecond: 10 * time.Millisecond, 10 * time.Second: 200 * time.Millisecond, time.Hour: time.Second,
		lease.Forever: time.Second,
	} {
		if got := lease.Margin(ttl); got != want {
			t.Errorf("margin of %v: %v, want %v", ttl, got, want)
		}
	}
	now := time.Now()
	never := time.Time{}
	for _, tt := range []struct {
		name        string
		l           lease.Lease
		session, is time.Time
	}{
		{"lease first", lease.Lease{TTL: 10 * time.Second, Deadline: now}, now.Add(time.Second), now.Add(-200 * time.Millisecond)},
		{"session first", lease.Lease{TTL: 10 * time.Second, Deadline: now}, now.Add(-time.Second), now.Add(-time.Second)},
		{"no session lease", lease.Lease{TTL: 10 * time.Second, Deadline: now}, never, now.Add(-200 * time.Millisecond)},
		{"for ever", lease.Lease{TTL: lease.Forever}, now, now},
		{"for ever, detached", lease.Lease{TTL: lease.Forever, Detached: true}, now, never},
		{"detached", lease.Lease{TTL: 10 * time.Second, Deadline: now, Detached: true}, now.Add(-time.Hour), now.Add(-200 * time.Millisecond)},
		{"neither", lease.Lease{TTL: lease.Forever}, never, never},
	} {
		if got := lease.SafeUntil(tt.l, fixed{until: tt.session}); !got.Equal(tt.is) {
			t.Errorf("%s: safe until %v, want %v", tt.name, got, tt.is)
		}
	}
}

// fixed is a session of which only the deadline is asked.
type fixed struct {
	lease.Session
	until time.Time
}

func (f fixed) Deadline() time.Time { return f.until }

// What is shown: every limit by its name, matching keys, buckets that double.
func TestShown(t *testing.T) {
	names := map[string]bool{}
	for _, l := range lease.Limits() {
		if names[l.Name] || l.Value <= 0 || l.Unit == "" || l.Note == "" || !strings.HasPrefix(l.Name, "Max") {
			t.Errorf("limit %+v", l)
		}
		names[l.Name] = true
	}
	for _, tt := range []struct {
		q    lease.Query
		key  string
		want bool
	}{
		{lease.Query{}, "any", true}, {lease.Query{Key: "a"}, "a", true}, {lease.Query{Key: "a"}, "ab", false},
		{lease.Query{Prefix: "ab"}, "abc", true}, {lease.Query{Prefix: "ab"}, "a", false},
	} {
		if got := tt.q.Matches(tt.key); got != tt.want {
			t.Errorf("%+v matches %q: %v", tt.q, tt.key, got)
		}
	}
	var h lease.Histogram
	for _, d := range []time.Duration{-1, 0, time.Microsecond, 3 * time.Millisecond, 1000 * time.Hour} {
		h.Observe(d)
	}
	if h.Count != 5 || h.Buckets[0] != 2 || h.Buckets[1] != 1 || h.Buckets[12] != 1 || h.Buckets[lease.HistogramBuckets-1] != 1 {
		t.Errorf("histogram %+v", h)
	}
	if h.Bound(12) != 4096*time.Microsecond || h.Bound(lease.HistogramBuckets-1) != lease.Forever {
		t.Errorf("bounds %v and %v", h.Bound(12), h.Bound(lease.HistogramBuckets-1))
	}
	for v, want := range map[fmt.Stringer]string{
		lease.Exclusive: "exclusive", lease.Shared: "shared", lease.Counted: "counted", lease.Mode(7): "mode(7)",
		lease.Ping: "ping", lease.Cancel: "cancel", lease.Verb(9): "verb(9)",
	} {
		if v.String() != want {
			t.Errorf("%q, want %q", v, want)
		}
	}
}
