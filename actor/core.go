package actor

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// core is an owner: its state, its mailbox, and the loop of its goroutine. Handles such
// as Object refer to it, and it to none of them.
type core[S any] struct {
	node
	mailbox[S]
	onError func(error)
	done    chan struct{} // closed at the end
	chans   sync.Pool     // of chan struct{}, capacity 1 and empty, for answers

	// Only the owner's goroutine touches these.
	state   S
	current entry[S] // what is being run
	unseen  error    // to be reported
	telling bool     // onError is running
	parting call[S]  // the last act that is still to come, if there is one
	ending  error    // of the last act; others read it when done is closed

	// The mailbox's mutex guards the rest.
	closers int  // how many wait in Close to be told how the last act went
	parted  bool // the last act is over
}

func newCore[S any](o Options) (*core[S], error) {
	if o.Mailbox < 0 || o.Mailbox > MaxMailbox {
		return nil, fmt.Errorf("a mailbox for %d messages: it must be from 1 to %d, or 0 for %d", o.Mailbox, MaxMailbox, DefaultMailbox)
	}
	c := &core[S]{onError: o.OnError, done: make(chan struct{})}
	c.name = o.Name
	var s S
	if c.name == "" {
		c.name = fmt.Sprintf("actor of %T", s)
	}
	c.mailbox.init(o.Mailbox)
	c.chans.New = func() any { return make(chan struct{}, 1) }
	if _, ok := any(s).(io.Closer); ok {
		c.parting = &parting[S]{c: c}
	}
	return c, nil
}

// start begins the life of the owner's goroutine, or goes on with it in another one.
func (c *core[S]) start() { go c.live() }

// build makes the state on the goroutine that is going to be the owner, and tells how
// that went.
func (c *core[S]) build(create func() (S, error), up chan<- error) {
	go func() {
		if c.made(create, up) {
			c.live()
		}
	}()
}

func (c *core[S]) made(create func() (S, error), up chan<- error) (ok bool) {
	me := held.Who().Enter(held.Frame{Kind: held.Actor, Of: unsafe.Pointer(&c.node)})
	err := ErrGoexit
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{v, debug.Stack()}
		}
		c.proceed()
		me.Leave()
		up <- err
	}()
	c.state, err = create()
	return err == nil
}

// live runs messages until the end, which is after the last act and its report.
func (c *core[S]) live() {
	for {
		c.work()
		if c.found == ended && c.unseen == nil {
			close(c.done)
			return
		}
		c.rest()
	}
}

// work runs messages until there are none, or until one does not return. While it
// rests, the goroutine is not inside of anything, so that many idle owners do not fill
// the table of who is.
func (c *core[S]) work() {
	me := held.Who().Enter(held.Frame{Kind: held.Actor, Of: unsafe.Pointer(&c.node)})
	returned := false
	defer func() {
		me.Leave()
		if returned {
			return
		}
		if v := recover(); v != nil {
			c.broken(&PanicError{v, debug.Stack()})
			return
		}
		c.broken(ErrGoexit)
		c.start()
	}()
	if err := c.unseen; err != nil {
		c.unseen = nil
		c.report(err)
	}
	for c.next(&c.current) || c.part(&c.current) {
		var err error
		if call := c.current.call; call == nil {
			err = c.current.tell(c.state)
		} else if call.begin() {
			call.run(c.state)
			err = call.end(nil)
		}
		c.current = entry[S]{}
		if err != nil {
			c.report(err)
		}
	}
	returned = true
}

// broken settles the message that did not return.
func (c *core[S]) broken(why error) {
	c.proceed()
	if c.telling {
		c.telling = false
		defer func() { _ = recover() }() // a log that panics, too, has nobody left to tell
		slog.Default().Error("an actor's OnError did not return", attrs(c.name, why)...)
		return
	}
	was := c.current
	c.current = entry[S]{}
	if was.call != nil {
		why = was.call.end(c.named(why))
	}
	c.unseen = why
}

// report tells an error that nobody waits for.
func (c *core[S]) report(err error) {
	c.telling = true
	if c.onError != nil {
		c.onError(c.named(err))
	} else {
		slog.Default().Error("a message of an actor failed and nobody waits for it", attrs(c.name, err)...)
	}
	c.telling = false
}

func attrs(name string, err error) []any {
	if e, ok := err.(*namedError); ok && e.name == name {
		err = e.err
	}
	out := []any{"actor", name, "err", err}
	var p *PanicError
	if errors.As(err, &p) {
		out = append(out, "stack", string(p.Stack))
	}
	return out
}
