package leaseremote

import (
	"context"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

const (
	// sideWait bounds a call whose context does not end sooner, so that none
	// hangs on a broker that is away or frozen. A restart fits in.
	sideWait = 10 * time.Second
	// sidePing is how often the other connection is asked whether it lives while
	// somebody watches, and how long it may owe an answer.
	sidePing = 5 * time.Second
)

// side is the connection for what needs no session: List, Watch, Force and
// Stats. It is opened at first use. Its keeper is its only goroutine, and ends
// when the connection breaks while nobody wants it.
type side struct {
	svc  *Service
	ctx  context.Context // ends with close
	stop context.CancelFunc
	lock sync.Mutex // guards what follows; taken before a link's

	link    *link
	kept    bool // a keeper runs
	closed  bool
	lastN   uint64
	asks    map[uint64]*ask
	watches map[uint64]*watch
	pinger  *time.Timer
	probe   *ask
	probed  time.Time
	trouble error
	ready   []func() // callbacks of watches that are due
}

// ask is one request that has no answer.
type ask struct {
	req    wire.Request
	sent   bool
	repeat bool // asking twice does no harm
	watch  *watch
	answer chan answer // capacity one; nil for pings and repeated watches
}

type answer struct {
	reply wire.Reply
	err   error
}

// watch is one Watch. The connection that it is on changes.
type watch struct {
	n       uint64
	query   lease.Query
	fn      func(lease.Event)
	stopped bool
}

func newSide(v *Service) *side {
	d := &side{svc: v, asks: make(map[uint64]*ask), watches: make(map[uint64]*watch)}
	d.ctx, d.stop = context.WithCancel(v.ctx)
	return d
}

// List: see lease.Service. Listing.More is also set when the broker cut the page
// to the size of a frame.
func (v *Service) List(ctx context.Context, q lease.Query) (lease.Listing, error) {
	if err := checkQuery(&q); err != nil {
		return lease.Listing{}, err
	}
	r, err := v.side.call(ctx, &ask{req: wire.List(0, &q), repeat: true})
	if err != nil {
		return lease.Listing{}, err
	}
	return r.Listing(), nil
}

func checkQuery(q *lease.Query) error {
	switch {
	case q.Key != "" && q.Prefix != "":
		return lease.Refuse("key and prefix exclude each other")
	case len(q.Prefix) > lease.MaxKeyLength:
		return lease.Refuse("prefix is %d bytes, at most %d are allowed (MaxKeyLength)", len(q.Prefix), lease.MaxKeyLength)
	case len(q.After) > lease.MaxKeyLength:
		return lease.Refuse("after is %d bytes, at most %d are allowed (MaxKeyLength)", len(q.After), lease.MaxKeyLength)
	case q.Limit < 0 || q.Limit > lease.MaxListed:
		return lease.Refuse("limit: %d is not between 0 and %d (MaxListed)", q.Limit, lease.MaxListed)
	case q.Key != "":
		return lease.CheckKey(q.Key)
	}
	return nil
}

// Watch: see lease.Service. It survives broken connections, with an EventGap
// after each.
func (v *Service) Watch(ctx context.Context, q lease.Query, fn func(lease.Event)) (func(), error) {
	if err := checkQuery(&q); err != nil {
		return nil, err
	}
	w := &watch{query: q, fn: fn}
	if _, err := v.side.call(ctx, &ask{req: wire.Watch(0, &q), repeat: true, watch: w}); err != nil {
		return nil, err
	}
	return func() { v.side.unwatch(w) }, nil
}

// Force: see lease.Service. ErrUnknown means that the connection broke or ctx
// ended after it was sent.
func (v *Service) Force(ctx context.Context, f lease.ForceRequest) (lease.Forced, error) {
	if err := checkForce(&f); err != nil {
		return lease.Forced{}, err
	}
	r, err := v.side.call(ctx, &ask{req: wire.Force(0, &f)})
	if err != nil {
		return lease.Forced{}, err
	}
	return r.Forced(), nil
}

func checkForce(f *lease.ForceRequest) error {
	switch {
	case f.Token >= lease.MaxToken:
		return lease.Refuse("token %d is not below 2^53 (MaxToken)", f.Token)
	case len(f.By) > lease.MaxLabelLength:
		return lease.Refuse("by is %d bytes, at most %d are allowed (MaxLabelLength)", len(f.By), lease.MaxLabelLength)
	case len(f.Reason) > lease.MaxLabelLength:
		return lease.Refuse("reason is %d bytes, at most %d are allowed (MaxLabelLength)", len(f.Reason), lease.MaxLabelLength)
	}
	return lease.CheckKey(f.Key)
}

// Stats returns the broker's counters and gauges; Service is "remote".
func (v *Service) Stats(ctx context.Context) (lease.Stats, error) {
	r, err := v.side.call(ctx, &ask{req: wire.Request{Do: wire.OpStats}, repeat: true})
	if err != nil {
		return lease.Stats{}, err
	}
	if r.Stats == nil {
		return lease.Stats{}, &lease.Error{Code: lease.ErrProtocol, Op: "stats", Reason: "the answer has no stats"}
	}
	st := *r.Stats
	st.Service = "remote"
	return st, nil
}

// call sends a request, connecting first if need be, and waits for its answer.
func (d *side) call(ctx context.Context, a *ask) (wire.Reply, error) {
	a.answer = make(chan answer, 1)
	if err := d.start(a); err != nil {
		return wire.Reply{}, err
	}
	limit := time.NewTimer(sideWait)
	defer limit.Stop()
	select {
	case r := <-a.answer:
		return r.reply, r.err
	case <-ctx.Done():
		return wire.Reply{}, d.giveUp(a, context.Cause(ctx), false)
	case <-limit.C:
		return wire.Reply{}, d.giveUp(a, context.DeadlineExceeded, true)
	}
}

func (a *ask) fail(code lease.Code, reason string, cause error) error {
	if x, ok := cause.(*lease.Error); ok {
		reason, cause = reason+": "+x.Error(), nil
	}
	return &lease.Error{Code: code, Op: a.req.Do.String(), Key: a.req.Key, Reason: reason, Cause: cause}
}

func (d *side) start(a *ask) error {
	d.lock.Lock()
	switch {
	case d.closed:
		d.lock.Unlock()
		return a.fail(lease.ErrClosed, "the service was closed", nil)
	case len(d.asks) >= lease.MaxInFlight:
		d.lock.Unlock()
		return lease.Refuse("%d requests have no answer yet, no more are allowed (MaxInFlight)", len(d.asks))
	}
	flush := d.sendLocked(a)
	l := d.link
	if !d.kept {
		d.kept = true
		d.svc.kept.Add(1)
		go d.keep()
	}
	d.lock.Unlock()
	if flush {
		l.flush()
	}
	return nil
}

// sendLocked registers a request and appends its frame if there is a connection.
func (d *side) sendLocked(a *ask) (flush bool) {
	if a.req.N == 0 {
		d.lastN++
		a.req.N = d.lastN
	}
	d.asks[a.req.N] = a
	if d.link == nil {
		return false
	}
	a.sent = true
	flush, err := d.link.append(&a.req)
	if err != nil {
		d.answerLocked(a, answer{err: err})
	}
	return flush
}

func (d *side) answerLocked(a *ask, r answer) {
	delete(d.asks, a.req.N)
	if a.answer != nil {
		a.answer <- r
	}
}

// giveUp forgets a request whose caller does not wait any longer. An answer that
// is long overdue breaks the connection, so that a frozen one is replaced.
func (d *side) giveUp(a *ask, cause error, overdue bool) error {
	if a.watch != nil {
		a.watch.n = a.req.N
		d.unwatch(a.watch)
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if d.asks[a.req.N] == a {
		delete(d.asks, a.req.N)
	}
	if overdue && d.link != nil {
		d.link.fail(errSilent)
	}
	switch {
	case a.sent && !a.repeat:
		return a.fail(lease.ErrUnknown, "not answered in time; it may have been carried out", cause)
	case d.link == nil && d.trouble != nil:
		return a.fail(lease.ErrUnavailable, "no broker reached at "+d.svc.addr, d.trouble)
	}
	return a.fail(lease.ErrUnavailable, "not answered in time by "+d.svc.addr, cause)
}

// unwatch ends a watch.
func (d *side) unwatch(w *watch) {
	d.lock.Lock()
	if w.stopped {
		d.lock.Unlock()
		return
	}
	w.stopped = true
	delete(d.watches, w.n)
	l, flush := d.link, false
	if l != nil {
		flush = d.sendLocked(&ask{req: wire.Request{Do: wire.OpUnwatch, Watch: w.n}, repeat: true})
	}
	d.lock.Unlock()
	if flush {
		l.flush()
	}
}
