package lease

import (
	"context"
	"crypto/rand"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
)

// cancelWait is how long an acquire whose context ended waits for the answer to
// its cancel. It is short because the caller has already given up, and long
// against a round trip.
const cancelWait = time.Second

// ClientOptions describe a Client. The zero value is usable: an unnamed session
// with the service's default grace.
type ClientOptions struct {
	// SessionOptions name the session. Notify is called besides what the client
	// does with a notice.
	SessionOptions

	// OnRenewFailure is told of every renewal that failed, or that is overdue,
	// while the lease is still held; it is tried again until the deadline. It is
	// called from a timer or from the service's loop and must not block. May be
	// nil: failures are then only logged.
	OnRenewFailure func(h *Held, err error)

	// OnQueued is told, once per request that has to wait, where it stands. It
	// is called from the service's loop and must not block. May be nil.
	OnQueued func(q Queued)

	// Logger gets what cannot be returned: failing renewals, releases whose
	// answer was lost. Nil discards it.
	Logger *slog.Logger
}

// Client is the blocking side of a Service: one session, the leases held
// through it, and their renewal. When the service ends the session, every hold
// that is not detached is lost and the next request opens another session.
//
// A Client starts no goroutine of its own; timers and the service's callbacks
// do its work.
type Client struct {
	svc    Service
	opts   ClientOptions
	log    *slog.Logger
	turn   chan struct{}               // capacity one: whoever fills it may open a session
	closed chan struct{}               // closed by Close
	awake  atomic.Pointer[asleep.Mark] // the last look at how long the machine slept; nil when that does not matter

	mu    sync.Mutex // guards the fields below
	link  *link      // nil between the loss of a session and the next request
	holds map[string]*Held
	owed  map[string]*Held // over, and to be released yet; see owe
	payer *time.Timer      // runs while something is owed; nil before the first time
	done  bool             // Close was called
}

// link is one session of a client; its address tells notices of different
// sessions apart.
type link struct {
	session Session
	id      string        // as it was opened
	lost    bool          // the service ended it; guarded by Client.mu
	over    chan struct{} // closed when it is lost
	pulse   *time.Timer   // pings the session when nobody else does; nil without a deadline
	pinging atomic.Bool   // such a ping is unanswered
}

// Connect opens a session on svc. The context bounds the opening only. Closing
// the client does not close svc.
func Connect(ctx context.Context, svc Service, o ClientOptions) (*Client, error) {
	c := &Client{
		svc:    svc,
		opts:   o,
		log:    o.Logger,
		turn:   make(chan struct{}, 1),
		closed: make(chan struct{}),
		holds:  make(map[string]*Held),
		owed:   make(map[string]*Held),
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if _, err := c.open(ctx); err != nil {
		return nil, err
	}
	c.opts.Resume = "" // a session that was lost cannot be resumed again
	return c, nil
}

// Session returns the session of the moment, for asynchronous use. It is nil
// after the service ended it, until the next request opens another.
func (c *Client) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return nil
	}
	return c.link.session
}

// Acquire waits for a lease and returns it. Renewing it and stopping before its
// deadline is left to the caller; most want Hold or Do.
//
// When ctx ends first, the request is cancelled and Acquire waits up to a second
// for the answer: ErrCancelled then means that nothing is held or queued, and
// ErrUnknown that this could not be confirmed in time. Both wrap the context's
// cause. A ttl under MinClientTTL is refused.
func (c *Client) Acquire(ctx context.Context, r Request) (Lease, error) {
	r, err := c.prepare(ctx, r)
	if err != nil {
		return Lease{}, err
	}
	return c.acquire(ctx, r, nil)
}

// Renew starts the ttl of the hold with this id anew; it may be of any session.
// A ttl of zero keeps the one it has. When ctx ends before the answer, the error
// is ErrUnknown.
func (c *Client) Renew(ctx context.Context, id string, ttl time.Duration) (Lease, error) {
	if ttl != 0 {
		if err := checkClientTTL(ttl); err != nil {
			return Lease{}, err
		}
	}
	c.mu.Lock()
	h := c.holds[id]
	c.mu.Unlock()
	sent := time.Now()
	l, err := c.command(ctx, Command{Verb: Renew, ID: id, TTL: ttl})
	if err == nil && h != nil {
		h.extended(sent, l)
	}
	return l, err
}

// Release ends the hold with this id, of any session, and returns what it held.
// A Held of this client with that id is ended too, as by Held.Release. When ctx
// ends before the answer, the error is ErrUnknown.
func (c *Client) Release(ctx context.Context, id string) (Lease, error) {
	c.mu.Lock()
	h := c.holds[id]
	c.mu.Unlock()
	if h != nil {
		l := h.Lease()
		return l, h.Release(ctx)
	}
	return c.command(ctx, Command{Verb: Release, ID: id})
}

