package actor

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Errors of this package, to be tested for with errors.Is.
var (
	// ErrClosed refuses a message to an owner that is closing or has ended. The
	// message was not run and will not be.
	ErrClosed = errors.New("the actor is closed")

	// ErrFull refuses a message that was not to wait for room in the mailbox.
	ErrFull = errors.New("the actor's mailbox is full")

	// ErrUnknown is returned, together with the context's error, by an ask whose
	// context ended while its message was running: it runs on, and how it ends is
	// not known.
	ErrUnknown = errors.New("the message was running and its outcome is unknown")

	// ErrGoexit answers a message that ended its goroutine by runtime.Goexit, as
	// testing.T.FailNow does. Another goroutine has become the owner.
	ErrGoexit = errors.New("the message called runtime.Goexit")

	// ErrNested is matched by every NestedError.
	ErrNested = held.ErrNested
)

// NestedError refuses what would wait for what its own goroutine is inside of, directly
// or by way of other owners.
type NestedError = held.NestedError

// PanicError answers a message, or the making of an owner, that panicked.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // of the owner's goroutine, as debug.Stack has it
}

// Error tells the panic's value and not the stack, to fit on a line.
func (e *PanicError) Error() string { return fmt.Sprintf("the message panicked: %v", e.Value) }

// Unwrap is the panic's value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// notRun says that a context ended in time: the message was not run.
func notRun(ctx context.Context) error {
	return fmt.Errorf("the message was not run: %w", ending(ctx))
}

// ending is the error of a context that ended, and its cause if that is another.
func ending(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == err || cause == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
