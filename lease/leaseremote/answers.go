package leaseremote

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// take takes one frame of the broker. See owner.
func (s *session) take(l *link, frame []byte) error {
	if wire.ScanGrant(frame, &s.seen) && s.takeGrant(l, &s.seen) {
		return nil
	}
	if err := wire.DecodeReply(frame, &s.reply); err != nil {
		return err
	}
	s.takeReply(l, &s.reply)
	return nil
}

// takeGrant takes the answer to an acquire or a release of one key if nothing is
// special about it: what it names is known, so that nothing is copied. False
// leaves it to takeReply.
func (s *session) takeGrant(l *link, g *wire.Grant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.calls[g.N]
	if s.over || s.leaving || s.link != l || c == nil {
		return false
	}
	switch c.do {
	case wire.OpAcquire:
		if len(c.req.Keys) != 1 || c.req.Keys[0] != string(g.Key) || c.req.ID != string(g.ID) {
			return false
		}
		h := &held{one: [1]lease.Hold{{Key: c.req.Keys[0], Token: g.Token}}}
		h.lease = lease.Lease{ID: c.req.ID, Holds: h.one[:], TTL: g.TTL, Waited: g.Waited, Detached: g.Detached}
		if g.TTL != lease.Forever {
			h.lease.Deadline = c.sent.Add(g.Elapsed + g.Remaining)
			h.lease.CountSleep(c.awake)
		}
		s.holds[c.req.ID] = &h.lease
		s.dropLocked(c)
		s.answerLocked(c, h.lease, nil)
	case wire.OpRelease:
		h := s.holds[c.cmd.ID]
		if h == nil || c.cmd.ID != string(g.ID) || len(h.Holds) != 1 || h.Holds[0].Token != g.Token {
			return false
		}
		delete(s.holds, h.ID)
		s.dropLocked(c)
		s.answerLocked(c, lease.Lease{ID: h.ID, Holds: h.Holds}, nil)
	default:
		return false
	}
	s.heard = true
	return true
}

// held is a lease of one key in one piece.
type held struct {
	lease lease.Lease
	one   [1]lease.Hold // where lease.Holds points
}

// takeReply takes any frame.
func (s *session) takeReply(l *link, r *wire.Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.link != l {
		return
	}
	s.heard = true
	switch r.Kind {
	case wire.Notice:
		s.noticedLocked(l, r)
	case wire.Waiting:
		if c := s.calls[r.N]; c != nil && c.do == wire.OpAcquire && !c.told {
			c.told = true // a call that is sent again is queued again
			q := r.Queued()
			s.ready = append(s.ready, outcome{call: c, queued: &q})
		}
	case wire.OK, wire.Failed:
		if r.N == 0 {
			l.fail(r.Err()) // the last frame of the connection
			return
		}
		if c := s.calls[r.N]; c != nil {
			if err := c.otherGrant(r); err != nil {
				l.fail(err) // the call stays, and is asked again
				return
			}
			s.dropLocked(c)
			s.settleLocked(l, c, r)
		}
	}
}

// lease is what the answer to the call says of its lease.
func (c *call) lease(r *wire.Reply) lease.Lease {
	l := r.Lease(c.sent)
	l.CountSleep(c.awake)
	return l
}

// otherGrant says what is wrong with a grant of something else than was asked for.
func (c *call) otherGrant(r *wire.Reply) error {
	if c.do != wire.OpAcquire || r.Kind != wire.OK {
		return nil
	}
	if r.ID != c.req.ID {
		return breach("a grant names another id than the request")
	}
	keys := r.Keys
	if r.Key != "" {
		keys = []string{r.Key}
	}
	for _, k := range keys { // fewer are what is left of a hold that is asked for again
		if !slices.Contains(c.req.Keys, k) {
			return breach("a grant names other keys than the request")
		}
	}
	return nil
}

func breach(reason string) error {
	return &lease.Error{Code: lease.ErrProtocol, Reason: reason}
}

// settleLocked ends a call with the broker's answer.
func (s *session) settleLocked(l *link, c *call, r *wire.Reply) {
	ok := r.Kind == wire.OK
	gone := !ok && r.Code == lease.ErrSessionLost
	switch c.do {
	case wire.OpAcquire:
		s.settleAcquireLocked(c, r)
	case wire.OpPing:
		if ok {
			s.proofLocked(stamp{c.sent, c.awake})
		}
		if c == s.probe {
			s.probe = nil
			if !ok && !gone {
				l.fail(r.Err()) // a broker that closes; the next one will say
			}
			break
		}
		s.answerReplyLocked(c, r)
	case wire.OpClose:
		if ok || gone {
			s.endLocked(nil)
		} else {
			s.endLocked(r.Err())
		}
		return
	default:
		s.settleCommandLocked(c, r)
	}
	if gone {
		s.lostLocked(l)
	}
}

func (s *session) answerReplyLocked(c *call, r *wire.Reply) {
	if r.Kind == wire.OK {
		s.answerLocked(c, c.lease(r), nil)
		return
	}
	s.answerLocked(c, lease.Lease{}, r.Err())
}

