package leaseremote

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// fouls is how many connections a call may be on while they end in a breach of
// protocol. It may be the reason, and others share the connection.
const fouls = 3

// begin opens the session for the first time.
func (s *session) begin(ctx context.Context) (*link, error) {
	l, err := s.svc.first(ctx)
	if err != nil {
		return nil, err
	}
	if err = s.greet(ctx, l); err == nil {
		return l, nil
	}
	l.close(err)
	var answer *lease.Error
	if errors.As(err, &answer) || ctx.Err() != nil {
		return nil, err
	}
	// It was the spare connection, and had broken since.
	if l, err = s.svc.connect(ctx); err != nil {
		return nil, err
	}
	if err = s.greet(ctx, l); err != nil {
		return nil, l.close(err)
	}
	return l, nil
}

// keep runs the session's keeper.
func (s *session) keep(l *link) {
	defer s.svc.kept.Done()
	defer s.svc.forget(s)
	k := keeper{owner: s, connect: s.svc.connect, patience: s.svc.opts.DialTimeout, log: s.log}
	if s.grace > 0 {
		// Time for more than one attempt while the session lives.
		k.patience = min(k.patience, max(s.grace/3, 250*time.Millisecond))
	}
	k.run(s.ctx, l)
}

// greet opens or resumes the session on a new connection. See owner.
func (s *session) greet(ctx context.Context, l *link) error {
	s.mu.Lock()
	id, opened := s.id, s.opened
	s.mu.Unlock()
	asked := id
	sent, r, leases, err := s.open(ctx, l, asked)
	if opened && id != "" && errors.Is(err, lease.ErrSessionLost) {
		s.mu.Lock()
		switch {
		case r.N != 0:
			s.loseLocked()
		case s.excuseLocked():
			s.mu.Unlock()
			return err // the next connection resumes
		default:
			s.takenLocked()
		}
		over := s.over
		s.mu.Unlock()
		s.deliver()
		if over {
			return errStopped
		}
		asked = ""
		sent, r, leases, err = s.open(ctx, l, asked)
	}
	if err != nil {
		return err
	}
	if asked != "" && r.Session != asked {
		return breach("the answer to a resume names another session")
	}
	return s.install(l, sent, &r, leases)
}

// open sends the open frame and returns when, with the answer and the leases.
func (s *session) open(ctx context.Context, l *link, resume string) (stamp, wire.Reply, []lease.Lease, error) {
	o := lease.SessionOptions{Resume: resume}
	if resume == "" {
		o = s.opts
		o.Resume = ""
		if s.opened {
			o.Grace = s.grace
		}
	}
	req := wire.Open(1, &o)
	var leases []lease.Lease
	sent := stamp{time.Now(), s.svc.opts.sleep.Mark()}
	handled := false
	r, err := l.ask(ctx, &req, func(part *wire.Reply) {
		if part.Kind == wire.Part {
			handled = true
			leases = append(leases, sent.leases(part)...)
		}
	})
	if resume != "" && err != nil && !handled && r.Kind != wire.Failed {
		s.mu.Lock()
		s.adrift++
		s.mu.Unlock()
	}
	return sent, r, append(leases, sent.leases(&r)...), err
}

// stamp is when something was sent.
type stamp struct {
	at    time.Time
	awake asleep.Mark
}

// leases are those that an answer to what was sent then lists.
func (s stamp) leases(r *wire.Reply) []lease.Lease {
	out := r.ResumedLeases(s.at)
	for i := range out {
		out[i].CountSleep(s.awake)
	}
	return out
}

// install puts a connection with an open session to use.
func (s *session) install(l *link, sent stamp, r *wire.Reply, leases []lease.Lease) error {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return errStopped
	}
	resumed := r.Session == s.id
	first := !s.opened
	s.id, s.opened = r.Session, true
	if !resumed {
		s.adrift = 0
	}
	switch {
	case !resumed || first && r.Grace != 0:
		s.grace = r.Grace
	case first:
		s.grace = s.opts.Grace
	}
	s.link, s.trouble, s.nextDue = l, nil, time.Time{}
	l.cork()
	switch {
	case first:
		s.leases = leases
		for i := range leases {
			h := leases[i]
			s.holds[h.ID] = &h
		}
		s.proofLocked(sent)
	case resumed:
		s.reconcileLocked(leases)
	}
	if !first {
		s.log.Info("connected to the broker again", "broker", s.svc.addr, "resumed", resumed)
		// Losses are told before the deadline moves, so that no hold of before
		// looks safe for a moment.
		s.afterLocked(func() {
			s.mu.Lock()
			s.proofLocked(sent)
			s.mu.Unlock()
		})
	}
	s.sendAgainLocked(!resumed)
	s.startPingsLocked()
	s.mu.Unlock()
	l.uncork()
	s.deliver()
	return nil
}