// Detach lets the hold or request with this id outlive its session. When ctx
// ends before the answer, the error is ErrUnknown.
func (c *Client) Detach(ctx context.Context, id string) (Lease, error) {
	return c.command(ctx, Command{Verb: Detach, ID: id})
}

// Close ends the session: every hold that is not detached is released, and the
// context of every Held ends with ErrClosed. It does not wait for the functions
// of Do and Lead, so return from them first. When ctx ends before the service
// answers, the error is ErrUnknown. A second Close is harmless.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	if c.done {
		c.mu.Unlock()
		return nil
	}
	c.done = true
	close(c.closed)
	k := c.link
	c.link = nil
	clear(c.owed)
	if c.payer != nil {
		c.payer.Stop()
	}
	holds := c.holdsLocked(func(*Held) bool { return true })
	c.mu.Unlock()

	for _, h := range holds {
		h.lose(&Error{Code: ErrClosed, Op: "hold", Key: h.key, Reason: "the client was closed"})
	}
	if k == nil {
		return nil
	}
	k.stop()
	answer := make(chan error, 1)
	k.session.Close(func(err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return unanswered(ctx, "close", "", "the holds end with the session's grace")
	}
}

// prepare completes a request and refuses what only a client can refuse.
func (c *Client) prepare(ctx context.Context, r Request) (Request, error) {
	r.Declared = mergeDeclared(ctx, r.Declared, r.ID)
	if err := r.Normalize(); err != nil {
		return r, err
	}
	if err := checkClientTTL(r.TTL); err != nil {
		return r, err
	}
	if r.ID == "" {
		r.ID = rand.Text() // cannot be guessed: whoever knows it can release the hold
	}
	return r, nil
}

func checkClientTTL(ttl time.Duration) error {
	if ttl < MinClientTTL {
		return Refuse("ttl: %v is under %v (MinClientTTL): the safety margin and a scheduling delay would use it up",
			ttl, MinClientTTL)
	}
	return nil
}

// attempt is one acquire in flight.
type attempt struct {
	c         *Client
	k         *link
	id        string
	held      *Held // nil when the caller renews by itself
	outcome   chan outcome
	abandoned atomic.Bool // nobody waits for the outcome any more
}

type outcome struct {
	lease Lease
	err   error
}

func (a *attempt) Queued(q Queued) {
	if f := a.c.opts.OnQueued; f != nil {
		f(q)
	}
}

// Done runs in the service's loop, so that the hold is known to the client
// before a notice of its loss can come.
func (a *attempt) Done(l Lease, err error) {
	if err == nil && a.held != nil {
		a.held.granted(l)
	}
	a.outcome <- outcome{l, err}
	// Read after the outcome was left: either the waiting side finds it there,
	// or it gave up before and the grant is given back here.
	if err == nil && a.abandoned.Load() {
		a.k.session.Do(Command{Verb: Cancel, ID: a.id}, nil)
	}
}

// acquire runs a prepared request. With h set, the grant becomes h's.
func (c *Client) acquire(ctx context.Context, r Request, h *Held) (Lease, error) {
	if ctx.Err() != nil {
		return Lease{}, &Error{Code: ErrCancelled, Op: "acquire", Key: r.Keys[0], Cause: context.Cause(ctx)}
	}
	k, err := c.session(ctx)
	if err != nil {
		return Lease{}, err
	}
	if h != nil {
		h.bind(k)
	}
	a := &attempt{c: c, k: k, id: r.ID, held: h, outcome: make(chan outcome, 1)}
	k.session.Acquire(r, a)
	k.session.Lend()
	select {
	case o := <-a.outcome:
		return c.settle(k, r, h, o)
	case <-c.closed:
		return c.orphaned(r, a, ErrClosed, "the client was closed")
	case <-k.over:
		return c.orphaned(r, a, ErrSessionLost, "the service ended the session")
	case <-ctx.Done():
		return c.abandon(ctx, r, a)
	}
}

