package engine

import (
	"github.com/latchkey-go/latchkey/lease"
)

// failure is an error on its way to a caller, still without its operation.
type failure struct{ err error }

func failed(err error) *failure { return &failure{err} }

// on names the operation and key that failed, where that is not said yet.
func (f *failure) on(op, key string) error {
	if x, ok := f.err.(*lease.Error); ok {
		x.Op = op
		if x.Key == "" {
			x.Key = key
		}
	}
	return f.err
}

// alive checks that a command's session exists and has not been taken over, and
// counts the command as a sign of life.
func (e *Engine) alive(s *Session, epoch uint32) *failure {
	switch {
	case s.ended:
		return failed(&lease.Error{Code: lease.ErrSessionLost, Reason: "the session has ended"})
	case epoch != s.epoch:
		return failed(&lease.Error{Code: lease.ErrSessionLost, Reason: "another connection resumed the session"})
	}
	e.seen(s)
	return nil
}

func (e *Engine) seen(s *Session) {
	s.seen = e.now
	e.graceEnds.moved(s, false)
}

// Open begins a session with the given id, which must be new and hard to guess.
func (e *Engine) Open(id string, o lease.SessionOptions) (*Session, uint32, error) {
	if err := e.unready(); err != nil {
		return nil, 0, failed(err).on("open", "")
	}
	if len(e.sessions) >= lease.MaxSessions {
		err := lease.Refuse("%d sessions, no more are allowed (MaxSessions)", len(e.sessions))
		return nil, 0, failed(err).on("open", "")
	}
	s := &Session{
		id: id, party: lease.Party{Session: o.Name, Host: o.Host, PID: o.PID},
		grace: o.Grace, notify: o.Notify, settled: o.Settled, epoch: 1,
	}
	e.sessions[id] = s
	e.seen(s)
	return s, s.epoch, nil
}

// Resume takes a session over: older epochs are void. It returns what the
// session holds, and the matching ends.
func (e *Engine) Resume(id string, o lease.SessionOptions) (*Session, uint32, []Effect, error) {
	s := e.sessions[id]
	if s == nil {
		return nil, 0, nil, &lease.Error{Code: lease.ErrSessionLost, Op: "open", Reason: "there is no session with this id"}
	}
	e.silence(s)
	s.broken = false
	s.notify, s.settled = o.Notify, o.Settled
	s.epoch++
	e.seen(s)
	var leases []Effect
	for r := s.first; r != nil; r = r.snext {
		if r.wait == nil {
			l, end := e.leaseOf(r)
			leases = append(leases, Effect{Lease: l, End: end})
		}
	}
	e.pass()
	return s, s.epoch, leases, nil
}

// silence drops the callers of a session's waiters: they keep their place and
// are passed over until the session asks for them again.
func (e *Engine) silence(s *Session) {
	for r := s.first; r != nil; r = r.snext {
		if w := r.wait; w != nil && w.active() {
			for i := range w.nodes {
				if n := &w.nodes[i]; n.key.busy.queue.unasked(n) {
					e.touched(n.key)
				}
			}
			w.callers = nil
		}
	}
}

// Suspend says that the connection of a session broke.
func (e *Engine) Suspend(s *Session, epoch uint32) {
	if s.ended || epoch != s.epoch || s.broken {
		return
	}
	s.broken = true
	s.notify, s.settled = nil, nil
	if s.grace == 0 {
		s.seen = e.now // it owed no sign of life until now
	}
	if s.grace == lease.NoGrace {
		e.endSession(s, lease.ErrSessionLost)
	} else {
		e.silence(s)
		e.graceEnds.moved(s, false)
	}
	e.pass()
}

// CloseSession is a session's goodbye.
func (e *Engine) CloseSession(s *Session, epoch uint32) error {
	if epoch != s.epoch {
		return e.alive(s, epoch).on("close", "")
	}
	if !s.ended {
		e.endSession(s, lease.ErrClosed)
		e.pass()
	}
	if err := e.unready(); err != nil && e.cfg.Durable {
		return failed(err).on("close", "") // what was released here is not in the journal
	}
	return nil
}

// endSession releases what the session holds, removes its waiters, and forgets
// it. Holds that were detached stay. why is ErrClosed for a goodbye.
func (e *Engine) endSession(s *Session, why lease.Code) {
	lost := why != lease.ErrClosed
	for s.first != nil {
		r := s.first
		switch {
		case r.wait != nil:
			e.refuseWaiter(r.wait, &lease.Error{Code: why, Op: "acquire", Reason: "the session ended"})
		case r.flags&detached != 0:
			s.unlink(r)
			r.flags |= sessionEnded
		default:
			e.endHolds(r, lost)
		}
	}
	e.graceEnds.remove(s)
	delete(e.sessions, s.id)
	if s.journaled {
		e.record(Record{Kind: recSessionEnd, ID: s.id}, false)
	}
	if lost {
		e.notice(s, lease.Notice{Code: lease.ErrSessionLost})
	}
	s.ended = true
}

func (e *Engine) endHolds(r *request, lost bool) {
	for i := range r.holds {
		h := &r.holds[i]
		switch {
		case !h.live():
		case lost:
			e.lose(h, lease.EventEnded, lease.ErrSessionLost, "")
		default:
			e.drop(h, lease.EventReleased, released)
			e.stats.Released++
		}
	}
}
