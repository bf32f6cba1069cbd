package actor

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/held"
)

// How far the message of an ask is.
const (
	queued  = iota
	dropped // its caller gave up in time
	running
	left // its caller gave up while it ran
	over
)

// reply is the part of an ask that is the same whatever the answer is.
type reply struct {
	state atomic.Uint32
	ready chan struct{} // gets one value when the answer is there
	from  *node         // the owner that waits in one of its messages, if any
}

func (r *reply) begin() bool { return r.state.CompareAndSwap(queued, running) }

// end reports whether the caller is still there.
func (r *reply) end() bool {
	if !r.state.CompareAndSwap(running, over) {
		return false
	}
	if r.from != nil {
		r.from.proceed() // the caller is known to wait here: see node
	}
	r.ready <- struct{}{}
	return true
}

// ask is a message whose caller waits.
type ask[S, R any] struct {
	reply
	fn  func(S) (R, error)
	val R
	err error
}

func (a *ask[S, R]) run(s S) { a.val, a.err = a.fn(s) }

func (a *ask[S, R]) end(err error) error {
	if err != nil {
		a.err = err
	}
	err = a.err // from the answer on, the caller may touch it
	if a.reply.end() {
		return nil
	}
	return err
}

// ask sends a call and waits for its answer.
func (c *core[S]) ask(ctx context.Context, a call[S], r *reply, wait bool) error {
	needContext(ctx)
	from, err := door("an ask of", &c.node, true)
	if err != nil {
		return err
	}
	done := ctx.Done()
	if done != nil && ctx.Err() != nil {
		return c.notRun(ctx)
	}
	if from != nil {
		// The edge is there before the message is: an owner that runs it, and asks
		// back, is refused.
		if err := from.await(&c.node, nil, "an ask of"); err != nil {
			return err
		}
		defer from.proceed()
		r.from = from
	}
	r.ready = c.chans.Get().(chan struct{})
	s, err := c.put(entry[S]{call: a}, patience{wait, r.ready, from, &c.node})
	if err != nil {
		return err
	}
	if done == nil {
		<-r.ready
	} else {
		select {
		case <-r.ready:
		case <-done:
			if err := c.giveUp(ctx, s, r); err != nil {
				return err
			}
		}
	}
	if s != nil && s.refused {
		return c.named(ErrClosed)
	}
	c.chans.Put(r.ready)
	return nil
}

// giveUp leaves an ask whose context ended. It returns nil if an answer came all the
// same. The channel is not used again otherwise: who knows what is still sent on it.
func (c *core[S]) giveUp(ctx context.Context, s *sender[S], r *reply) error {
	switch {
	case s != nil && c.withdraw(s):
		return c.notRun(ctx)
	case s == nil || !s.refused:
		if r.state.CompareAndSwap(queued, dropped) {
			return c.notRun(ctx)
		}
		if r.state.CompareAndSwap(running, left) {
			return c.named(fmt.Errorf("%w: %w", ErrUnknown, held.Over(ctx)))
		}
	}
	<-r.ready
	return nil
}

// send queues a message and waits for room only.
func (c *core[S]) send(ctx context.Context, e entry[S]) error {
	needContext(ctx)
	from, err := door("a message to", &c.node, true)
	if err != nil {
		return err
	}
	done := ctx.Done()
	if done != nil && ctx.Err() != nil {
		return c.notRun(ctx)
	}
	s, err := c.put(e, patience{wait: true, from: from, to: &c.node})
	if s == nil {
		return err
	}
	if from != nil {
		defer from.proceed()
	}
	select {
	case <-s.ready:
	case <-done:
		if c.withdraw(s) {
			return c.notRun(ctx)
		}
	}
	if s.refused {
		return c.named(ErrClosed)
	}
	return nil
}

// trySend queues a message if there is room.
func (c *core[S]) trySend(e entry[S]) error {
	if _, err := door("a message to", &c.node, false); err != nil {
		return err
	}
	_, err := c.put(e, patience{to: &c.node})
	return err
}

// make waits until the goroutine of the new owner has made the state.
func (c *core[S]) make(ctx context.Context, create func() (S, error)) error {
	needContext(ctx)
	from, err := door("to make", &c.node, true)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s was not made: %w", c.name, held.Over(ctx))
	}
	if from != nil {
		if err := from.await(&c.node, nil, "to make"); err != nil {
			return err
		}
		defer from.proceed()
	}
	up := make(chan error, 1)
	c.build(create, up)
	select {
	case err := <-up:
		if err != nil {
			return fmt.Errorf("%s was not made: %w", c.name, err)
		}
		return nil
	case <-ctx.Done():
		c.shut() // it ends as soon as it is made
		return fmt.Errorf("%s is still being made, and will then be closed: %w", c.name, held.Over(ctx))
	}
}
