package child

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
)

// What a command leaves behind in its group may be about to end as well, by the
// same ^C for example: it is let be for settleTime. Then it is asked to stop, and
// has sweepTime for it.
const (
	settleTime = 100 * time.Millisecond
	sweepTime  = 2 * time.Second
	sweepStep  = 5 * time.Millisecond // how often it is looked at
)

// The deadline is looked at when it comes near, and every lookEvery whatever it
// says. A look that comes frozenAfter after the one before shows that this
// process was stopped, or the machine slept, and the renewals with it: they get
// up to patience to catch up.
const (
	lookEvery   = time.Second
	frozenAfter = 2 * time.Second
	patience    = 500 * time.Millisecond
)

// Run starts the command and returns when it has ended and its process group is
// empty. The error is a *StartError, and then nothing ran; any other end is in
// the Status.
func Run(h Hold, o Options) (Status, error) {
	p, err := start(o, h.Deadline())
	if err != nil {
		return Status{}, startError(o.Args[0], err)
	}
	defer p.close()
	s := supervisor{hold: h, options: o, process: p, clock: &asleep.Clock{}}
	st, err := s.run()
	if err != nil {
		return Status{}, startError(o.Args[0], err)
	}
	return st, nil
}

// supervisor is the loop that decides between a command and its hold. Only the
// goroutine in run touches it.
type supervisor struct {
	hold    Hold
	options Options
	clock   *asleep.Clock
	process *process
	asked   bool // SIGTERM was sent on account of the deadline
	killed  bool // SIGKILL was sent

	looked  time.Time   // at the deadline, last
	awake   asleep.Mark // made then
	patient time.Time   // until then the command is not asked to stop
}

// event is something that happened to the command.
type event struct {
	stopped os.Signal // the command was stopped by it; nil when it ended
	status  Status
	failed  error // nothing ran: the command could not be executed
}

func (s *supervisor) run() (Status, error) {
	s.checkDeadline()
	timer := time.NewTimer(s.untilNext())
	defer timer.Stop()
	lost := s.hold.Context().Done()
	for {
		select {
		case e := <-s.process.events:
			if e.failed != nil {
				s.process.takeTerminal(e.status)
				return Status{}, e.failed
			}
			if e.stopped == nil {
				return s.finish(e.status), nil
			}
			s.checkDeadline()
			s.process.onStop(e.stopped)
		case sig := <-s.process.signals:
			// A process that was frozen wakes up by a signal too: what the
			// deadline says comes before anything that could let the command go
			// on.
			s.checkDeadline()
			s.process.onSignal(sig)
		case <-s.process.tick():
			s.process.onTick()
		case <-lost:
			lost = nil
			s.kill(context.Cause(s.hold.Context()).Error())
		case <-timer.C:
			s.checkDeadline()
		}
		timer.Reset(s.untilNext())
	}
}

// untilNext is the time until the deadline has to be looked at again: in time to
// ask the command to stop, and early enough that the guard, which must not have
// to wonder, hears of a new deadline well before the old one.
func (s *supervisor) untilNext() time.Duration {
	d := s.hold.Deadline()
	if d.IsZero() || s.killed {
		return lookEvery
	}
	left := time.Until(d)
	next := min(left/3, lookEvery)
	if !s.asked {
		next = min(next, max(left-s.options.Lead, time.Until(s.patient)))
	}
	return min(max(next, time.Millisecond), max(left, 0))
}

// checkDeadline asks the command to stop, or kills it, when it is time.
func (s *supervisor) checkDeadline() {
	d := s.hold.Deadline()
	s.process.deadline(d)
	if d.IsZero() || s.killed {
		return
	}
	now := time.Now()
	left := d.Sub(now)
	if now.Sub(s.looked)+s.awake.Slept() > frozenAfter && !s.looked.IsZero() {
		// Not the renewals stood still but this process. They go on now, if the
		// hold is still there.
		s.patient = now.Add(min(left/2, patience))
	}
	s.looked, s.awake = now, s.clock.Mark()
	switch {
	case left <= 0:
		s.kill("its deadline passed without a renewal")
	case !s.asked && left <= s.options.Lead && !now.Before(s.patient):
		s.asked = true
		s.report("the lock is not being renewed and ends in %v: asking the command to stop", left.Round(time.Millisecond))
		s.process.terminate()
	}
}

func (s *supervisor) kill(why string) {
	if s.killed {
		return
	}
	s.killed = true
	s.process.kill()
	s.report("the lock was lost (%s): killed the command", why)
}

// finish sees to it that nothing of the command's group outlives the lock: what
// the command left behind would go on without it.
func (s *supervisor) finish(st Status) Status {
	if st.Signal == syscall.SIGKILL && !s.killed && s.over() {
		s.kill("its deadline passed without a renewal") // the guard was faster
	}
	st.Lost = s.killed
	s.process.takeTerminal(st)
	if s.await(settleTime) {
		return st
	}
	if !s.killed && !s.over() {
		s.report("the command left processes behind: stopping them before the lock is released")
		s.process.terminate()
		if s.await(sweepTime) {
			return st
		}
	}
	s.killed = true
	s.process.kill()
	s.await(sweepTime)
	return st
}

// await waits until the group is empty and reports whether it is: at most limit,
// and before the last kill only as long as the hold lasts. Members of the group
// need not be children of this process, so that there is nothing to wait on but
// their being there.
func (s *supervisor) await(limit time.Duration) bool {
	end := time.Now().Add(limit)
	for s.process.groupAlive() {
		if !s.killed && s.over() || !time.Now().Before(end) {
			return false
		}
		time.Sleep(sweepStep)
	}
	return true
}

// over reports whether the hold is.
func (s *supervisor) over() bool {
	d := s.hold.Deadline()
	return s.hold.Context().Err() != nil || !d.IsZero() && time.Until(d) <= 0
}

func (s *supervisor) report(format string, args ...any) {
	if s.options.Report != nil {
		s.options.Report(fmt.Sprintf(format, args...))
	}
}