func (s *session) settleAcquireLocked(c *call, r *wire.Reply) {
	switch {
	case r.Kind == wire.OK && s.leaving && !c.req.Detach:
		// The goodbye releases it. What its caller is told depends on whether the
		// goodbye arrives, so that it waits for that.
		s.calls[c.n] = c
	case r.Kind == wire.OK:
		granted := c.lease(r)
		s.holds[granted.ID] = &granted
		s.answerLocked(c, granted, nil)
	case !s.leaving && (r.Code == lease.ErrSessionLost || r.Code == lease.ErrClosed && c.waits()):
		// The broker closes, or has ended the session: nothing was done and
		// nothing is lost by asking again once there is a connection.
		c.sent, c.parked = time.Time{}, true
		s.parked++
		s.calls[c.n] = c
	default:
		s.answerLocked(c, lease.Lease{}, r.Err())
	}
}

func (s *session) settleCommandLocked(c *call, r *wire.Reply) {
	missing := r.Kind == wire.Failed && (r.Code == lease.ErrNotHeld || r.Code == lease.ErrOver)
	switch {
	case r.Kind == wire.OK:
		s.carriedOutLocked(c, r)
	case missing && c.again && c.ends():
		l, done := s.presumedLocked(c)
		s.untrackLocked(c)
		if done {
			s.answerLocked(c, l, nil)
			return
		}
	case missing:
		s.untrackLocked(c)
		if c.do == wire.OpDetach && c.hold != nil {
			s.noticesLocked(c.hold, lease.ErrSessionLost, "")
		}
	}
	if c.do == wire.OpCancel && s.parked > 0 {
		s.cancelParkedLocked(c.cmd.ID)
	}
	s.answerReplyLocked(c, r)
}

// presumedLocked decides what becomes of a release or cancel that was sent twice
// and for which there is nothing now. The first sending has done it if the hold
// was there when it was made: it was not told lost, and its time was not up. It
// may have ended in another way since, which cannot be told from this.
func (s *session) presumedLocked(c *call) (lease.Lease, bool) {
	if c.do == wire.OpCancel {
		return lease.Lease{ID: c.cmd.ID}, true
	}
	h := c.hold
	if h == nil {
		h = s.holdOfLocked(c)
	}
	switch {
	case h == nil:
		return lease.Lease{ID: c.cmd.ID}, !c.mine
	case !h.Deadline.IsZero() && !c.start.Before(h.End()):
		return lease.Lease{}, false
	}
	l := lease.Lease{ID: h.ID}
	l.Holds = slices.DeleteFunc(slices.Clone(h.Holds), func(x lease.Hold) bool { return !c.about(h.ID, x) })
	return l, true
}

// carriedOutLocked notes what a command did to the holds.
func (s *session) carriedOutLocked(c *call, r *wire.Reply) {
	id := r.ID
	if c.do == wire.OpCancel {
		id = c.cmd.ID
	}
	h := s.holds[id]
	if h == nil {
		return
	}
	switch c.do {
	case wire.OpRenew:
		l := c.lease(r)
		h.TTL, h.Deadline = l.TTL, l.Deadline
		h.CountSleep(c.awake)
	case wire.OpDetach:
		h.Detached = true
	case wire.OpCancel:
		delete(s.holds, h.ID)
	case wire.OpRelease:
		s.forgetLocked(h, func(x lease.Hold) bool { return c.about(h.ID, x) })
	}
}

// forgetLocked forgets the holds that a predicate picks, and the lease with its
// last one.
func (s *session) forgetLocked(h *lease.Lease, pick func(lease.Hold) bool) {
	if len(h.Holds) > 1 {
		// The callers have the same array: change a copy.
		h.Holds = slices.DeleteFunc(slices.Clone(h.Holds), pick)
	} else if len(h.Holds) == 1 && pick(h.Holds[0]) {
		h.Holds = nil
	}
	if len(h.Holds) == 0 {
		delete(s.holds, h.ID)
	}
}

// untrackLocked forgets what a command was about.
func (s *session) untrackLocked(c *call) {
	if h := s.holdOfLocked(c); h != nil {
		s.forgetLocked(h, func(x lease.Hold) bool { return c.about(h.ID, x) })
	}
}

// cancelParkedLocked answers a request, with its repeats, that was sent back by a
// closing broker and is cancelled before it could be sent to the next one.
func (s *session) cancelParkedLocked(id string) {
	for _, c := range s.calls {
		if c.parked && c.req.ID == id {
			s.dropLocked(c)
			s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrCancelled, "", nil))
		}
	}
}

// noticedLocked takes the broker's word on a loss.
func (s *session) noticedLocked(l *link, r *wire.Reply) {
	if r.ID == "" {
		s.lostLocked(l)
		return
	}
	if h := s.holds[r.ID]; h != nil {
		s.forgetLocked(h, func(x lease.Hold) bool { return x.Token == r.Token })
	}
	s.noticeLocked(r.Loss())
}

// noticesLocked tells of the loss of all keys of a lease.
func (s *session) noticesLocked(h *lease.Lease, code lease.Code, by string) {
	for _, x := range h.Holds {
		s.noticeLocked(lease.Notice{ID: h.ID, Key: x.Key, Token: x.Token, Code: code, By: by})
	}
}
