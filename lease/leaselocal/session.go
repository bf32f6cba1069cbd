package leaselocal

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/engine"
)

// session is one connection's view of a session: a resume makes a new one.
type session struct {
	svc    *Service
	engine *engine.Session
	epoch  uint32
	id     string
	grace  time.Duration
	leases []lease.Lease
	settle func()       // what the session wants called after its callbacks, or nil
	alive  atomic.Int64 // when the last answered sign of life was sent, since svc.started
}

// Open begins a session or takes one over.
func (s *Service) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	if err := o.Check(); err != nil {
		err.(*lease.Error).Op = "open"
		return nil, err
	}
	sess := &session{svc: s, id: o.Resume, settle: o.Settled}
	if sess.id == "" {
		sess.id = rand.Text()
	}
	sent := time.Since(s.started)
	var err error
	if e := s.call(ctx, func() func(error) {
		err = sess.open(o)
		return func(failed error) {
			if failed != nil && err == nil {
				err = unknown(failed) // what it is said to hold may not be on the disk
			}
		}
	}); e != nil {
		sess.abandon(o.Resume != "")
		return nil, e
	}
	if err != nil {
		sess.abandon(o.Resume != "")
		return nil, err
	}
	sess.alive.Store(int64(sent))
	return sess, nil
}

func (c *session) open(o lease.SessionOptions) (err error) {
	e := c.svc.engine
	if o.Resume == "" {
		c.engine, c.epoch, err = e.Open(c.id, o)
	} else {
		var held []engine.Effect
		c.engine, c.epoch, held, err = e.Resume(c.id, o)
		for _, f := range held {
			c.svc.date(&f)
			c.leases = append(c.leases, f.Lease)
		}
	}
	if err == nil {
		c.grace = c.engine.Grace()
	}
	return err
}

// abandon undoes an open that its caller is told has failed, if it has not.
func (c *session) abandon(resumed bool) {
	c.svc.submit(op{do: func() func(error) {
		switch {
		case c.engine == nil:
		case resumed:
			c.svc.engine.Suspend(c.engine, c.epoch)
		default:
			c.svc.engine.CloseSession(c.engine, c.epoch)
		}
		return nil
	}})
}

// ID names the session.
func (c *session) ID() string { return c.id }

// Leases is what the session held when it was resumed.
func (c *session) Leases() []lease.Lease { return c.leases }

// Deadline is zero unless the session asked for a grace: in one process nothing
// can be cut.
func (c *session) Deadline() time.Time {
	if c.grace <= 0 {
		return time.Time{}
	}
	return c.svc.started.Add(time.Duration(c.alive.Load()) + c.grace - lease.Margin(c.grace))
}

// Acquire starts a request.
func (c *session) Acquire(r lease.Request, caller lease.Caller) {
	o := op{sess: c, req: r, caller: caller}
	if err := o.req.Normalize(); err != nil {
		o.err = refusal(err, "acquire")
	}
	if o.req.ID == "" {
		o.req.ID = rand.Text()
	}
	c.svc.submit(o)
}

func refusal(err error, op string) error {
	if x, ok := err.(*lease.Error); ok {
		x.Op = op
	}
	return err
}

// Do runs a command.
func (c *session) Do(cmd lease.Command, done func(lease.Lease, error)) {
	if cmd.Verb == lease.Ping && c.grace > 0 {
		done = c.pinged(done)
	}
	c.svc.submit(op{sess: c, cmd: cmd, reply: done})
}

func (c *session) pinged(done func(lease.Lease, error)) func(lease.Lease, error) {
	sent := int64(time.Since(c.svc.started))
	return func(l lease.Lease, err error) {
		if err == nil {
			c.alive.Store(max(c.alive.Load(), sent))
		}
		if done != nil {
			done(l, err)
		}
	}
}

// Lend returns at once: in one process there is nothing to read.
func (c *session) Lend() {}

// Suspend says that the connection broke.
func (c *session) Suspend() {
	c.svc.submit(op{do: func() func(error) {
		c.svc.engine.Suspend(c.engine, c.epoch)
		return nil
	}})
}

// Close is the goodbye.
func (c *session) Close(done func(error)) {
	c.svc.submit(op{
		do: func() func(error) {
			err := c.svc.engine.CloseSession(c.engine, c.epoch)
			return func(failed error) {
				if failed != nil && err == nil {
					err = unknown(failed)
				}
				if done != nil {
					done(err)
				}
			}
		},
		reply: func(_ lease.Lease, err error) { // the service is closed already
			if done != nil {
				done(err)
			}
		},
	})
}
