package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Recorder is a lease.Service that writes down what passes through it.
type Recorder struct {
	svc   lease.Service
	start time.Time

	mu       sync.Mutex // guards the fields below
	times    []time.Duration
	ops      []*Op
	faults   []string
	sessions int
	numbers  map[string]int // session number by the service's id
	owners   map[string][]int
	broken   bool
}

// Record returns a Recorder in front of svc. Nothing else should use svc until
// the history is taken: what it did would be missing.
func Record(svc lease.Service) *Recorder {
	return &Recorder{svc: svc, start: time.Now(), times: make([]time.Duration, 1),
		numbers: make(map[string]int), owners: make(map[string][]int)}
}

// CutOff notes that connections underneath are cut; see History.Broken.
func (r *Recorder) CutOff() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = true
}

// History returns what was seen so far. What is still in flight is in it as
// unanswered.
func (r *Recorder) History() History {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stampLocked()
	h := History{Times: slices.Clone(r.times), Faults: slices.Clone(r.faults), Broken: r.broken}
	for _, o := range r.ops {
		h.Ops = append(h.Ops, *o)
	}
	return h
}

func (r *Recorder) stampLocked() Stamp {
	r.times = append(r.times, time.Since(r.start))
	return Stamp(len(r.times) - 1)
}

// call begins an operation.
func (r *Recorder) call(o Op) *Op {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Call = r.stampLocked()
	if o.ID != "" && o.Owner == 0 {
		o.Owner = r.ownerLocked(o.Session, o.ID)
	}
	p := &o
	r.ops = append(r.ops, p)
	return p
}

// ownerLocked finds whose hold an id is: the session's own comes first.
func (r *Recorder) ownerLocked(session int, id string) int {
	of := r.owners[id]
	if slices.Contains(of, session) || len(of) != 1 {
		return session
	}
	return of[0]
}

// answer ends an operation.
func (r *Recorder) answer(o *Op, err error, change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Return != 0 {
		r.faults = append(r.faults, fmt.Sprintf("answered twice: %v", o))
		return
	}
	o.Return = r.stampLocked()
	if err != nil {
		o.Code = lease.CodeOf(err)
		return
	}
	if change != nil {
		change()
	}
}

// until turns a lease's deadline, and its session's, into what is promised.
func (r *Recorder) until(l lease.Lease, s lease.Session) time.Duration {
	d := l.Deadline
	if sd := s.Deadline(); !l.Detached && !sd.IsZero() && (d.IsZero() || sd.Before(d)) {
		d = sd
	}
	if d.IsZero() {
		return 0
	}
	return max(d.Sub(r.start), 1)
}

// Open implements lease.Service.
func (r *Recorder) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	s := &session{r: r}
	r.mu.Lock()
	r.sessions++
	s.n = r.sessions
	r.mu.Unlock()
	notify := o.Notify
	o.Notify = func(n lease.Notice) {
		s.lost(n)
		if notify != nil {
			notify(n)
		}
	}
	var op *Op
	if o.Resume != "" {
		r.mu.Lock()
		if n, known := r.numbers[o.Resume]; known {
			s.n = n // the same session on another connection
		}
		r.mu.Unlock()
		op = r.call(Op{Kind: Resume, Session: s.n})
	}
	in, err := r.svc.Open(ctx, o)
	if op != nil {
		r.answer(op, err, func() { op.Leases = in.Leases() })
	}
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.numbers[in.ID()] = s.n
	r.mu.Unlock()
	s.Session = in
	return s, nil
}

// Force implements lease.Service.
func (r *Recorder) Force(ctx context.Context, f lease.ForceRequest) (lease.Forced, error) {
	op := r.call(Op{Kind: Force, Token: f.Token, Request: lease.Request{Keys: []string{f.Key}}})
	got, err := r.svc.Force(ctx, f)
	if err != nil && !isSettled(err) {
		return got, err // it may still be carried out: no answer
	}
	r.answer(op, err, func() { op.Held, op.Fence = got.Holds, got.Token })
	return got, err
}

// isSettled reports whether an error says for certain that nothing was done.
func isSettled(err error) bool {
	code := lease.CodeOf(err)
	return code != lease.ErrUnknown && code != lease.ErrInternal && !errors.Is(err, context.Canceled) &&
		!errors.Is(err, context.DeadlineExceeded)
}

