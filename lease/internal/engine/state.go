package engine

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// key is the record of one key. It exists while the key has a holder, a waiter
// or a lock-delay, and is freed with the last of them: a forgotten key leaves
// nothing behind.
type key struct {
	name        string
	next        *key  // in the bucket of Engine.keys
	first, last *hold // holders in the order of their grants
	busy        *busy // nil for most
	n           int32 // holders
	limit       int32 // smallest limit among the holders; 0 when they are shared
	dirty       bool  // listed in Engine.dirty
}

func (k *key) hashed() string { return k.name }
func (k *key) chain() **key   { return &k.next }

// busy is what only a key has that somebody waits for.
type busy struct {
	queue queue
	delay *delay // nil for none
}

// waiting returns the key's queue, which may be nil.
func (k *key) waiting() *queue {
	if k == nil || k.busy == nil || k.busy.queue.n == 0 {
		return nil
	}
	return &k.busy.queue
}

// delayed returns the key's lock-delay, which may be nil.
func (k *key) delayed() *delay {
	if k == nil || k.busy == nil {
		return nil
	}
	return k.busy.delay
}

func (k *key) more() *busy {
	if k.busy == nil {
		k.busy = &busy{}
	}
	return k.busy
}

// hold is one key held by one request. Its fields are ordered and sized for a
// million of them.
type hold struct {
	wheelLinks links[*hold]
	key        *key
	req        *request
	next, prev *hold // neighbours among the key's holders
	token      uint64
	end        time.Duration // or never
	since      time.Duration
}

func (h *hold) links() *links[*hold] { return &h.wheelLinks }
func (h *hold) due() time.Duration   { return h.end }

// live reports whether the hold has not ended.
func (h *hold) live() bool { return h.token != 0 }

// request is a request while it waits and while it holds.
type request struct {
	id           string
	sess         *Session
	wait         *waiter // nil once granted
	extra        *extra  // nil for most
	holds        []hold  // one per key in key order, none while it waits
	ttl          time.Duration
	snext, sprev *request // neighbours in the session's list
	next, twin   *request // in the bucket of Engine.ids, and others of the same id: see index
	limit        int32    // 1 for exclusive, 0 for shared
	mode         lease.Mode
	live         uint8 // holds that have not ended, at most lease.MaxKeys
	flags        requestFlags
	one          [1]hold // where holds points for a single key: one allocation less
}

type requestFlags uint8

const (
	detached     requestFlags = 1 << iota // outlives its session
	prefers                               // a shared request that passes waiting writers
	ttlChanged                            // a renewal changed the ttl since the grant
	synced                                // its records are synced under every policy
	sessionEnded                          // detached, and not in a session's list any more
	namesake                              // not the first with its id in Engine.ids
)

// extra holds what few requests have.
type extra struct {
	label     string
	maxHold   time.Duration
	maxEnd    time.Duration // since grant + maxHold
	lockDelay time.Duration
	waited    time.Duration // time in the queue before the grant
}

func (r *request) hashed() string   { return r.id }
func (r *request) chain() **request { return &r.next }

func (r *request) more() *extra {
	if r.extra == nil {
		r.extra = &extra{}
	}
	return r.extra
}

func (r *request) label() string {
	if r.extra == nil {
		return ""
	}
	return r.extra.label
}

// waiter is the part of a request that exists only while it waits.
type waiter struct {
	wheelLinks links[*waiter]
	req        *request
	callers    []lease.Caller // none: passed over until its session asks again
	place                     // in every queue
	until      time.Duration  // bound on waiting, or never
	nodes      []node         // one per key in key order
	where      *key           // nothing but a change there can let it in; nil: not known
	declared   []*request     // holds that wait for this request
	mark       *mark          // scratch of the deadlock search
}

// place is the order of arrival.
type place struct {
	arrival time.Duration // before the start when it waited already
	seq     uint64        // order among equal arrivals
}

func (p place) before(o place) bool {
	return p.arrival < o.arrival || p.arrival == o.arrival && p.seq < o.seq
}

func (w *waiter) links() *links[*waiter] { return &w.wheelLinks }
func (w *waiter) due() time.Duration     { return w.until }

// active reports whether somebody is there to be told of a grant.
func (w *waiter) active() bool { return len(w.callers) > 0 }

// delay is a lock-delay on a key.
type delay struct {
	wheelLinks links[*delay]
	key        *key
	until      time.Duration
}

func (d *delay) links() *links[*delay] { return &d.wheelLinks }
func (d *delay) due() time.Duration    { return d.until }

// Session is a session. The owner keeps the pointer together with the epoch
// that Open or Resume returned; a resume makes older epochs void.
type Session struct {
	wheelLinks links[*Session]
	id         string
	party      lease.Party
	grace      time.Duration // 0: never ends by itself, lease.NoGrace: with its connection
	seen       time.Duration // last sign of life
	notify     func(lease.Notice)
	settled    func()
	first      *request
	requests   int
	epoch      uint32
	broken     bool
	ended      bool
	journaled  bool
	told       bool // listed in Output.Told
}

func (s *Session) links() *links[*Session] { return &s.wheelLinks }

func (s *Session) due() time.Duration {
	switch {
	case s.grace > 0:
		return s.seen + s.grace
	case s.grace == 0 && s.broken:
		return s.seen + lease.DefaultGrace
	}
	return never
}

// ID is the session's id.
func (s *Session) ID() string { return s.id }

// Settled is what the session wants called after its callbacks, or nil.
func (s *Session) Settled() func() { return s.settled }

// Grace is the session's grace as the service keeps it.
func (s *Session) Grace() time.Duration { return s.grace }

func (s *Session) link(r *request) {
	r.snext = s.first
	if s.first != nil {
		s.first.sprev = r
	}
	s.first = r
	s.requests++
}

func (s *Session) unlink(r *request) {
	if r.flags&sessionEnded != 0 {
		return
	}
	if r.sprev != nil {
		r.sprev.snext = r.snext
	} else {
		s.first = r.snext
	}
	if r.snext != nil {
		r.snext.sprev = r.sprev
	}
	r.snext, r.sprev = nil, nil
	s.requests--
}
