//go:build unix

package child

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a second process that watches over the first. It is told every
// deadline, and kills the command's group when the deadline passes or the pipe
// ends without a goodbye: what Run would do were it not frozen, or killed.
//
// Its protocol is lines on a pipe: first the group's id, then instants in
// nanoseconds of the system's clock, the one that goes on while the machine
// sleeps where there is one, 0 for never, and "done", the goodbye.
type guard struct {
	pid  int
	pipe *os.File
	told int64 // the instant; -1 before the first
}

const goodbye = "done"

// tellTime bounds a write to a guard that does not read because it is frozen.
const tellTime = 10 * time.Millisecond

// startGuard starts argv; that program is to call Guard.
func startGuard(argv []string) (*guard, error) {
	theirs, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = "/"
	cmd.Stdin = theirs
	// In a session of its own, so that nothing typed or stopped at the terminal
	// reaches it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		ours.Close()
		return nil, err
	}
	g := &guard{pid: cmd.Process.Pid, pipe: ours, told: -1}
	// Nobody waits for it: it ends with the goodbye or with this process.
	_ = cmd.Process.Release()
	return g, nil
}

// watch tells which group it is about.
func (g *guard) watch(group int) { g.write(strconv.Itoa(group)) }

// tell passes a deadline on if it has changed.
func (g *guard) tell(deadline time.Time) {
	var at int64
	if !deadline.IsZero() {
		at = max(systemTime()+int64(time.Until(deadline)), 1)
	}
	if moved := max(at-g.told, g.told-at); moved < int64(time.Millisecond) && (at == 0) == (g.told == 0) {
		return
	}
	g.told = at
	g.write(strconv.FormatInt(at, 10))
}

// write sends a line. A guard that is gone, or frozen, leaves things as they
// would be without one.
func (g *guard) write(line string) {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(tellTime))
	_, _ = g.pipe.WriteString(line + "\n")
}

// dismiss ends the guard and leaves the group alone.
func (g *guard) dismiss() {
	g.write(goodbye)
	g.pipe.Close()
}

// systemTime reads a clock that all processes of the system share.
func systemTime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(systemClock, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// Guard is the other end: it watches over a process group, with what comes in on
// a pipe, until the goodbye.
func Guard(in *os.File) error {
	var w watched
	buf := make([]byte, 4096)
	fds := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, untilDeadline(w.deadline))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("guard: %w", err)
		case n == 0 && untilDeadline(w.deadline) != 0:
			continue // one part of a long wait
		case n == 0:
			return w.kill()
		}
		size, err := in.Read(buf)
		if size == 0 || err != nil {
			return w.kill() // the other end is gone, and said no goodbye
		}
		if done, err := w.hear(buf[:size]); done || err != nil {
			return err
		}
	}
}

// watched is what a guard knows.
type watched struct {
	group    int   // zero until it is told
	deadline int64 // zero is never
	pending  []byte
}

// hear takes what came in, and reports whether it was the goodbye.
func (w *watched) hear(text []byte) (done bool, err error) {
	w.pending = append(w.pending, text...)
	for {
		line, rest, ok := bytes.Cut(w.pending, []byte("\n"))
		if !ok {
			return false, nil
		}
		w.pending = rest
		if string(line) == goodbye {
			return true, nil
		}
		n, err := strconv.ParseInt(string(line), 10, 64)
		switch {
		case err != nil:
			return false, fmt.Errorf("guard: %w", err)
		case w.group != 0:
			w.deadline = n
		case n <= 1 || n > math.MaxInt32:
			return false, fmt.Errorf("guard: %d is no process group", n)
		default:
			w.group = int(n)
		}
	}
}

func (w *watched) kill() error {
	if w.group == 0 {
		return nil // nothing was started
	}
	if err := unix.Kill(-w.group, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("guard: kill group %d: %w", w.group, err)
	}
	return nil
}

// untilDeadline is for poll: milliseconds, rounded up so as not to kill early,
// and negative for never. Poll sleeps with the machine, so that the clock is
// looked at now and then.
func untilDeadline(deadline int64) int {
	if deadline == 0 {
		return -1
	}
	left := min(time.Duration(max(deadline-systemTime(), 0)), lookEvery)
	return int((left + time.Millisecond - 1) / time.Millisecond)
}
