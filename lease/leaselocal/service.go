package leaselocal

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/engine"
)

// Service is a lease.Service in this process. Open makes one.
type Service struct {
	o       Options
	log     *slog.Logger
	started time.Time // engine time zero, on the monotonic clock

	mu     sync.Mutex // guards what follows
	inbox  []op
	owned  bool  // some goroutine is draining and owns the engine
	missed bool  // the loop was woken while it was owned: look at the clock once more
	closed bool  // nothing is taken any more
	err    error // of closing the journal

	wake chan struct{} // the inbox is not empty and nobody drains
	done chan struct{} // the loop has ended

	// The rest is touched only by the goroutine that owns the engine.
	engine  *engine.Engine
	spare   []op // the inbox before last, for its memory
	afters  []func(failed error)
	timer   *time.Timer
	armed   time.Duration // when timer fires, in engine time; negative when it does not
	closing bool
	watches []*watch
	disk    disk
}

// op is one command in the inbox: a request, a hold command, or do for the rest.
type op struct {
	sess   *session
	req    lease.Request
	caller lease.Caller
	cmd    lease.Command
	reply  func(lease.Lease, error)
	err    error // the request was refused before it got here

	// do runs among the commands; what it returns runs after the journal, with
	// the error that made the journal fail in this batch.
	do func() func(failed error)
}

// inlineBatches is how many batches a submitting goroutine runs for others
// before it leaves the rest to the loop.
const inlineBatches = 4

func newService(o Options) *Service {
	s := &Service{
		o: o, log: o.Logger,
		wake: make(chan struct{}, 1), done: make(chan struct{}),
		timer: time.NewTimer(time.Hour), armed: -1,
	}
	s.timer.Stop()
	return s
}

// submit hands an op to the owner of the engine. Without a journal nothing
// blocks, so an idle engine is driven by whoever has something for it.
func (s *Service) submit(o op) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		o.refuse(errClosed())
		return
	}
	s.inbox = append(s.inbox, o)
	inline := !s.owned && s.disk.journal == nil
	if inline {
		s.owned = true
	}
	kick := !s.owned
	s.mu.Unlock()
	if inline {
		s.drain(inlineBatches)
	} else if kick {
		s.kick()
	}
}

func (s *Service) kick() {
	select {
	case s.wake <- struct{}{}:
	default: // it is awake already
	}
}

// loop owns the engine whenever nobody else does: for the journal, for what is
// due, and for what inline callers left.
func (s *Service) loop() {
	defer close(s.done)
	for !s.ended() {
		select {
		case <-s.wake:
		case <-s.timer.C:
		case <-s.disk.wake():
		}
		if s.take() {
			s.drain(0)
		}
	}
	s.timer.Stop()
}

func (s *Service) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed && !s.owned
}

// take makes the loop the owner, unless there is one: that one will look at the
// inbox and the clock before it stops. Without missed it would not see that the
// timer fired after it had set it.
func (s *Service) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owned || s.closed {
		s.missed = s.owned
		return false
	}
	s.owned = true
	return true
}

// drain runs batches until the inbox is empty, or for so many. The first one is
// run even when empty, for what is due.
func (s *Service) drain(batches int) {
	for n := 1; ; n++ {
		s.mu.Lock()
		batch := s.inbox
		empty := s.closed || n > 1 && len(batch) == 0 && !s.missed && !s.disk.busy()
		if empty || batches > 0 && n > batches {
			s.owned = false
			kick := !empty || s.closed // what is left, or the end, is the loop's
			s.mu.Unlock()
			if kick {
				s.kick()
			}
			return
		}
		s.inbox, s.missed = s.spare[:0], false
		s.mu.Unlock()
		s.run(batch)
		clear(batch)
		s.spare = batch
		if cap(batch) > 4096 {
			s.spare = nil // one burst does not pin its memory
		}
	}
}

// run is the heart: apply a batch, make it durable once, then tell.
func (s *Service) run(batch []op) {
	e := s.engine
	e.Advance(time.Since(s.started))
	for i := range batch {
		s.apply(&batch[i])
	}
	failed := s.commit()
	s.deliver(failed)
	for i, after := range s.afters {
		after(failed)
		s.afters[i] = nil
	}
	s.afters = s.afters[:0]
	s.disk.housekeep(s)
	if s.closing {
		s.finish()
		return
	}
	s.arm()
}

