package lease

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"
)

// Service grants leases. leaselocal is one in this process, leaseremote one
// behind a broker; both pass the suite in leasetest.
type Service interface {
	// Open begins a session or, with Resume set, takes one over. Resuming a
	// session that has ended fails with ErrSessionLost. When it is resumed while
	// another connection still has it, the older connection loses it: its
	// callbacks are not called any more.
	Open(ctx context.Context, o SessionOptions) (Session, error)

	// List returns the state of the selected keys at one moment.
	List(ctx context.Context, q Query) (Listing, error)

	// Watch calls fn with every event of the selected keys, in order, until stop
	// is called. fn must not block. Calling stop twice is harmless.
	Watch(ctx context.Context, q Query, fn func(Event)) (stop func(), err error)

	// Force ends holds of a key against their holders' will, tells them, and
	// answers with a token above theirs. ErrNotHeld if nothing matched.
	Force(ctx context.Context, f ForceRequest) (Forced, error)

	// Stats returns counters and gauges.
	Stats(ctx context.Context) (Stats, error)

	// Close refuses new requests, answers waiters with ErrClosed, makes what was
	// acknowledged durable and frees what the service uses. A second Close is
	// harmless. In a durable service leases outlive it.
	Close() error
}

// NoGrace as a session's grace ends the session the moment that its connection
// breaks, and asks for no proof of life while it stands. Such a session cannot be
// resumed, so nobody can ask for an answer again that was lost: the id of a
// request that has ended may be used for a new one.
const NoGrace time.Duration = -1

// SessionOptions describe a session.
type SessionOptions struct {
	// Name, Host and PID are shown to people; up to MaxLabelLength bytes each.
	Name string
	Host string
	PID  int

	// Grace is how long the session outlives the last sign of life of its owner,
	// up to MaxGrace. Zero is the service's default: DefaultGrace where a
	// connection can break, and for as long as the process lives where none is.
	Grace time.Duration

	// Resume is the id of a session to take over. Name, Host, PID and Grace are
	// then those it was opened with.
	Resume string

	// Notify is told of losses. It must not block. May be nil.
	Notify func(Notice)

	// Settled is called after callbacks of the session, when no more are due for
	// now: there a front end sends what they brought in one go. It must not
	// block. May be nil.
	Settled func()
}

// Notice tells a session that a hold was lost, or with an empty ID that the
// whole session was, holds and waiters together.
type Notice struct {
	ID    string // the hold
	Key   string
	Token Token
	Code  Code   // ErrExpired, ErrForced, ErrSessionLost, or ErrNotHeld: another session released it by its id
	By    string // who forced or released it, and why
}

// Session owns requests and holds; its end releases those that are not
// detached. All calls are asynchronous: they return at once, and the callback
// comes exactly once, from the service's loop, unless the session was suspended
// or taken over first.
type Session interface {
	// ID names the session. Whoever knows it can resume it.
	ID() string

	// Deadline is the instant on this process's monotonic clock up to which the
	// service is certain to keep the session without a further sign of life,
	// less the margin. It is zero for a session that ends only when it is closed.
	// It moves ahead while the service answers, and comes nearer when the machine
	// sleeps where the service does not.
	Deadline() time.Time

	// Leases returns what the session held when it was opened by a resume.
	Leases() []Lease

	// Acquire starts a request. The caller's Queued is called once if the
	// request waits, then its Done once with the outcome.
	Acquire(r Request, c Caller)

	// Do runs a command on a hold or request, or a ping. The Lease that comes
	// back has the holds concerned. done may be nil.
	Do(c Command, done func(Lease, error))

	// Lend may be called by a goroutine that is about to wait for the answer to
	// a call that it just made, and has nothing else to do: a service behind a
	// connection may read the answer on it, which saves two switches between
	// goroutines. It returns when something has come, or within some
	// tens of milliseconds, or at once. Never calling it costs nothing but time.
	Lend()

	// Suspend says that the connection behind the session broke: waiters keep
	// their place and are passed over, no callback comes any more, and the
	// session ends one grace after its last sign of life unless it is resumed.
	Suspend()

	// Close is the goodbye: it releases holds that are not detached and removes
	// waiters at once. A second Close is harmless. done may be nil.
	Close(done func(error))
}

// Caller is told how a request fares. The methods are called from the service's
// loop and must not block.
type Caller interface {
	// Queued says that the request waits. It comes before Done, if at all.
	Queued(q Queued)
	// Done brings the outcome: a lease when err is nil.
	Done(l Lease, err error)
}

// Queued tells a request that it waits.
type Queued struct {
	ID       string
	Key      string   // the first key that is in the way
	Position int      // requests ahead of this one on that key
	Ahead    []Holder // who holds that key now, at most eight
}

// Verb says what a Command does.
type Verb uint8

// The verbs of commands.
const (
	// Ping is a sign of life; its answer moves Deadline ahead.
	Ping Verb = iota
	// Renew starts the ttl anew; Command.TTL changes it, zero keeps it.
	Renew
	// Release ends the hold.
	Release
	// Detach lets the hold outlive the session; on a request that still waits,
	// it will when granted.
	Detach
	// Cancel removes the request with this ID if it waits, and releases it if it
	// was granted meanwhile: nothing is left behind. Cancelling what is not
	// there succeeds.
	Cancel
)

// String returns the name used on the wire.
func (v Verb) String() string {
	names := [...]string{"ping", "renew", "release", "detach", "cancel"}
	if int(v) >= len(names) {
		return fmt.Sprintf("verb(%d)", uint8(v))
	}
	return names[v]
}

// Command is a Verb and what it is for.
type Command struct {
	Verb Verb

	// ID names a hold of any session; the session's own comes first, and an id
	// that several other sessions use is refused.
	ID string

	// Token, instead of ID, names one key's hold of the same session.
	Token Token

	// Key, with ID, restricts renew and release to the hold of this key, and
	// detach to an id that holds it: ErrNotHeld otherwise. Empty means all.
	Key string

	TTL time.Duration // Renew only
}

// Check reports, as ErrRefused, which field of o breaks a limit.
func (o SessionOptions) Check() error {
	for _, f := range []struct{ name, value string }{{"name", o.Name}, {"host", o.Host}} {
		if len(f.value) > MaxLabelLength {
			return Refuse("session %s is %d bytes, at most %d are allowed (MaxLabelLength)", f.name, len(f.value), MaxLabelLength)
		}
		if !utf8.ValidString(f.value) {
			return Refuse("session %s is not valid UTF-8", f.name)
		}
	}
	switch {
	case o.PID < 0:
		return Refuse("session pid: %d is negative", o.PID)
	case o.Grace < 0 && o.Grace != NoGrace:
		return Refuse("session grace: %v is negative", o.Grace)
	case o.Grace > MaxGrace:
		return Refuse("session grace: %v is over %v (MaxGrace)", o.Grace, MaxGrace)
	case len(o.Resume) > MaxIDLength:
		return Refuse("session id is %d bytes, at most %d are allowed (MaxIDLength)", len(o.Resume), MaxIDLength)
	}
	return nil
}