// sendAgainLocked sends everything that has no answer, in the old order. fresh
// says that it goes to another session than before.
func (s *session) sendAgainLocked(fresh bool) {
	for _, c := range s.sortedCallsLocked() {
		if c.parked {
			c.parked = false
			s.parked--
		}
		if fresh && c.again && c.leavesHold() && c.do == wire.OpAcquire {
			// A grant that nobody was told of would be in the way until its ttl.
			s.oursLocked(lease.Command{Verb: lease.Release, ID: c.req.ID})
		}
		if _, err := s.sendLocked(c, time.Now()); err != nil {
			s.answerLocked(c, lease.Lease{}, c.name(err)) // cannot be: it was sent before
		}
	}
}

func (s *session) sortedCallsLocked() []*call {
	calls := make([]*call, 0, len(s.calls))
	for _, c := range s.calls {
		calls = append(calls, c)
	}
	slices.SortFunc(calls, func(a, b *call) int { return cmp.Compare(a.n, b.n) })
	return calls
}

// cut says that the connection broke, or that none could be made. See owner.
func (s *session) cut(l *link, err error) bool {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return false
	}
	s.trouble = err
	switch {
	case l == nil:
	case errors.Is(err, lease.ErrSessionLost) && s.id != "" && !s.excuseLocked():
		s.takenLocked()
	default:
		s.log.Warn("the connection to the broker broke", "broker", s.svc.addr, "error", err)
		s.brokenLocked(errors.Is(err, lease.ErrProtocol))
	}
	over := s.over
	s.mu.Unlock()
	s.deliver()
	return !over
}

// excuseLocked reports whether a takeover may be of this side's own making: an
// open that was sent on a connection that was given up, and to which the broker
// came after a newer one. Each such open excuses one takeover, so that somebody
// else who has the id prevails in the end.
func (s *session) excuseLocked() bool {
	if s.adrift == 0 {
		return false
	}
	s.adrift--
	return true
}

const takenOver = "another connection resumed the session"

// takenLocked ends this side of a session that another connection has now. The
// holds are that one's and live on, so nothing is told of them; but whoever waits
// here is answered, and whoever looks at the deadline stops.
func (s *session) takenLocked() {
	s.log.Warn(takenOver, "session", s.opts.Name, "holds", len(s.holds))
	s.taken = true
	if s.grace > 0 {
		s.until.Store(1)
	}
	for _, c := range s.sortedCallsLocked() {
		s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrSessionLost, takenOver, nil))
	}
	clear(s.calls)
	for _, done := range s.closers {
		s.afterLocked(func() { done(nil) })
	}
	s.finishLocked()
}

// brokenLocked adjusts everything to having no connection.
func (s *session) brokenLocked(foul bool) {
	s.link = nil
	if s.probe != nil {
		s.dropLocked(s.probe)
		s.probe = nil
	}
	s.patient = s.Deadline()
	if s.patient.IsZero() {
		s.patient = time.Now().Add(lease.DefaultGrace)
	}
	for _, c := range s.calls {
		if c.sent.IsZero() {
			continue
		}
		c.again = true
		if foul && !c.told {
			if c.fouls++; c.fouls >= fouls && !c.ours {
				s.giveUpLocked(c)
			}
		}
	}
	if s.grace <= 0 && s.id != "" {
		s.loseLocked() // a session without a grace ends with its connection
	}
	s.nextDue = time.Time{}
	for _, c := range s.calls {
		s.armLocked(s.dueLocked(c))
	}
}

// lostLocked acts on the broker's word that the session is gone.
func (s *session) lostLocked(l *link) {
	if s.id == "" || s.over {
		return
	}
	s.loseLocked()
	// A connection has one session: another one needs another connection.
	l.fail(&lease.Error{Code: lease.ErrSessionLost, Reason: "the broker ended the session"})
}

