package actor

import (
	"context"
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Errors of this package, to be tested for with errors.Is: what is returned says the
// owner's name, too.
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

// PanicError answers a message that panicked, or the making or closing of what an owner
// has. It is found with errors.As.
type PanicError struct {
	Value any    // what panic was called with
	Stack []byte // of the owner's goroutine, as debug.Stack has it
}

// Error tells the panic's value and not the stack, to fit on a line.
func (e *PanicError) Error() string { return fmt.Sprintf("panicked: %v", e.Value) }

// Unwrap is the panic's value if that is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// namedError is an error with the name of the owner that it comes from.
type namedError struct {
	name string
	err  error
}

func (e *namedError) Error() string { return e.name + ": " + e.err.Error() }

func (e *namedError) Unwrap() error { return e.err }

// named adds the owner's name, once.
func (n *node) named(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := err.(*namedError); ok && e.name == n.name {
		return err
	}
	return &namedError{n.name, err}
}

// notRun says that a context ended in time: the message was not run.
func (n *node) notRun(ctx context.Context) error {
	return n.named(fmt.Errorf("the message was not run: %w", held.Over(ctx)))
}

// needContext and needFunc panic where the mistake is, not in the owner.
func needContext(ctx context.Context) {
	if ctx == nil {
		panic("actor: the context is nil: pass context.Background() if there is none")
	}
}

func needFunc(isNil bool) {
	if isNil {
		panic("actor: the function is nil: there is nothing for the owner to run")
	}
}
