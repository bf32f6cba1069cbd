package engine

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// EffectKind says what the owner has to do.
type EffectKind uint8

// The kinds of effects.
const (
	EffectDone   EffectKind = iota // Caller.Done(Lease, Err)
	EffectQueued                   // Caller.Queued(Queued)
	EffectReply                    // Reply(Lease, Err)
	EffectNotice                   // Notify(Notice)
	EffectEvent                    // tell the watchers Event
)

// Effect is one thing to do once the records before it are durable.
type Effect struct {
	Kind   EffectKind
	Caller lease.Caller
	Reply  func(lease.Lease, error)
	Notify func(lease.Notice)
	Lease  lease.Lease   // its Deadline is left to the owner:
	End    time.Duration // the earliest end of its holds, or negative for none
	Err    error

	// More holds the lease.Queued, lease.Notice or lease.Event.
	More any
}

// Output collects what a command, or a batch of them, causes.
type Output struct {
	Effects []Effect

	// Told lists the sessions whose callbacks are among the effects and that want
	// to know when these are over.
	Told []*Session

	// MustSync asks for a sync under every policy.
	MustSync bool

	log  []byte
	ends []int
}

// Records calls fn with every journal record in order. The bytes are valid until
// Reset.
func (o *Output) Records(fn func(rec []byte)) {
	from := 0
	for _, to := range o.ends {
		fn(o.log[from:to])
		from = to
	}
}

// HasRecords reports whether there is anything to journal.
func (o *Output) HasRecords() bool { return len(o.ends) > 0 }

// keep bounds the memory that an Output keeps between batches, so that one mass
// expiry does not pin its peak for ever.
const keep = 4096

// Reset empties the output for the next batch.
func (o *Output) Reset() {
	if cap(o.Effects) > keep {
		o.Effects = nil
	}
	clear(o.Effects)
	for i, s := range o.Told {
		s.told = false
		o.Told[i] = nil
	}
	o.Told = o.Told[:0]
	o.Effects = o.Effects[:0]
	if cap(o.log) > keep*64 {
		o.log, o.ends = nil, nil
	}
	o.log, o.ends, o.MustSync = o.log[:0], o.ends[:0], false
}

func (e *Engine) record(r Record, mustSync bool) {
	if !e.cfg.Durable {
		return
	}
	e.out.log = r.Append(e.out.log)
	e.out.ends = append(e.out.ends, len(e.out.log))
	e.out.MustSync = e.out.MustSync || mustSync
}

// tells notes that s gets a callback.
func (e *Engine) tells(s *Session) {
	if s.settled != nil && !s.told {
		s.told = true
		e.out.Told = append(e.out.Told, s)
	}
}

func (e *Engine) done(s *Session, callers []lease.Caller, l lease.Lease, end time.Duration, err error) {
	if len(callers) > 0 {
		e.tells(s)
	}
	for _, c := range callers {
		e.out.Effects = append(e.out.Effects, Effect{Kind: EffectDone, Caller: c, Lease: l, End: end, Err: err})
	}
}

func (e *Engine) reply(s *Session, fn func(lease.Lease, error), l lease.Lease, end time.Duration, err error) {
	if fn != nil {
		e.tells(s)
		e.out.Effects = append(e.out.Effects, Effect{Kind: EffectReply, Reply: fn, Lease: l, End: end, Err: err})
	}
}

func (e *Engine) notice(s *Session, n lease.Notice) {
	if s.notify != nil && !s.broken {
		e.tells(s)
		e.out.Effects = append(e.out.Effects, Effect{Kind: EffectNotice, Notify: s.notify, More: n})
	}
}

func (e *Engine) event(kind lease.EventKind, r *request, k *key, token uint64, after time.Duration, code lease.Code) {
	if !e.watched {
		return
	}
	p := r.sess.party
	p.Label = r.label()
	e.out.Effects = append(e.out.Effects, Effect{Kind: EffectEvent, More: lease.Event{
		Kind: kind, Party: p, Key: k.name, Mode: r.mode, Limit: shownLimit(r),
		Token: lease.Token(token), After: after, Code: code,
	}})
}

func shownLimit(r *request) int {
	if r.mode == lease.Counted {
		return int(r.limit)
	}
	return 0
}
