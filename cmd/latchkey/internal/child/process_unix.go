//go:build unix

package child

import (
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a command in a process group of its own. Its methods are called by
// the supervisor only; the goroutine in watch starts and waits.
type process struct {
	pid     int // also the id of its group
	events  chan event
	signals chan os.Signal
	own     bool      // signals was made here
	term    *terminal // nil without a controlling terminal
	guard   *guard    // nil when none was asked for, or none could be had
	gate    *gate     // nil as well: then the command runs from the start

	// While this process asks to be stopped along with the command, suspended
	// counts down the ticks that remain until it is clear that nobody can stop
	// it: it is in an orphaned group.
	suspended int
	ticker    *time.Ticker
	stopKey   os.Signal // what stopped the command
}

// Waiting for this process's own stop to take effect: a stop comes at once, and
// its end is a SIGCONT, which is the first thing seen after it.
const (
	suspendTick  = 50 * time.Millisecond
	suspendTicks = 10
)

// relayed are the signals that this process passes on to the command's group.
var relayed = [...]os.Signal{
	unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP,
}

// start starts the command and the goroutine that waits for it.
func start(o Options, deadline time.Time) (*process, error) {
	p := &process{
		events:  make(chan event, 4),
		signals: o.Signals,
		term:    openTerminal(o.Stdin, o.Stdout),
	}
	if p.signals == nil {
		p.signals, p.own = make(chan os.Signal, 16), true
	}
	// Before the start, so that no signal can end this process and leave the
	// command alone. What whoever started us ignores stays ignored, for the
	// command too.
	for _, sig := range relayed {
		if !signal.Ignored(sig) {
			signal.Notify(p.signals, sig)
		}
	}
	signal.Notify(p.signals, unix.SIGCONT)

	if len(o.Guard) > 0 {
		var err error
		if p.guard, err = startGuard(o.Guard); err != nil && o.Report != nil {
			o.Report("nothing guards the command should this process be stopped: " + err.Error())
		}
	}
	if p.guard != nil && len(o.Gate) > 0 {
		// Without one the command runs a moment before it is guarded.
		p.gate, _ = newGate()
	}
	attr := &syscall.ProcAttr{
		Env:   o.Env,
		Files: []uintptr{o.Stdin.Fd(), o.Stdout.Fd(), o.Stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	}
	adoptOrphans()
	dieWithParent(attr.Sys)
	if p.term != nil && p.term.eager {
		attr.Sys.Foreground, attr.Sys.Ctty = true, p.term.fd
	}
	started := make(chan error)
	go p.watch(o, attr, started)
	if err := <-started; err != nil {
		p.close()
		return nil, err
	}
	if p.guard != nil {
		p.guard.watch(p.pid)
		p.guard.tell(deadline)
	}
	if p.gate != nil {
		p.gate.open()
	}
	if p.term != nil {
		// From here on this process sets the terminal's group from the
		// background. After the start, so that the command does not inherit it.
		signal.Ignore(unix.SIGTTOU)
		p.term.given = p.term.eager
	}
	return p, nil
}

// watch starts the command and reports its stops and its end.
func (p *process) watch(o Options, attr *syscall.ProcAttr, started chan<- error) {
	// The parent-death signal is bound to the thread that forked, so this
	// goroutine keeps its thread until the command has ended; the thread ends
	// with the goroutine.
	runtime.LockOSThread()
	path, args := o.Path, o.Args
	if p.gate != nil {
		path, args = o.Gate[0], slices.Concat(o.Gate, []string{o.Path}, o.Args)
		for _, f := range p.gate.theirs {
			attr.Files = append(attr.Files, f.Fd())
		}
	}
	pid, err := syscall.ForkExec(path, args, attr)
	p.pid = pid
	if p.gate != nil {
		p.gate.started()
	}
	started <- err
	if err != nil {
		return
	}
	for {
		var ws syscall.WaitStatus
		who, err := syscall.Wait4(-1, &ws, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err == nil && who != pid:
			// An orphan that was adopted, or the guard: waiting for it was all
			// there is to do.
		case err != nil:
			// Somebody else has waited for it: it is gone, and how is not known.
			p.events <- event{status: Status{Exit: 1}}
			return
		case ws.Stopped():
			p.events <- event{stopped: ws.StopSignal()}
		case ws.Signaled():
			p.events <- event{status: Status{Signal: ws.Signal()}}
			return
		case ws.Exited():
			e := event{status: Status{Exit: ws.ExitStatus()}}
			if p.gate != nil {
				e.failed = p.gate.failure()
			}
			p.events <- e
			return
		}
	}
}

// close gives back what start took.
func (p *process) close() {
	if p.own {
		signal.Stop(p.signals)
	}
	if p.ticker != nil {
		p.ticker.Stop()
	}
	if p.guard != nil {
		p.guard.dismiss()
	}
	if p.gate != nil {
		p.gate.close()
	}
	if p.term != nil {
		signal.Reset(unix.SIGTTOU)
		p.term.close()
	}
}

// deadline tells the guard how far the command may go.
func (p *process) deadline(d time.Time) {
	if p.guard != nil {
		p.guard.tell(d)
	}
}

// terminate asks the whole group to stop. A stopped process acts on that only
// once it is continued.
func (p *process) terminate() {
	p.send(unix.SIGTERM)
	p.send(unix.SIGCONT)
}

func (p *process) kill() { p.send(unix.SIGKILL) }

// send signals the whole group; that it is gone already is no matter.
func (p *process) send(sig syscall.Signal) { _ = unix.Kill(-p.pid, sig) }

// groupAlive reports whether anything of the group is left, once the command
// itself has been waited for.
func (p *process) groupAlive() bool {
	for {
		// Ended orphans of the group would count as alive until somebody waits
		// for them.
		who, err := syscall.Wait4(-p.pid, nil, syscall.WNOHANG, nil)
		if who <= 0 && !errors.Is(err, syscall.EINTR) {
			return unix.Kill(-p.pid, 0) == nil
		}
	}
}

// onSignal passes a signal of this process on.
func (p *process) onSignal(sig os.Signal) {
	if sig == unix.SIGCONT {
		p.resume()
		return
	}
	p.send(sig.(syscall.Signal))
}

// onStop decides what it means that the command was stopped.
func (p *process) onStop(sig os.Signal) {
	switch sig {
	case unix.SIGTTIN, unix.SIGTTOU:
		// It needs the terminal. If the terminal is ours to give, give it.
		if p.term != nil && p.term.give(p.pid) {
			p.send(unix.SIGCONT)
			return
		}
		p.suspend(sig)
	case unix.SIGTSTP:
		p.suspend(sig)
	default:
		// Somebody stopped the command, not the job: the lock is kept.
	}
}

// suspend stops this process and those that share its group, as the terminal
// would have stopped them had the command been one of them: the shell gets its
// prompt back. Nothing is renewed until the job is continued, so the lock may
// be lost by then.
func (p *process) suspend(sig os.Signal) {
	if p.term == nil {
		return // no job control: nobody would continue us
	}
	p.term.take()
	p.stopKey = sig
	p.suspended = suspendTicks
	p.ticker = time.NewTicker(suspendTick)
	// Not SIGTSTP: that one is caught, and Go has no way back to its default.
	_ = unix.Kill(0, unix.SIGTTIN)
}

// tick delivers while this process waits for its own stop.
func (p *process) tick() <-chan time.Time {
	if p.ticker == nil {
		return nil
	}
	return p.ticker.C
}

func (p *process) onTick() {
	if p.suspended--; p.suspended > 0 {
		return
	}
	// No stop came: there is no shell that could continue us. A command that
	// wanted the terminal gets what the system does to orphans, since it would
	// stop again; any other goes on.
	if p.stopKey != unix.SIGTSTP {
		p.send(unix.SIGHUP)
	}
	p.resume()
}

// resume lets the command go on, in the foreground if that is where this
// process was put.
func (p *process) resume() {
	if p.ticker != nil {
		p.ticker.Stop()
		p.ticker = nil
	}
	if p.term != nil && (p.term.eager || p.term.given) {
		p.term.give(p.pid)
	}
	p.send(unix.SIGCONT)
}

// takeTerminal puts this process's group back in the foreground after the
// command has ended, and passes on to it the keyboard's signal that ended the
// command: had the command been one of the group, all of them would have had it.
func (p *process) takeTerminal(st Status) {
	if p.term == nil || !p.term.take() {
		return
	}
	if st.Signal != 0 {
		p.term.restoreModes()
	}
	if st.Signal == unix.SIGINT || st.Signal == unix.SIGQUIT {
		p.tellGroup(st.Signal)
	}
}

// tellGroup signals this process's own group. This process is one of it and
// catches the signal; it waits for that, so as not to die of it afterwards.
func (p *process) tellGroup(sig syscall.Signal) {
	if signal.Ignored(sig) {
		return
	}
	_ = unix.Kill(0, sig)
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-p.signals:
	case <-timer.C:
	}
}