// settle turns the service's answer into the caller's. With h set, the grant was h's.
func (c *Client) settle(k *link, r Request, h *Held, o outcome) (Lease, error) {
	if o.err != nil {
		c.judge(k, o.err)
		return Lease{}, o.err
	}
	until := SafeUntil(o.lease, k.session)
	code, reason := ErrExpired, "the grant arrived when its time was already up; it was given back"
	switch {
	case h != nil && len(o.lease.Holds) < len(r.Keys):
		// Its first answer was lost, and a key of it was forced since. A holder
		// would act on all of them.
		code, reason = ErrForced, "a key was taken away before the grant was heard; the others were given back"
	case until.IsZero() || time.Now().Before(until):
		return o.lease, nil
	}
	// The answer is of no use. Giving it back is kinder than letting the keys idle
	// until the service ends the hold.
	if h != nil {
		h.drop()
	}
	c.giveBack(&Held{c: c, id: r.ID, link: k, lease: o.lease})
	return Lease{}, &Error{Code: code, Op: "acquire", Key: r.Keys[0], Reason: reason}
}

// abandon cancels a request whose context ended.
func (c *Client) abandon(ctx context.Context, r Request, a *attempt) (Lease, error) {
	cancelled := make(chan error, 1)
	a.k.session.Do(Command{Verb: Cancel, ID: r.ID}, func(_ Lease, err error) { cancelled <- err })
	limit := time.NewTimer(cancelWait)
	defer limit.Stop()
	reason := "the cancel was not answered; a grant ends with its ttl"
	select {
	case err := <-cancelled:
		if err == nil || CodeOf(err) == ErrSessionLost && !r.Detach {
			return Lease{}, &Error{Code: ErrCancelled, Op: "acquire", Key: r.Keys[0], Cause: context.Cause(ctx)}
		}
		reason = "the cancel failed: " + err.Error() + "; a grant ends with its ttl"
	case <-limit.C:
	}
	a.abandoned.Store(true)
	select {
	case o := <-a.outcome:
		if o.err != nil && CodeOf(o.err) != ErrUnknown {
			return Lease{}, &Error{Code: ErrCancelled, Op: "acquire", Key: r.Keys[0], Cause: context.Cause(ctx)}
		}
	default:
	}
	return Lease{}, &Error{Code: ErrUnknown, Op: "acquire", Key: r.Keys[0], Reason: reason, Cause: context.Cause(ctx)}
}

// orphaned answers a request whose session is over, by this side's goodbye or by
// the service's word. Either end answers it: it removes a request that waits and
// releases a grant that was faster, but for a detached one.
func (c *Client) orphaned(r Request, a *attempt, code Code, reason string) (Lease, error) {
	limit := time.NewTimer(cancelWait)
	defer limit.Stop()
	select {
	case o := <-a.outcome:
		if o.err == nil && r.Detach {
			return o.lease, nil
		}
		if CodeOf(o.err) == ErrUnknown {
			return Lease{}, o.err
		}
	case <-limit.C:
		a.abandoned.Store(true)
		if r.Detach || code == ErrClosed {
			code = ErrUnknown
		}
	}
	return Lease{}, &Error{Code: code, Op: "acquire", Key: r.Keys[0], Reason: reason}
}

// command runs one command and waits for its answer or the end of ctx.
func (c *Client) command(ctx context.Context, cmd Command) (Lease, error) {
	if ctx.Err() != nil {
		return Lease{}, &Error{Code: ErrCancelled, Op: cmd.Verb.String(), Cause: context.Cause(ctx)}
	}
	k, err := c.session(ctx)
	if err != nil {
		return Lease{}, err
	}
	answer := make(chan outcome, 1)
	k.session.Do(cmd, func(l Lease, err error) { answer <- outcome{l, err} })
	k.session.Lend()
	select {
	case o := <-answer:
		c.judge(k, o.err)
		return o.lease, o.err
	case <-ctx.Done():
		return Lease{}, unanswered(ctx, cmd.Verb.String(), "", "it may still be carried out")
	case <-k.over:
	}
	// A session that is over may answer or not.
	limit := time.NewTimer(cancelWait)
	defer limit.Stop()
	select {
	case o := <-answer:
		return o.lease, o.err
	case <-limit.C:
		return Lease{}, &Error{Code: ErrUnknown, Op: cmd.Verb.String(), Reason: "the session ended before the answer", Cause: ErrSessionLost}
	}
}

func unanswered(ctx context.Context, op, key, reason string) error {
	return &Error{Code: ErrUnknown, Op: op, Key: key, Reason: "not answered in time; " + reason, Cause: context.Cause(ctx)}
}

// holdsLocked collects holds, so that they can be told without the lock.
func (c *Client) holdsLocked(which func(*Held) bool) []*Held {
	var out []*Held
	for _, h := range c.holds {
		if which(h) {
			out = append(out, h)
		}
	}
	// A stable order, by id, makes a log of losses comparable.
	slices.SortFunc(out, func(a, b *Held) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return out
}
