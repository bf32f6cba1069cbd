package leaseremote

import (
	"context"
	"crypto/rand"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

const (
	// goodbyeWait bounds how long Close waits for the broker's answer.
	goodbyeWait = time.Second
	// ownCalls is how many of lease.MaxInFlight are kept for pings and for
	// giving back what nobody wants.
	ownCalls = 16
	// markFor is how long a mark for the machine's sleep is used.
	markFor = 10 * time.Millisecond
)

// session is a lease.Session over connections that may break. It has one
// connection at a time, whose keeper is its only goroutine.
type session struct {
	svc    *Service
	opts   lease.SessionOptions
	log    *slog.Logger
	leases []lease.Lease // as it was opened; set before anybody sees the session
	birth  time.Time
	born   asleep.Mark  // at birth
	until  atomic.Int64 // Deadline, in nanoseconds since birth, sleep of the machine included; 0: none
	ctx    context.Context
	cancel context.CancelFunc
	recall chan struct{} // wakes the keeper when it rests; capacity one
	lull   *time.Timer   // of the keeper, for resting
	seen   wire.Grant    // of who reads: the frame in hand
	reply  wire.Reply    // the same

	mu     sync.Mutex // guards what follows; taken before a link's
	opened bool
	id     string // empty while there is no session at the broker
	grace  time.Duration
	link   *link // nil while there is no connection
	calls  map[uint64]*call
	lastN  uint64
	holds  map[string]*lease.Lease // what is held, as last told
	parked int                     // calls that a closing broker sent back
	frame0 wire.Request            // scratch of sendLocked
	awake  asleep.Mark             // for what is sent
	marked time.Time               // when it was made

	lent lending

	ready      []outcome
	spare      []outcome
	delivering bool

	probe   *call       // the ping that has no answer yet
	heard   bool        // something came since the last tick
	pinger  *time.Timer // nil without a grace
	overdue *time.Timer // gives calls up while there is no connection
	nextDue time.Time   // when it runs; zero when it does not
	patient time.Time   // until when calls that cannot wait are kept then
	trouble error       // why there is no connection

	leaving bool // nothing new is accepted, and what is granted yet is given back
	closing bool // a goodbye was asked for
	closers []func(error)
	late    *time.Timer // ends the wait for its answer
	over    bool        // nothing is accepted or told any more
	taken   bool        // another connection has the session
	adrift  int         // resumes that were sent and not answered; see excuseLocked
	told    told
}

var _ lease.Session = (*session)(nil)

func newSession(v *Service, o lease.SessionOptions) *session {
	s := &session{
		svc: v, opts: o, log: v.log, birth: time.Now(), born: v.opts.sleep.Mark(), id: o.Resume,
		calls: make(map[uint64]*call), holds: make(map[string]*lease.Lease), recall: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(v.ctx)
	return s
}

// ID names the session; it changes when a lost session is opened anew.
func (s *session) ID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Deadline: see lease.Session. Without a grace there is none.
func (s *session) Deadline() time.Time {
	d := s.until.Load()
	if d == 0 {
		return time.Time{}
	}
	return s.birth.Add(time.Duration(d) - s.born.Slept())
}

// proofLocked moves the deadline ahead: the broker had a sign of life that was
// sent at this time.
func (s *session) proofLocked(sent stamp) {
	if s.grace <= 0 {
		return
	}
	until := max(sent.at.Add(s.grace-lease.Margin(s.grace)).Sub(s.birth)+sent.awake.After(s.born), 1)
	if int64(until) > s.until.Load() {
		s.until.Store(int64(until))
	}
}

// Leases: see lease.Session.
func (s *session) Leases() []lease.Lease { return s.leases }

// Acquire: see lease.Session.
func (s *session) Acquire(r lease.Request, who lease.Caller) {
	c := s.svc.newAcquire(&r, who)
	s.submit(c, c.req.Normalize())
}

// Do: see lease.Session.
func (s *session) Do(cmd lease.Command, done func(lease.Lease, error)) {
	err := checkCommand(&cmd)
	s.submit(s.svc.newCommand(&cmd, done), err)
}

// submit sends a call, keeps it for the next connection, or answers it at once.
func (s *session) submit(c *call, err error) {
	c.start = time.Now()
	s.mu.Lock()
	if err == nil {
		err = s.admitLocked(c)
	}
	flush := false
	switch {
	case err != nil:
	case s.link == nil && s.settledByCancelLocked(c):
	default:
		flush, err = s.sendLocked(c, c.start)
	}
	if err != nil {
		s.answerLocked(c, lease.Lease{}, c.name(err))
	}
	l, crowd, due := s.link, len(s.calls) > 1, len(s.ready) > 0
	s.mu.Unlock()
	if flush {
		if crowd {
			// Others are probably about to send too: let them append first.
			runtime.Gosched()
		}
		l.flush()
	}
	if due {
		s.deliver()
	}
}

// admitLocked says why a call cannot be made now.
func (s *session) admitLocked(c *call) error {
	switch {
	case s.taken:
		return c.fail(lease.ErrSessionLost, takenOver, nil)
	case s.over || s.leaving:
		return c.fail(lease.ErrClosed, "the session was closed", nil)
	case len(s.calls) >= lease.MaxInFlight-ownCalls:
		return lease.Refuse("%d requests of this session have no answer yet, no more are allowed (MaxInFlight)", len(s.calls))
	case s.link == nil && !c.waits() && !c.start.Before(s.patient):
		return c.fail(lease.ErrUnavailable, "no connection to "+s.svc.addr, s.trouble)
	case s.link != nil && s.link.unsent() > lease.MaxUnsent:
		return c.fail(lease.ErrUnavailable, "the broker does not read what is sent (MaxUnsent)", nil)
	}
	switch {
	case c.do == wire.OpAcquire && c.req.ID == "":
		c.req.ID = rand.Text()
	case c.do == wire.OpRelease:
		c.mine = c.cmd.ID == "" || s.holds[c.cmd.ID] != nil || s.told.has(c.cmd.ID) // a token is this session's
	}
	return nil
}

// sendLocked registers a call and appends its frame if there is a connection. now
// must not be later than that.
func (s *session) sendLocked(c *call, now time.Time) (flush bool, err error) {
	if c.n == 0 {
		s.lastN++
		c.n = s.lastN
	}
	s.calls[c.n] = c
	if s.link == nil {
		s.armLocked(s.dueLocked(c))
		return false, nil
	}
	c.frame(&s.frame0, now)
	c.sent, c.awake = now, s.awakeLocked(now)
	if flush, err = s.link.append(&s.frame0); err != nil {
		delete(s.calls, c.n)
	}
	return flush, err
}

// awakeLocked is a mark from before now, and not from long before: what the
// machine sleeps in between counts too, which ends a lease rather too soon. A
// mark for each of many calls would cost more than it is worth.
func (s *session) awakeLocked(now time.Time) asleep.Mark {
	if now.Sub(s.marked) >= markFor {
		s.awake, s.marked = s.svc.opts.sleep.Mark(), now
	}
	return s.awake
}

// settledByCancelLocked answers a cancel, and the request that it is for with all
// its repeats, when the broker has never seen any of them.
func (s *session) settledByCancelLocked(cancel *call) bool {
	if cancel.do != wire.OpCancel {
		return false
	}
	var unseen []*call
	for _, c := range s.calls {
		if c.do != wire.OpAcquire || c.req.ID != cancel.cmd.ID {
			continue
		}
		if !c.sent.IsZero() {
			return false // the broker must be asked
		}
		unseen = append(unseen, c)
	}
	for _, c := range unseen {
		s.dropLocked(c)
		s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrCancelled, "", nil))
	}
	if len(unseen) == 0 {
		return false
	}
	s.answerLocked(cancel, lease.Lease{ID: cancel.cmd.ID}, nil)
	return true
}

