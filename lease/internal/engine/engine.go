package engine

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Config sets an engine up.
type Config struct {
	// Token is the floor: the first token granted is above it.
	Token lease.Token
	// Durable makes the engine write journal records.
	Durable bool
	// Lazy says that the journal may lose what it acknowledged (policies
	// interval and never). Leases of more than LazyTTL are then synced all the
	// same, so that after an unclean end nothing has to wait longer than LazyTTL.
	Lazy bool
}

// LazyTTL is the longest ttl whose grant may be acknowledged before it is synced
// under a lazy policy: the longest time that a restart must grant nothing.
const LazyTTL = time.Minute

// reserve is how many tokens one durable mark sets aside: a mark costs a sync,
// a crash wastes the rest.
const reserve = 10_000

// Engine is the state of a lease service.
type Engine struct {
	cfg Config
	now time.Duration

	keys     table[*key]
	ids      index
	sessions map[string]*Session
	outcomes outcomes

	holdEnds  wheel[*hold]
	waitEnds  wheel[*waiter]
	graceEnds wheel[*Session]
	delayEnds wheel[*delay]

	token uint64        // last one granted
	safe  uint64        // last one whose grant is in the journal
	mark  uint64        // tokens up to here are reserved in the journal
	most  time.Duration // longest unsynced ttl promised, as the journal knows it
	seq   uint64        // arrivals

	quietUntil time.Duration // recovering: nothing is granted before
	failed     string        // why nothing is granted at all
	closed     bool
	watched    bool // somebody wants events
	dirty      []*key
	contended  map[*key]struct{} // keys with waiters
	search     deadlockSearch
	out        Output
	stats      lease.Stats
}

// New returns an empty engine at time zero.
func New(cfg Config) *Engine {
	seed := maphash.MakeSeed()
	return &Engine{
		cfg:       cfg,
		keys:      newTable[*key](seed),
		ids:       newIndex(seed),
		sessions:  make(map[string]*Session),
		contended: make(map[*key]struct{}),
		outcomes:  newOutcomes(seed),
		token:     uint64(cfg.Token),
		mark:      uint64(cfg.Token),
	}
}

// Out returns the effects and records since the last call of its Reset. The
// owner journals the records, then carries the effects out, then resets it.
func (e *Engine) Out() *Output { return &e.out }

// Watch turns events on or off.
func (e *Engine) Watch(on bool) { e.watched = on }

// maxDue bounds what one Advance ends of each kind, so that a million leases that
// end at once do not keep everybody else waiting for a second.
const maxDue = 10_000

// Advance moves time to now: what is due ends, and what it held is granted on.
// When very much is due, Next says that there is more to do at once. A time before
// the last one is taken as the last one.
func (e *Engine) Advance(now time.Duration) {
	if now < e.now {
		return
	}
	e.now = now
	e.holdEnds.advance(now, maxDue, func(h *hold) {
		e.lose(h, lease.EventExpired, lease.ErrExpired, "")
	})
	e.graceEnds.advance(now, maxDue, func(s *Session) {
		e.endSession(s, lease.ErrSessionLost)
	})
	e.delayEnds.advance(now, maxDue, func(d *delay) {
		d.key.busy.delay = nil
		e.record(Record{Kind: recDelay, Key: d.key.name}, false)
		e.touched(d.key)
	})
	e.waitEnds.advance(now, maxDue, func(w *waiter) {
		e.refuseWaiter(w, e.timeout(w))
		e.stats.TimedOut++
	})
	if e.quietUntil > 0 && now >= e.quietUntil {
		e.quietUntil = 0
		e.record(Record{Kind: recQuiet}, false)
		for _, k := range e.contendedKeys() {
			e.touched(k)
		}
	}
	e.pass()
}

// Next returns when Advance has work to do, if nothing else happens.
func (e *Engine) Next() (time.Duration, bool) {
	at, ok := e.holdEnds.next()
	for _, n := range []func() (time.Duration, bool){e.waitEnds.next, e.graceEnds.next, e.delayEnds.next} {
		if t, has := n(); has && (!ok || t < at) {
			at, ok = t, true
		}
	}
	if e.quietUntil > 0 && (!ok || e.quietUntil < at) {
		at, ok = e.quietUntil, true
	}
	return at, ok
}

// nextToken takes a token, reserving more in the journal when they run out.
func (e *Engine) nextToken() uint64 {
	e.token++
	if e.cfg.Durable && e.token > e.mark {
		e.mark = e.token + reserve
		e.record(Record{Kind: recMark, Token: e.mark, TTL: e.most}, true)
	}
	return e.token
}

// tokensLeft reports whether n more tokens can be granted.
func (e *Engine) tokensLeft(n int) bool {
	return e.token+uint64(n) < uint64(lease.MaxToken)
}

// Committed says that the records so far are as durable as the policy promises.
func (e *Engine) Committed() { e.safe = e.token }

// Fail stops all granting for good: the journal cannot be trusted. Waiters are
// answered, holders keep what they have, but a grant since the last Committed
// may be in the journal or not: nobody is told of it, now or on asking again.
func (e *Engine) Fail(reason string) {
	e.failed = reason
	e.stats.Failed = reason
	var doubtful []*hold
	for r := range e.ids.all {
		for i := range r.holds {
			if r.holds[i].token > e.safe {
				doubtful = append(doubtful, &r.holds[i])
			}
		}
	}
	slices.SortFunc(doubtful, func(a, b *hold) int { return cmp.Compare(a.token, b.token) })
	for _, h := range doubtful {
		e.drop(h, lease.EventEnded, lease.ErrUnknown)
	}
	e.dropWaiters(&lease.Error{Code: lease.ErrUnavailable, Op: "acquire", Reason: reason})
}

// Close answers every waiter with ErrClosed and grants nothing more. Holds stay
// as they are, for a journal to keep.
func (e *Engine) Close() {
	e.closed = true
	e.dropWaiters(&lease.Error{Code: lease.ErrClosed, Op: "acquire", Reason: "the service is shutting down"})
}

func (e *Engine) dropWaiters(err error) {
	for _, k := range e.contendedKeys() {
		for k.waiting() != nil {
			e.refuseWaiter(k.waiting().head.w, err)
		}
	}
	e.pass() // frees the keys that nothing is left of
}

// contendedKeys lists the keys with waiters in an order that depends on nothing
// else.
func (e *Engine) contendedKeys() []*key {
	return slices.SortedFunc(maps.Keys(e.contended), func(a, b *key) int { return cmp.Compare(a.name, b.name) })
}

// unready says why nothing can be granted now, or nil.
func (e *Engine) unready() *lease.Error {
	switch {
	case e.closed:
		return &lease.Error{Code: lease.ErrClosed, Reason: "the service is shutting down"}
	case e.failed != "":
		return &lease.Error{Code: lease.ErrUnavailable, Reason: e.failed}
	}
	return nil
}