func (s *Service) apply(o *op) {
	switch {
	case o.do != nil:
		if after := o.do(); after != nil {
			s.afters = append(s.afters, after)
		}
	case o.err != nil:
		err := o.err
		s.afters = append(s.afters, func(error) { o.refuse(err) })
	case o.caller != nil:
		s.engine.Acquire(o.sess.engine, o.sess.epoch, &o.req, o.caller)
	default:
		s.engine.Do(o.sess.engine, o.sess.epoch, o.cmd, o.reply)
	}
}

// refuse answers an op that never reached the engine.
func (o *op) refuse(err error) {
	switch {
	case o.caller != nil:
		o.caller.Done(lease.Lease{}, err)
	case o.reply != nil:
		o.reply(lease.Lease{}, err)
	default:
		return // the rest wait on a channel of their own and see that the service ended
	}
	if o.sess != nil && o.sess.settle != nil {
		o.sess.settle()
	}
}

// deliver carries the effects out. When the journal failed, what would have been
// a success is unknown: it may be on the disk or not.
func (s *Service) deliver(failed error) {
	effects := s.engine.Out().Effects
	for i := range effects {
		f := &effects[i]
		s.date(f)
		if failed != nil && f.Err == nil && len(f.Lease.Holds) > 0 {
			f.Lease, f.Err = lease.Lease{}, unknown(failed)
		}
		switch f.Kind {
		case engine.EffectDone:
			f.Caller.Done(f.Lease, f.Err)
		case engine.EffectReply:
			f.Reply(f.Lease, f.Err)
		case engine.EffectQueued:
			f.Caller.Queued(f.More.(lease.Queued))
		case engine.EffectNotice:
			f.Notify(f.More.(lease.Notice))
		case engine.EffectEvent:
			if failed == nil {
				s.tell(f.More.(lease.Event))
			}
		}
	}
	for _, sess := range s.engine.Out().Told {
		if settled := sess.Settled(); settled != nil {
			settled()
		}
	}
	s.engine.Out().Reset()
}

// date turns the engine's time of a lease's end into its deadline.
func (s *Service) date(f *engine.Effect) {
	if f.End >= 0 && f.Err == nil && len(f.Lease.Holds) > 0 {
		f.Lease.Deadline = s.started.Add(f.End)
	}
}

func unknown(cause error) error {
	return &lease.Error{Code: lease.ErrUnknown, Reason: "the journal failed while the answer was on its way; restart the service", Cause: cause}
}

func errClosed() error {
	return &lease.Error{Code: lease.ErrClosed, Reason: "the service is closed"}
}

// arm sets the timer for the next thing that is due. A timer that fires too
// early is harmless and cheaper than setting it each time.
func (s *Service) arm() {
	at, ok := s.engine.Next()
	now := time.Since(s.started)
	if s.armed >= 0 && s.armed <= now {
		s.armed = -1 // it has fired
	}
	if !ok || s.armed >= 0 && s.armed <= at {
		return
	}
	s.armed = at
	s.timer.Reset(max(at-now, 0))
}

// call runs fn among the commands and waits for what it returns to have run.
func (s *Service) call(ctx context.Context, fn func() func(failed error)) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	ran := make(chan error, 1)
	s.submit(op{do: func() func(error) {
		after := fn()
		return func(failed error) {
			if after != nil {
				after(failed)
			}
			ran <- failed
		}
	}})
	select {
	case <-ran:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		select {
		case <-ran: // it ran in the last batch
			return nil
		default:
			return errClosed()
		}
	}
}

// Close refuses new requests, answers waiters, makes everything durable and
// stops. Leases of a durable service outlive it.
func (s *Service) Close() error {
	s.submit(op{do: func() func(error) {
		s.engine.Close()
		s.closing = true
		return nil
	}})
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// finish ends the service within the batch that closed it.
func (s *Service) finish() {
	err := s.disk.close()
	s.mu.Lock()
	s.closed = true
	s.err = err
	rest := s.inbox
	s.inbox = nil
	s.mu.Unlock()
	for i := range rest {
		rest[i].refuse(errClosed())
	}
}