// oursLocked makes a call that nobody waits for.
func (s *session) oursLocked(cmd lease.Command) (flush bool) {
	c := s.svc.newCommand(&cmd, nil)
	c.ours = true
	c.start = time.Now()
	flush, _ = s.sendLocked(c, c.start) // the frame is short
	return flush
}

// dropLocked removes a call from what is unanswered.
func (s *session) dropLocked(c *call) {
	delete(s.calls, c.n)
	if c.parked {
		c.parked = false
		s.parked--
	}
}

// Suspend breaks the connection and ends this value: the broker keeps the
// session for its grace. See lease.Session.
func (s *session) Suspend() {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	clear(s.calls)
	s.ready = nil
	s.finishLocked()
	l := s.link
	s.mu.Unlock()
	if l != nil {
		l.fail(errStopped)
	}
	s.deliver()
}

// leave lets nobody wait or be granted any more; Close must follow.
func (s *session) leave() {
	s.mu.Lock()
	s.leaving = true
	s.mu.Unlock()
}

// Close: see lease.Session. The answer comes within about a second:
// ErrUnavailable when the goodbye did not reach the broker, which then ends the
// session after its grace.
func (s *session) Close(done func(error)) {
	s.mu.Lock()
	if s.over {
		if done != nil {
			s.afterLocked(func() { done(nil) })
		}
		s.mu.Unlock()
		s.deliver()
		return
	}
	if done != nil {
		s.closers = append(s.closers, done)
	}
	if s.closing {
		s.mu.Unlock()
		return
	}
	s.leaving, s.closing = true, true
	s.late = time.AfterFunc(goodbyeWait, func() { s.endUnanswered() })
	flush := false
	if s.link == nil && s.id == "" {
		s.endLocked(nil) // there is no session to say goodbye to
	} else {
		c := &call{do: wire.OpClose, start: time.Now(), ours: true}
		flush, _ = s.sendLocked(c, c.start)
	}
	l := s.link
	s.mu.Unlock()
	if flush {
		l.flush()
	}
	s.deliver()
}

