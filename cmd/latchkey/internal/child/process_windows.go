package child

import (
	"os"
	"os/signal"
	"time"
)

// Missing says what Run cannot do on this system; empty when nothing is missing.
const Missing = "On Windows only the command itself is killed when the lock is lost, not what it started, " +
	"without being asked first, and it is not killed when run itself is."

// process is a command. Windows has no process groups that can be signalled, so
// only the command itself is in reach.
type process struct {
	proc    *os.Process
	events  chan event
	signals chan os.Signal
	own     bool // signals was made here
}

func start(o Options, _ time.Time) (*process, error) {
	p := &process{events: make(chan event, 1), signals: o.Signals}
	if p.signals == nil {
		p.signals, p.own = make(chan os.Signal, 4), true
	}
	// The console sends an interrupt to the command as well: it is enough not to
	// die of it.
	signal.Notify(p.signals, os.Interrupt)
	proc, err := os.StartProcess(o.Path, o.Args, &os.ProcAttr{
		Env: o.Env, Files: []*os.File{o.Stdin, o.Stdout, o.Stderr},
	})
	if err != nil {
		p.close()
		return nil, err
	}
	p.proc = proc
	go p.watch()
	return p, nil
}

// watch reports the command's end.
func (p *process) watch() {
	st, err := p.proc.Wait()
	if err != nil {
		p.events <- event{status: Status{Exit: 1}}
		return
	}
	p.events <- event{status: Status{Exit: st.ExitCode()}}
}

func (p *process) close() {
	if p.own {
		signal.Stop(p.signals)
	}
}

// terminate does nothing: there is no way to ask, so the command keeps the time
// until the deadline.
func (p *process) terminate() {}

func (p *process) kill() { _ = p.proc.Kill() }

func (p *process) deadline(time.Time)     {}
func (p *process) groupAlive() bool       { return false }
func (p *process) onSignal(os.Signal)     {}
func (p *process) onStop(os.Signal)       {}
func (p *process) tick() <-chan time.Time { return nil }
func (p *process) onTick()                {}
func (p *process) takeTerminal(Status)    {}
