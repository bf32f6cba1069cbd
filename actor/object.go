package actor

import (
	"context"
	"errors"
	"runtime"
)

// Options describe an owner. The zero value is usable.
type Options struct {
	// Name is what errors and the log call it. Default: its type.
	Name string

	// Mailbox is how many messages may wait for their turn, from 1 to MaxMailbox.
	// Default: DefaultMailbox. When it is full, senders wait.
	Mailbox int

	// OnError gets every error and panic of a message that nobody waits for: tells,
	// and asks whose caller has left. It gets that of the object's Close, too, when
	// nobody waits in Object.Close. It runs on the owner, between two messages, and so
	// must not wait for it. Nil: they are logged to slog.Default, as errors, a panic
	// with its stack.
	OnError func(error)
}

// Owner is what messages are sent to: an *Object[T], whose messages are given a *T, or
// a *Map[K, V], whose messages are given the map[K]V.
type Owner[S any] interface {
	// owner keeps the interface to the types of this package.
	owner() *core[S]
}

func coreOf[S any](o Owner[S]) *core[S] {
	if o == nil {
		panic("actor: the Owner is nil: make one with actor.New or NewMap")
	}
	return o.owner()
}

// Object is a *T that only one goroutine, its owner, touches. Make it with New; it may
// be used from any goroutine. Pass it on as a pointer: a copy does not keep the owner from
// ending once nothing refers to the original.
type Object[T any] struct {
	_ noCopy
	c *core[*T]
}

// noCopy makes vet complain about copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// New starts an owner and has it make its object: create runs on the owner, and its
// error or panic comes back here, wrapped. The context bounds the wait for create and
// nothing later. If it ends first, New returns, and what create makes is dropped, after
// its Close if it has one.
//
// If *T is an io.Closer, the owner calls its Close as its last act, after the last
// message, and nobody else should: see Object.Close. What create returns together with an
// error is not closed.
func New[T any](ctx context.Context, create func() (*T, error), o Options) (*Object[T], error) {
	needFunc(create == nil)
	c, err := newCore[*T](o)
	if err != nil {
		return nil, err
	}
	err = c.make(ctx, func() (*T, error) {
		v, err := create()
		if v == nil && err == nil {
			err = errors.New("its function returned nil and no error")
		}
		return v, err
	})
	if err != nil {
		return nil, err
	}
	obj := &Object[T]{c: c}
	runtime.AddCleanup(obj, func(c *core[*T]) { c.shut() }, c)
	return obj, nil
}

func (o *Object[T]) owner() *core[*T] {
	if o == nil || o.c == nil {
		panic("actor: this Object is nil or zero, as it was not made by New: use what actor.New returns")
	}
	return o.c
}

// Tell sends a message and waits only until it is in the mailbox. The function's error
// goes to Options.OnError. Tell's own is that it was refused, as ErrClosed or a
// NestedError, or that the context ended first; then the function is not run. From then
// on the context does not matter.
func (o *Object[T]) Tell(ctx context.Context, fn func(*T) error) error {
	needFunc(fn == nil)
	err := o.owner().send(ctx, entry[*T]{tell: fn})
	runtime.KeepAlive(o)
	return err
}

// TryTell is Tell that does not wait: it returns ErrFull when there is no room. It is
// allowed inside a lock.
func (o *Object[T]) TryTell(fn func(*T) error) error {
	needFunc(fn == nil)
	err := o.owner().trySend(entry[*T]{tell: fn})
	runtime.KeepAlive(o)
	return err
}

// Do is Ask for a function without a result.
func (o *Object[T]) Do(ctx context.Context, fn func(*T) error) error { return do(ctx, o, fn) }

// Close refuses new messages and those that still wait for room with ErrClosed, runs
// those in the mailbox, calls the Close of the *T if that is an io.Closer, and returns
// when the owner has ended, with the error of that Close. The context bounds the wait;
// the closing goes on without it. Closing again waits for the same end and returns the
// same error.
//
// A message cannot wait for its own owner's end; it may start a goroutine that does.
func (o *Object[T]) Close(ctx context.Context) error {
	err := o.owner().end(ctx)
	runtime.KeepAlive(o)
	return err
}

// Ask sends a message, waits until the owner has run it, and returns what it returned.
//
// The error is the function's own; or a PanicError or ErrGoexit, when it did not return;
// or it was not run: ErrClosed, a NestedError, or the context's error. If the context
// ends while the function runs, that is ErrUnknown together with the context's error.
func Ask[S, R any](ctx context.Context, o Owner[S], fn func(S) (R, error)) (R, error) {
	return askFor(ctx, o, fn, true)
}

// TryAsk is Ask that does not wait for room: it returns ErrFull when there is none. It
// still waits for the answer.
func TryAsk[S, R any](ctx context.Context, o Owner[S], fn func(S) (R, error)) (R, error) {
	return askFor(ctx, o, fn, false)
}

func askFor[S, R any](ctx context.Context, o Owner[S], fn func(S) (R, error), wait bool) (R, error) {
	needFunc(fn == nil)
	a := &ask[S, R]{fn: fn}
	err := coreOf(o).ask(ctx, a, &a.reply, wait)
	runtime.KeepAlive(o)
	if err != nil {
		var none R
		return none, err
	}
	return a.val, a.err
}

func do[S any](ctx context.Context, o Owner[S], fn func(S) error) error {
	needFunc(fn == nil)
	_, err := askFor(ctx, o, func(s S) (struct{}, error) { return struct{}{}, fn(s) }, true)
	return err
}
