// Package child runs one command under a lease: the command and everything in
// its process group is stopped before another holder can be granted the key.
//
// [Run] starts the command, passes signals and the terminal on to it, and keeps
// a timer of its own on the hold's deadline. While the deadline is pushed ahead
// nothing happens. When it is not, the group gets SIGTERM Lead before the
// deadline and SIGKILL at it; a hold that is lost for another reason gets
// SIGKILL at once.
//
// Beside it a second process, the guard, does the same should this one be frozen
// or killed. A process that leaves the group, as a daemon does, is out of reach
// of both. So is everything while the machine is frozen as a whole: after a sleep,
// which is counted on Linux, the command runs for up to a second until it is
// killed, and only the fencing token protects the resource meanwhile.
//
// What a system cannot do, [Missing] says.
package child

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Exit codes of a command that could not be started, as shells have them.
const (
	ExitNotExecutable = 126
	ExitNotFound      = 127
)

// Hold is what Run needs of a lease that is held: *lease.Held is one.
type Hold interface {
	// Context is cancelled, with a cause, when the hold is lost.
	Context() context.Context
	// Deadline is the instant at which the command must have stopped. It moves
	// ahead while the hold is renewed; zero means never.
	Deadline() time.Time
}

// Options describe the command.
type Options struct {
	Path string   // file to execute, as Find returned it
	Args []string // the first is the name that the command sees
	Env  []string // the whole environment

	Stdin, Stdout, Stderr *os.File

	// Signals is where the caller is notified of signals to this process; from
	// here on they are the command's, as are those that Run asks for besides. The
	// caller reads nothing of it until Run returns, and stops it afterwards. Nil
	// is a channel of Run's own.
	Signals chan os.Signal

	// Guard is a command that calls the function Guard with its standard input. Nil is to do without: then nothing stops the command
	// while this process is frozen, and its children outlive this process.
	Guard []string

	// Gate is a command that calls the function Gate with the arguments behind its
	// own: a path, and what the program of that path is to be called with. It is
	// used with a guard only, which without it learns of the command a moment too
	// late if this process is frozen or killed just then.
	Gate []string

	// Lead is how long before a deadline that stands still the command is asked
	// to stop.
	Lead time.Duration

	// Report is told, in sentences for people, what Run does to the command and
	// why.
	Report func(string)
}

// Status is how a command ended.
type Status struct {
	Exit   int            // exit status, when no signal ended it
	Signal syscall.Signal // the signal that ended it, or zero
	Lost   bool           // Run killed it because its hold was lost
}

// Code is the status as shells show it: 128 and the signal's number for a
// command that a signal ended.
func (s Status) Code() int {
	if s.Signal != 0 {
		return 128 + int(s.Signal)
	}
	return s.Exit
}

// Lead is how long before the deadline a command is asked to stop: long enough
// to clean up, short enough that it is never reached while the broker answers,
// because the deadline is pushed ahead each third of the grace.
func Lead(ttl, grace time.Duration) time.Duration {
	return min(5*time.Second, ttl/4, grace/2)
}

// StartError says that a command could not be started, and the status with
// which a shell would say so.
type StartError struct {
	Name  string
	Exit  int
	Cause error
}

// Error names the command and what is wrong with it.
func (e *StartError) Error() string {
	switch {
	case e.Exit == ExitNotFound && errors.Is(e.Cause, exec.ErrNotFound):
		return fmt.Sprintf("%s: command not found", e.Name)
	case errors.Is(e.Cause, exec.ErrDot):
		return fmt.Sprintf("%s: found only in the current directory; call it as ./%s if that is meant", e.Name, e.Name)
	}
	return fmt.Sprintf("%s: %v", e.Name, reason(e.Cause))
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Cause }

// reason strips what StartError already says from the errors of os and exec.
func reason(err error) error {
	if x, ok := errors.AsType[*exec.Error](err); ok {
		err = x.Err
	}
	if x, ok := errors.AsType[*fs.PathError](err); ok {
		err = x.Err
	}
	return err
}

// Find looks a command up as a shell does. The error is a *StartError.
func Find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", startError(name, err)
	}
	return path, nil
}

func startError(name string, err error) *StartError {
	e := &StartError{Name: name, Exit: ExitNotExecutable, Cause: err}
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrDot) {
		e.Exit = ExitNotFound
	}
	return e
}
