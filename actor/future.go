package actor

import (
	"context"
	"fmt"
	"runtime"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Future is an answer that is on its way. Any number of goroutines may wait for it.
type Future[R any] struct {
	from *node
	done chan struct{}
	val  R
	err  error
}

// Send sends a message and waits only until it is in the mailbox, like Tell. The answer,
// error and panic included, is the future's: nobody else is told.
func Send[S, R any](ctx context.Context, o Owner[S], fn func(S) (R, error)) (*Future[R], error) {
	needFunc(fn == nil)
	c := coreOf(o)
	f := &future[S, R]{Future[R]{from: &c.node, done: make(chan struct{})}, fn}
	err := c.send(ctx, entry[S]{call: f})
	runtime.KeepAlive(o)
	if err != nil {
		return nil, err
	}
	return &f.Future, nil
}

// TrySend is Send that does not wait: it returns ErrFull when there is no room. It is
// allowed inside a lock.
func TrySend[S, R any](o Owner[S], fn func(S) (R, error)) (*Future[R], error) {
	needFunc(fn == nil)
	c := coreOf(o)
	f := &future[S, R]{Future[R]{from: &c.node, done: make(chan struct{})}, fn}
	err := c.trySend(entry[S]{call: f})
	runtime.KeepAlive(o)
	if err != nil {
		return nil, err
	}
	return &f.Future, nil
}

// Done is closed when the answer is there. A message that waits for it is not seen
// waiting, so that a circle would not be refused: use Wait there.
func (f *Future[R]) Done() <-chan struct{} {
	f.need()
	return f.done
}

// Wait waits for the answer and returns it. When the context ends first, the message
// is run all the same, and Wait may be called again. The errors are those of Ask, but
// never ErrUnknown.
func (f *Future[R]) Wait(ctx context.Context) (R, error) {
	f.need()
	needContext(ctx)
	var none R
	owner, err := door("to wait for", f.from, true)
	if err != nil {
		return none, err
	}
	select {
	case <-f.done:
		return f.val, f.err
	default:
	}
	if owner != nil {
		if err := owner.await(f.from, f.done, "to wait for"); err != nil {
			return none, err
		}
		defer owner.proceed()
	}
	select {
	case <-f.done:
		return f.val, f.err
	case <-ctx.Done():
		return none, f.from.named(fmt.Errorf("there is no answer yet: %w", held.Over(ctx)))
	}
}

func (f *Future[R]) need() {
	if f == nil || f.done == nil {
		panic("actor: this Future is nil or zero: it comes from actor.Send or TrySend, whose error says why there is none")
	}
}

// future is the message behind a Future.
type future[S, R any] struct {
	Future[R]
	fn func(S) (R, error)
}

func (f *future[S, R]) begin() bool { return true }

func (f *future[S, R]) run(s S) { f.val, f.err = f.fn(s) }

func (f *future[S, R]) end(err error) error {
	if err != nil {
		f.err = err
	}
	f.fn = nil // what it captured need not live as long as the future
	close(f.done)
	return nil
}
