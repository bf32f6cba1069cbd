package proctest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"time"
)

// Patience is how long anything may take that has no bound of its own, on a busy
// machine.
const Patience = time.Minute

// A Process is a program that runs. Its methods may be called from any goroutine.
type Process struct {
	cmd  *exec.Cmd
	over chan struct{}
}

// Start starts a command. Its standard input and outputs should be files, so that its
// end is noticed however long others keep them open.
func Start(cmd *exec.Cmd) (*Process, error) {
	orphanless(cmd)
	p := &Process{cmd: cmd, over: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The process dies with the thread that started it, so that thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.over)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // its error is in the ProcessState too
		}
	}()
	if err := <-started; err != nil {
		<-p.over
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Pid is the process id, also of a process that is over.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Over is closed when the process is gone.
func (p *Process) Over() <-chan struct{} { return p.over }

// Running says whether the process is there; nil is not.
func (p *Process) Running() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.over:
		return false
	default:
		return true
	}
}

// State says how a process that is over ended.
func (p *Process) State() *os.ProcessState {
	<-p.over
	return p.cmd.ProcessState
}

// Kill ends the process in the middle of what it does, also a frozen one, and returns
// when it is gone. One that is over, or nil, is fine too.
func (p *Process) Kill() error {
	if !p.Running() {
		return nil
	}
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kill process %d: %w", p.Pid(), err)
	}
	<-p.over
	return nil
}

// Terminate asks the process to end, thaws it so that it hears, and returns when it is
// gone. One that is over, or nil, is fine too.
func (p *Process) Terminate() error {
	if !p.Running() {
		return nil
	}
	err := errors.Join(terminate(p.cmd.Process), thaw(p.cmd.Process))
	if err != nil && p.Running() {
		return fmt.Errorf("ask process %d to end: %w", p.Pid(), err)
	}
	return p.await()
}

// await waits for the end of the process.
func (p *Process) await() error {
	select {
	case <-p.over:
		return nil
	case <-time.After(Patience):
		return fmt.Errorf("process %d has not ended within %v", p.Pid(), Patience)
	}
}

// Freeze stops the process where it is, until Thaw, Terminate or Kill.
func (p *Process) Freeze() error { return p.signal("freeze", freeze) }

// Thaw has a frozen process go on.
func (p *Process) Thaw() error { return p.signal("thaw", thaw) }

func (p *Process) signal(what string, send func(*os.Process) error) error {
	if !p.Running() {
		return fmt.Errorf("%s a process: it is not running", what)
	}
	if err := send(p.cmd.Process); err != nil {
		return fmt.Errorf("%s process %d: %w", what, p.Pid(), err)
	}
	return nil
}
