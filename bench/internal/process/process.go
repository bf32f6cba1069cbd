// Package process starts and stops the programs that a measurement needs and
// reads how much CPU time they used.
//
// Every program is a child that dies with this process and is stopped by its
// process id. What it prints is kept, the end of it only, for the error that
// says why it did not start.
package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

const (
	startWithin = 20 * time.Second
	stopWithin  = 20 * time.Second
	keptOutput  = 64 << 10
)

// Command says what to start.
type Command struct {
	Name    string // for people
	Program string
	Args    []string
	Env     []string     // besides this process's own
	Ready   func() error // nil once the program can be used; called again and again
	Quiet   bool         // throw away what it prints, where that is much
}

// Process is a running child.
type Process struct {
	name string
	cmd  *exec.Cmd
	out  tail
	done chan struct{} // closed when it has ended
}

// Start runs a program and waits until it is ready. When the program ends first,
// or takes too long, the error carries the end of what it printed.
func Start(ctx context.Context, c Command) (*Process, error) {
	p := &Process{name: c.Name, cmd: exec.Command(c.Program, c.Args...), done: make(chan struct{})}
	if !c.Quiet { // else it goes to the null device
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	}
	p.cmd.Env = append(os.Environ(), c.Env...)
	DieWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", c.Name, err)
	}
	go func() { // ends with the child, which Stop or our own end sees to
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(p.done)
	}()
	if err := p.wait(ctx, c.Ready); err != nil {
		_ = p.cmd.Process.Kill()
		<-p.done
		return nil, fmt.Errorf("start %s: %w; it printed: %s", c.Name, err, p.out.String())
	}
	return p, nil
}

func (p *Process) wait(ctx context.Context, ready func() error) error {
	deadline := time.NewTimer(startWithin)
	defer deadline.Stop()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := ready()
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-p.done:
			return fmt.Errorf("it ended: %v", p.cmd.ProcessState)
		case <-deadline.C:
			return fmt.Errorf("not ready within %v: %w", startWithin, err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns the end of what the process has printed so far.
func (p *Process) Output() string { return p.out.String() }

// Stop asks the process to end and kills it when it does not. Stopping one that
// has ended already is an error that says how it ended: a measured server must
// not end by itself.
func (p *Process) Stop() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s ended by itself: %v; it printed: %s", p.name, p.cmd.ProcessState, p.out.String())
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	patience := time.NewTimer(stopWithin)
	defer patience.Stop()
	select {
	case <-p.done:
		return nil
	case <-patience.C:
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("stop %s: it took longer than %v and was killed", p.name, stopWithin)
	}
}

// FreeAddr returns a loopback address that nothing listens on just now.
func FreeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Listening makes a ready function that succeeds once addr accepts connections.
func Listening(addr string) func() error {
	return func() error {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return err
		}
		return c.Close()
	}
}

// tail is a writer that keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex // guards buf, which the child's output and readers share
	buf []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - keptOutput; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.buf)
}