// endUnanswered ends the session on this side only.
func (s *session) endUnanswered() {
	s.mu.Lock()
	if s.over {
		s.mu.Unlock()
		return
	}
	s.endLocked(&lease.Error{Code: lease.ErrUnavailable, Op: "close", Cause: s.trouble,
		Reason: "the goodbye was not answered; the session ends with its grace"})
	s.mu.Unlock()
	s.deliver()
}

// endLocked ends the session. A nil err says that it has ended at the broker
// too, so that nothing that was sent can be held.
func (s *session) endLocked(err error) {
	for _, c := range s.sortedCallsLocked() {
		switch {
		case c.sent.IsZero() || err == nil && !c.leavesHold():
			s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrClosed, "the session was closed", nil))
		default:
			s.answerLocked(c, lease.Lease{}, c.fail(lease.ErrUnknown, "the session was closed before the answer came", nil))
		}
	}
	clear(s.calls)
	for _, done := range s.closers {
		s.afterLocked(func() { done(err) })
	}
	s.finishLocked()
}

// finishLocked stops everything that goes on by itself.
func (s *session) finishLocked() {
	s.over = true
	for _, t := range []*time.Timer{s.pinger, s.overdue, s.late} {
		if t != nil {
			t.Stop()
		}
	}
	clear(s.holds)
	s.closers = nil
	s.cancel()
}

// checkID refuses an id that no request can have.
func checkID(what, id string) error {
	switch {
	case len(id) > lease.MaxIDLength:
		return lease.Refuse("%s is %d bytes, at most %d are allowed (MaxIDLength)", what, len(id), lease.MaxIDLength)
	case !utf8.ValidString(id):
		return lease.Refuse("%s is not valid UTF-8", what)
	}
	return nil
}
