package tcpserve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// handle does what one frame asks. An error ends the connection.
func (c *conn) handle(line []byte, received time.Time) error {
	if err := wire.DecodeRequest(line, &c.req); err != nil {
		if lease.CodeOf(err) == lease.ErrProtocol {
			return err
		}
		c.fail(err)
		return nil
	}
	switch c.req.Do {
	case wire.OpAcquire, wire.OpRenew, wire.OpRelease, wire.OpDetach, wire.OpCancel, wire.OpPing:
		if err := c.lease(received); err != nil {
			c.fail(err)
		}
		return nil
	}
	// These may wait for the service; what is answered goes out before.
	c.out.flush()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if c.req.Do == wire.OpClose {
		c.goodbye(ctx)
		return errGoodbye
	}
	if err := c.call(ctx, received); err != nil {
		c.fail(late(err, c.req.Do))
	}
	c.out.hold()
	return nil
}

// fail answers the request in hand.
func (c *conn) fail(err error) {
	r := wire.Failure(c.req.N, c.req.Do.String(), err)
	c.out.add(&r)
}

// late names the error of a service that did not answer in time. What was asked
// of it may be done yet; only for force does that matter to the caller.
func late(err error, op wire.Op) error {
	if !errors.Is(err, context.DeadlineExceeded) || lease.CodeOf(err) != lease.ErrInternal {
		return err
	}
	code := lease.ErrUnavailable
	if op == wire.OpForce {
		code = lease.ErrUnknown
	}
	return &lease.Error{Code: code, Reason: fmt.Sprintf("the service did not answer within %v", callTimeout)}
}

// lease starts what is done by the session; its callback answers.
func (c *conn) lease(received time.Time) error {
	r := &c.req
	switch {
	case c.sess == nil && r.Do == wire.OpPing:
		c.out.add(&wire.Reply{Kind: wire.OK, N: r.N})
		return nil
	case c.sess == nil:
		return lease.Refuse("this connection has no session: send open first")
	case r.Do == wire.OpAcquire && c.srv.draining.Load():
		return shuttingDown()
	}
	if err := c.out.begin(r.Do == wire.OpAcquire); err != nil {
		return err
	}
	a := &answer{conn: c, n: r.N, op: r.Do, received: received}
	if r.Do == wire.OpAcquire {
		c.sess.Acquire(r.Lease(), a)
	} else {
		c.sess.Do(r.Command(), a.Done)
	}
	return nil
}

func shuttingDown() error {
	return &lease.Error{Code: lease.ErrClosed, Reason: "the server is shutting down"}
}

// answer is a request underway. It is a lease.Caller.
type answer struct {
	conn     *conn
	n        uint64
	op       wire.Op
	waited   bool // the request was told that it waits
	received time.Time
}

// Queued tells the client that its request waits.
func (a *answer) Queued(q lease.Queued) {
	defer a.conn.guard()
	a.waited = true
	r := wire.Queue(a.n, &q)
	a.conn.out.queued(&r)
}

// Done answers the request.
func (a *answer) Done(l lease.Lease, err error) {
	defer a.conn.guard()
	var r wire.Reply
	switch {
	case err != nil:
		r = wire.Failure(a.n, a.op.String(), err)
	case a.op == wire.OpPing:
		r = wire.Reply{Kind: wire.OK, N: a.n}
	case a.op == wire.OpRelease || a.op == wire.OpCancel:
		r = wire.Ended(a.n, &l)
	default:
		r = wire.Granted(a.n, &l, a.received, time.Now())
	}
	a.conn.out.answer(&r, a.waited)
}

// guard keeps a panic in a callback from the service's loop.
func (c *conn) guard() {
	if v := recover(); v != nil {
		c.defect(v)
		c.out.close()
	}
}

// goodbye ends the session and waits for it.
func (c *conn) goodbye(ctx context.Context) {
	n := c.req.N
	if c.sess == nil {
		c.out.add(&wire.Reply{Kind: wire.OK, N: n})
		return
	}
	done := make(chan struct{})
	c.sess.Close(func(err error) {
		defer c.guard()
		defer close(done)
		r := wire.Reply{Kind: wire.OK, N: n}
		if err != nil {
			r = wire.Failure(n, wire.OpClose.String(), err)
		}
		c.out.add(&r)
	})
	select {
	case <-done:
	case <-ctx.Done():
		r := wire.Failure(n, wire.OpClose.String(), lease.ErrUnknown)
		c.out.add(&r)
	}
}

