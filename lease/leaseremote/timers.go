package leaseremote

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// startPingsLocked begins to ping: each third of the grace.
func (s *session) startPingsLocked() {
	switch {
	case s.grace <= 0:
	case s.pinger == nil:
		s.pinger = time.AfterFunc(s.pingEvery(), s.ping)
	default:
		s.pinger.Reset(s.pingEvery())
	}
}

func (s *session) pingEvery() time.Duration { return max(s.grace/3, time.Millisecond) }

// ping runs on the timer. A broker from which nothing came since the last ping, a
// third of the grace ago, or that owes the answer for a whole grace, is dead or
// out of reach although the connection stands: what is left of the grace is
// better spent on another one.
func (s *session) ping() {
	s.mu.Lock()
	l := s.link
	if s.over || l == nil {
		s.mu.Unlock() // the next connection starts the pings
		return
	}
	flush := false
	switch {
	case s.probe == nil:
		s.probe = s.svc.newCommand(&lease.Command{Verb: lease.Ping}, nil)
		s.probe.ours = true
		s.probe.start = time.Now()
		flush, _ = s.sendLocked(s.probe, s.probe.start) // the frame is short
	case !s.heard || time.Since(s.probe.sent) >= s.grace:
		l.fail(errSilent)
	}
	s.heard = false
	s.pinger.Reset(s.pingEvery())
	s.mu.Unlock()
	if flush {
		l.flush()
	}
}

// dueLocked is when a call is given up if there is no connection until then.
// Cancels are kept: the request that they are for must not come back without.
func (s *session) dueLocked(c *call) time.Time {
	switch {
	case c.ours, c.do == wire.OpCancel:
		return time.Time{}
	case !c.waits():
		return s.patient
	case c.req.Wait > 0:
		return c.start.Add(c.req.Wait)
	}
	return time.Time{}
}

// armLocked lets the timer run at t if that is sooner than it would.
func (s *session) armLocked(t time.Time) {
	if t.IsZero() || !s.nextDue.IsZero() && !t.Before(s.nextDue) {
		return
	}
	s.nextDue = t
	if d := max(time.Until(t), 0); s.overdue == nil {
		s.overdue = time.AfterFunc(d, s.giveUpOverdue)
	} else {
		s.overdue.Reset(d)
	}
}

// giveUpOverdue runs on the timer.
func (s *session) giveUpOverdue() {
	s.mu.Lock()
	if s.over || s.link != nil {
		s.mu.Unlock()
		return
	}
	now := time.Now()
	s.nextDue = time.Time{}
	for _, c := range s.sortedCallsLocked() {
		switch due := s.dueLocked(c); {
		case due.IsZero():
		case due.After(now):
			s.armLocked(due)
		default:
			s.giveUpLocked(c)
		}
	}
	s.mu.Unlock()
	s.deliver()
}

// giveUpLocked answers a call while there is no connection. If it was sent, its
// outcome cannot be known, and the next connection undoes it.
func (s *session) giveUpLocked(c *call) {
	const away = "the broker cannot be reached"
	s.dropLocked(c)
	switch {
	case c.sent.IsZero() && c.waits():
		s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrTimeout, away, s.trouble))
	case c.sent.IsZero():
		s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrUnavailable, away, s.trouble))
	default:
		s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrUnknown, away, s.trouble))
		switch c.do {
		case wire.OpAcquire:
			s.oursLocked(lease.Command{Verb: lease.Cancel, ID: c.req.ID})
		case wire.OpRelease:
			s.untrackLocked(c) // a resume then finds a lease that nobody wants
		}
	}
}
