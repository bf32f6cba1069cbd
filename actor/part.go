package actor

import (
	"context"
	"fmt"
	"io"

	"github.com/latchkey-go/latchkey/internal/held"
)

// parting is the last act of an owner whose state is an io.Closer. It is run like a
// message, but was never in the mailbox, so that nothing can come after it.
type parting[S any] struct {
	c   *core[S]
	err error
}

func (p *parting[S]) begin() bool { return true }

func (p *parting[S]) run(s S) {
	if err := any(s).(io.Closer).Close(); err != nil {
		p.err = fmt.Errorf("Close: %w", err)
	}
}

// end leaves the error to those who wait in Close, and to OnError only if there is
// nobody.
func (p *parting[S]) end(err error) error {
	if err != nil {
		p.err = err
	}
	c := p.c
	c.ending = c.named(p.err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parted = true
	if c.closers > 0 {
		return nil
	}
	return c.ending
}

// part takes the last act, once, after the last message.
func (c *core[S]) part(e *entry[S]) bool {
	if c.parting == nil || c.found != ended {
		return false
	}
	*e, c.parting = entry[S]{call: c.parting}, nil
	return true
}

// end closes the owner, waits until it has ended, and tells how its last act went.
func (c *core[S]) end(ctx context.Context) error {
	needContext(ctx)
	from, err := door(toClose, &c.node, true)
	if err != nil {
		return err
	}
	if from != nil {
		if err := from.await(&c.node, c.done, toClose); err != nil {
			return err
		}
		defer from.proceed()
	}
	c.mu.Lock()
	late := c.parted
	c.closers++
	c.mu.Unlock()
	c.shut()
	select {
	case <-c.done:
		return c.ending
	case <-ctx.Done():
	}
	c.mu.Lock()
	c.closers--
	counted := c.parted && !late
	c.mu.Unlock()
	if counted { // then nobody else need have been told, and the end is near
		<-c.done
	}
	select {
	case <-c.done:
		return c.ending
	default:
		return fmt.Errorf("%s is still closing: %w", c.name, held.Over(ctx))
	}
}