// call does what the service itself is asked for, and answers.
func (c *conn) call(ctx context.Context, received time.Time) error {
	r := &c.req
	if c.srv.draining.Load() && r.Do != wire.OpList && r.Do != wire.OpStats {
		return shuttingDown()
	}
	switch r.Do {
	case wire.OpOpen:
		return c.open(ctx, received)
	case wire.OpList:
		l, err := c.srv.svc.List(ctx, r.Query())
		if err != nil {
			return err
		}
		reply := wire.Listed(r.N, &l)
		c.out.add(&reply)
	case wire.OpWatch:
		return c.watch(ctx)
	case wire.OpUnwatch:
		return c.unwatch()
	case wire.OpForce:
		f, err := c.srv.svc.Force(ctx, r.Force())
		if err != nil {
			return err
		}
		reply := wire.ForceDone(r.N, &f)
		c.out.add(&reply)
	case wire.OpStats:
		st, err := c.srv.svc.Stats(ctx)
		if err != nil {
			return err
		}
		c.out.add(&wire.Reply{Kind: wire.OK, N: r.N, Stats: &st})
	}
	return nil
}

// open begins or resumes the session of the connection.
func (c *conn) open(ctx context.Context, received time.Time) error {
	if c.sess != nil && !c.lost.Load() {
		return lease.Refuse("this connection has a session already; a second one needs a second connection")
	}
	o := c.req.Session()
	c.leave(nil)
	c.sess = nil
	c.lost.Store(false)
	o.Notify, o.Settled = c.notify, c.out.settled
	done := func() {}
	if o.Resume != "" {
		done = sync.OnceFunc(c.srv.takeTurn(o.Resume))
		defer done()
		if err := c.checkTakeover(o.Resume); err != nil {
			return err
		}
	}
	sess, err := c.srv.svc.Open(ctx, o)
	if err != nil {
		return err
	}
	c.sess, c.id = sess, sess.ID()
	c.srv.adopt(c.id, c)
	now := time.Now()
	r := wire.Reply{Kind: wire.OK, N: c.req.N, Session: c.id, Grace: o.Grace, Elapsed: now.Sub(received)}
	if o.Resume != "" {
		r.Grace = graceOf(sess, now)
		r.Leases = wire.Resume(sess.Leases(), now)
	}
	frames := wire.AppendOpened(nil, &r)
	if len(frames) > maxBacklog {
		done() // a client that reads slowly must not keep out the next one
	}
	return c.sendOpened(frames)
}

// sendOpened sends the answer to an open. That of a resume with very many leases
// goes out frame by frame, as fast as the client reads: all at once it would count
// as unread.
func (c *conn) sendOpened(frames []byte) error {
	if len(frames) <= maxBacklog {
		c.out.addRaw(frames)
		return nil
	}
	for frame := range bytes.Lines(frames) {
		c.out.addRaw(frame)
		if !c.out.drain() {
			return net.ErrClosed
		}
	}
	return nil
}

// graceOf is the grace of a resumed session as far as the service tells: up to a
// margin less than what it was opened with, so that a client that was not there
// then is on the safe side.
func graceOf(sess lease.Session, now time.Time) time.Duration {
	if d := sess.Deadline(); !d.IsZero() {
		return max(d.Sub(now), time.Millisecond)
	}
	return lease.DefaultGrace
}

// notify tells the client of a loss.
func (c *conn) notify(n lease.Notice) {
	defer c.guard()
	if n.ID == "" {
		c.lost.Store(true)
	}
	r := wire.Lost(n)
	c.out.add(&r)
}

// watch begins to send events.
func (c *conn) watch(ctx context.Context) error {
	n := c.req.N
	if c.watches[n] != nil {
		return lease.Refuse("n: %d is the number of a watch of this connection", n)
	}
	w := &watch{n: n}
	stop, err := c.srv.svc.Watch(ctx, c.req.Query(), func(e lease.Event) {
		defer c.guard()
		c.out.event(w, &e)
	})
	if err != nil {
		return err
	}
	w.stop = stop
	if c.watches == nil {
		c.watches = make(map[uint64]*watch)
	}
	c.watches[n] = w
	c.out.start(w)
	return nil
}

// unwatch stops a watch.
func (c *conn) unwatch() error {
	w := c.watches[c.req.Watch]
	if w == nil {
		return lease.Refuse("watch: %d is not the number of a watch of this connection", c.req.Watch)
	}
	delete(c.watches, w.n)
	c.out.end(w)
	w.stop()
	c.out.add(&wire.Reply{Kind: wire.OK, N: c.req.N})
	return nil
}
