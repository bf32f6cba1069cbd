package lease

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Party is the public face of a session: what people see of it. Ids are never
// part of it.
type Party struct {
	Session string // the session's name
	Host    string
	PID     int
	Label   string // the request's label
}

// Who names a party for people in one short text.
func (p Party) Who() string {
	s := p.Session
	if s == "" {
		s = "unnamed session"
	}
	if p.Label != "" {
		s += fmt.Sprintf(" %q", p.Label)
	}
	switch {
	case p.Host != "" && p.PID != 0:
		s += fmt.Sprintf(" on %s pid %d", p.Host, p.PID)
	case p.Host != "":
		s += " on " + p.Host
	case p.PID != 0:
		s += fmt.Sprintf(" pid %d", p.PID)
	}
	return s
}

// Holder is one hold of a key as shown to people.
type Holder struct {
	Party
	Mode      Mode
	Limit     int // counted holds only
	Token     Token
	Since     time.Duration // time held so far
	TTL       time.Duration // or Forever
	Remaining time.Duration // until its ttl runs out, or Forever
	Detached  bool          // outlives its session
	Broken    bool          // its session has no connection just now
}

// Waiter is one waiting request of a key as shown to people.
type Waiter struct {
	Party
	Mode   Mode
	Limit  int
	Keys   int           // keys of the request
	Age    time.Duration // time waited so far
	Left   time.Duration // until its bound on waiting, or Forever
	Broken bool          // passed over until its session comes back
}

// KeyInfo is the state of one key: holders in the order of their grants and
// waiters in the order of their arrival.
type KeyInfo struct {
	Key     string
	Holders []Holder
	Waiters []Waiter
	Waiting int           // number of waiters, also when Waiters was cut
	Delay   time.Duration // what is left of a lock-delay
}

// Query selects keys. The zero value selects all.
type Query struct {
	Key       string // exactly this key, or
	Prefix    string // keys with this prefix
	After     string // listing only: keys that sort after this one
	Limit     int    // listing only: most keys returned, 0 means 1000, at most MaxListed
	Contended bool   // listing only: keys with waiters, most waiters first; After is ignored
	Brief     bool   // listing only: waiters are counted and not told, which is cheap however many they are
}

// Matches reports whether a key is selected by Key and Prefix.
func (q Query) Matches(key string) bool {
	if q.Key != "" {
		return key == q.Key
	}
	return len(key) >= len(q.Prefix) && key[:len(q.Prefix)] == q.Prefix
}

// Listing is the answer to a Query, sorted by key.
type Listing struct {
	Keys []KeyInfo
	More bool // there are more keys after the last one
}

// EventKind says what happened to a key.
type EventKind string

// The kinds of events.
const (
	EventGranted  EventKind = "granted"
	EventReleased EventKind = "released"
	EventExpired  EventKind = "expired"
	EventForced   EventKind = "forced"
	EventEnded    EventKind = "ended"    // the hold's session ended
	EventQueued   EventKind = "queued"   // a request began to wait
	EventDequeued EventKind = "dequeued" // a request left without a grant
	EventDetached EventKind = "detached" // the hold now outlives its session
	// EventGap says that events were dropped because the watcher was slow or
	// was cut off: list again, the state may have changed in any way.
	EventGap EventKind = "gap"
)

// Event is something that happened to a key, as shown to a watcher. With a
// journal it is told after it is durable.
type Event struct {
	Kind EventKind
	Party
	Key   string
	Mode  Mode
	Limit int
	Token Token         // of the hold concerned; zero for queued and dequeued
	After time.Duration // waited (granted, dequeued) or held (the ends)
	Code  Code          // why a request was dequeued
}

// ForceRequest is an administrator's release.
type ForceRequest struct {
	Key    string
	Token  Token  // only this hold; zero means every hold of the key
	By     string // who does it, for the log and the event
	Reason string
}

// Check reports, as ErrRefused, what breaks a rule or a limit. Services call it.
func (f ForceRequest) Check() error {
	if err := CheckKey(f.Key); err != nil {
		return err
	}
	for _, t := range []struct{ name, value string }{{"by", f.By}, {"reason", f.Reason}} {
		if len(t.value) > MaxLabelLength {
			return Refuse("%s is %d bytes, at most %d are allowed (MaxLabelLength)", t.name, len(t.value), MaxLabelLength)
		}
		if !utf8.ValidString(t.value) {
			return Refuse("%s is not valid UTF-8", t.name)
		}
	}
	return nil
}

// Forced is the answer to a ForceRequest.
type Forced struct {
	Holds []Hold // what was ended
	// Token is a fresh token above all of them: telling it to the resource
	// fences the old holders off at once.
	Token Token
}

// Stats are counters and gauges of a service. Counters count from its start.
type Stats struct {
	Service    string // which implementation: "local", "remote"
	Durability string // "memory", "always", "interval 100ms", "never"
	Fencing    string // where tokens come from: "journal" or "clock"
	Failed     string // why nothing is granted until a restart, empty if all is well
	Recovering time.Duration

	Uptime        time.Duration
	Keys          int // keys with a holder, a waiter or a lock-delay
	Holds         int // keys held, counting each holder
	SharedHolds   int
	ManyHolds     int // leases of more than one key that still hold any
	Waiters       int // waiting requests
	ContendedKeys int
	Sessions      int
	Broken        int // sessions without a connection
	Watches       int
	Timers        int
	LastToken     Token

	Granted, Released, Expired, Forced, Ended uint64 // Ended: with their session
	Queued, Busy, TimedOut, Cancelled         uint64
	Refused, Deadlocks, Repeats, Renewals     uint64

	Wait Histogram // time in the queue of granted requests that waited
	Hold Histogram // time held, of ended holds
	Sync Histogram // time of one journal sync

	JournalRecords, JournalFrames, JournalSyncs, JournalBytes uint64
	Snapshots                                                 uint64
}

// Histogram counts durations in buckets that double: bucket i counts those
// below 1 µs << i, the last one all the rest.
type Histogram struct {
	Buckets [HistogramBuckets]uint64
	Count   uint64
	Sum     time.Duration
}

// HistogramBuckets is the number of buckets: the last but one ends at about
// 4.6 hours.
const HistogramBuckets = 36

// Observe adds one duration.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < HistogramBuckets-1 && d >= time.Microsecond<<i {
		i++
	}
	h.Buckets[i]++
	h.Count++
	h.Sum += max(d, 0)
}

// Bound is the upper bound of bucket i, or Forever for the last.
func (h *Histogram) Bound(i int) time.Duration {
	if i >= HistogramBuckets-1 {
		return Forever
	}
	return time.Microsecond << i
}