// List implements lease.Service.
func (r *Recorder) List(ctx context.Context, q lease.Query) (lease.Listing, error) {
	return r.svc.List(ctx, q)
}

// Watch implements lease.Service.
func (r *Recorder) Watch(ctx context.Context, q lease.Query, fn func(lease.Event)) (func(), error) {
	return r.svc.Watch(ctx, q, fn)
}

// Stats implements lease.Service.
func (r *Recorder) Stats(ctx context.Context) (lease.Stats, error) { return r.svc.Stats(ctx) }

// Close implements lease.Service.
func (r *Recorder) Close() error { return r.svc.Close() }

// session is a session seen through the recorder.
type session struct {
	lease.Session
	r *Recorder
	n int
}

// Acquire implements lease.Session. A request without an id gets one, so that
// what becomes of it can be followed.
func (s *session) Acquire(q lease.Request, c lease.Caller) {
	if q.ID == "" {
		s.r.mu.Lock()
		q.ID = fmt.Sprintf("recorded-%d", len(s.r.times))
		s.r.mu.Unlock()
	}
	q.Keys = slices.Clone(q.Keys)
	s.r.mu.Lock()
	if of := s.r.owners[q.ID]; !slices.Contains(of, s.n) {
		s.r.owners[q.ID] = append(of, s.n)
	}
	s.r.mu.Unlock()
	op := s.r.call(Op{Kind: Acquire, Session: s.n, ID: q.ID, Owner: s.n, Request: q})
	s.Session.Acquire(q, &caller{c, s, op})
}

// Do implements lease.Session.
func (s *session) Do(c lease.Command, done func(lease.Lease, error)) {
	kinds := map[lease.Verb]Kind{lease.Renew: Renew, lease.Release: Release, lease.Detach: Detach, lease.Cancel: Cancel}
	kind, recorded := kinds[c.Verb]
	if !recorded {
		s.Session.Do(c, done)
		return
	}
	op := s.r.call(Op{Kind: kind, Session: s.n, ID: c.ID, Token: c.Token, TTL: c.TTL})
	s.Session.Do(c, func(l lease.Lease, err error) {
		until := s.r.until(l, s.Session)
		s.r.answer(op, err, func() {
			op.Held = l.Holds
			if kind == Renew || kind == Detach {
				op.Until = until
			}
		})
		if done != nil {
			done(l, err)
		}
	})
}

// Suspend implements lease.Session.
func (s *session) Suspend() {
	op := s.r.call(Op{Kind: Leave, Session: s.n})
	s.Session.Suspend()
	s.r.answer(op, nil, nil)
}

// Close implements lease.Session.
func (s *session) Close(done func(error)) {
	op := s.r.call(Op{Kind: Close, Session: s.n})
	s.Session.Close(func(err error) {
		s.r.answer(op, err, nil)
		if done != nil {
			done(err)
		}
	})
}

// lost records a notice.
func (s *session) lost(n lease.Notice) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	op := &Op{Kind: Lost, Session: s.n, Owner: s.n, ID: n.ID, Token: n.Token, Code: n.Code}
	if n.Key != "" {
		op.Held = []lease.Hold{{Key: n.Key, Token: n.Token}}
	}
	op.Call = s.r.stampLocked()
	op.Return = op.Call
	s.r.ops = append(s.r.ops, op)
}

// caller is a lease.Caller seen through the recorder.
type caller struct {
	lease.Caller
	s  *session
	op *Op
}

// Queued implements lease.Caller.
func (c *caller) Queued(q lease.Queued) {
	c.s.r.mu.Lock()
	if c.op.Return != 0 {
		c.s.r.faults = append(c.s.r.faults, fmt.Sprintf("queued after its outcome: %v", c.op))
	}
	if c.op.Queued == 0 {
		c.op.Queued = c.s.r.stampLocked()
	}
	c.s.r.mu.Unlock()
	c.Caller.Queued(q)
}

// Done implements lease.Caller.
func (c *caller) Done(l lease.Lease, err error) {
	until := c.s.r.until(l, c.s.Session)
	c.s.r.answer(c.op, err, func() { c.op.Held, c.op.Until = l.Holds, until })
	c.Caller.Done(l, err)
}