// loseLocked takes the end of the session at the broker: holds are lost, calls
// about them are settled, and what waits stays for the next session.
func (s *session) loseLocked() {
	s.log.Warn("the broker ended the session", "session", s.opts.Name, "holds", len(s.holds))
	s.id = ""
	if s.closing {
		s.endLocked(nil)
		return
	}
	ending := make(map[*lease.Lease]bool) // holds about whose end nobody wonders
	for _, c := range s.sortedCallsLocked() {
		s.loseCallLocked(c, ending)
	}
	for _, h := range s.holds {
		if !h.Detached && !ending[h] {
			s.noticesLocked(h, lease.ErrSessionLost, "")
		}
	}
	clear(s.holds)
}

// loseCallLocked settles a call about a hold of the session that is gone. Calls
// that can be carried out by another session stay.
func (s *session) loseCallLocked(c *call, ending map[*lease.Lease]bool) {
	if c.do == wire.OpAcquire || c.do == wire.OpPing || c.do == wire.OpCancel {
		return
	}
	h := s.holdOfLocked(c)
	switch {
	case h == nil && c.cmd.ID != "", h != nil && h.Detached && c.cmd.ID != "":
		return // another session's hold, or one that outlives this one
	case c.do == wire.OpRelease && c.again && h != nil && !h.Detached:
		// If it was not carried out, the session's end did the same.
		if l, done := s.presumedLocked(c); done {
			ending[h] = true
			s.dropLocked(c)
			s.answerLocked(c, l, nil)
			return
		}
	case c.do == wire.OpDetach && c.again && h != nil && c.cmd.ID != "":
		// It may have been carried out before the session ended.
		ending[h] = true
		c.hold = h
		return
	}
	s.dropLocked(c)
	s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrSessionLost, "the session ended, and the hold with it", nil))
}

// holdOfLocked returns the lease that a command is about, or nil when it is none
// of this session.
func (s *session) holdOfLocked(c *call) *lease.Lease {
	is := func(h *lease.Lease) bool {
		return h != nil && slices.ContainsFunc(h.Holds, func(x lease.Hold) bool { return c.about(h.ID, x) })
	}
	if c.cmd.ID != "" {
		if h := s.holds[c.cmd.ID]; is(h) {
			return h
		}
		return nil
	}
	for _, h := range s.holds {
		if is(h) {
			return h
		}
	}
	return nil
}

// reconcileLocked compares what this side holds with what the broker says after
// a resume: what ended while nobody could tell is told, and what nobody here
// wants is given back.
func (s *session) reconcileLocked(listed []lease.Lease) {
	kept := make(map[string]*lease.Lease, len(listed))
	for i := range listed {
		kept[listed[i].ID] = &listed[i]
	}
	wanted := make(map[string]bool) // ids that a call without an answer is about
	var ending []*call              // releases and cancels without an answer
	for _, c := range s.calls {
		switch {
		case c.do == wire.OpAcquire:
			wanted[c.req.ID] = true
		case c.ends():
			ending = append(ending, c)
			wanted[c.cmd.ID] = true
			if h := s.holdOfLocked(c); h != nil {
				was := *h // what follows changes it
				c.hold = &was
			}
		}
	}
	now := time.Now()
	for id, h := range s.holds {
		s.compareLocked(h, kept[id], now, ending)
	}
	for id := range kept {
		if s.holds[id] == nil && !wanted[id] {
			s.oursLocked(lease.Command{Verb: lease.Release, ID: id})
		}
	}
}

// compareLocked brings one hold up to date with the broker's list, in which it is
// got, or nil when it is not there. Nobody wonders about what is being ended.
func (s *session) compareLocked(h, got *lease.Lease, now time.Time, ending []*call) {
	code, by := lease.ErrForced, "while the connection was broken"
	if !h.Deadline.IsZero() && !now.Before(h.End()) {
		code, by = lease.ErrExpired, ""
	}
	var left []lease.Hold
	for _, x := range h.Holds {
		switch {
		case got != nil && slices.Contains(got.Holds, x):
			left = append(left, x)
		case !slices.ContainsFunc(ending, func(c *call) bool { return c.about(h.ID, x) }):
			s.noticeLocked(lease.Notice{ID: h.ID, Key: x.Key, Token: x.Token, Code: code, By: by})
		}
	}
	if left == nil {
		delete(s.holds, h.ID)
		return
	}
	waited := h.Waited
	*h = *got
	h.Holds, h.Waited = left, waited
}
