package leaseremote

import (
	"runtime"

	"github.com/latchkey-go/latchkey/lease"
)

// outcome is one callback that is due.
type outcome struct {
	call   *call // Done or done, or Queued
	lease  lease.Lease
	err    error
	queued *lease.Queued
	notice *lease.Notice
	after  func() // something to do once everything before it was told
}

func (o *outcome) tell(notify func(lease.Notice)) {
	switch {
	case o.queued != nil:
		o.call.caller.Queued(*o.queued)
	case o.notice != nil:
		if notify != nil {
			notify(*o.notice)
		}
	case o.after != nil:
		o.after()
	case o.call.caller != nil:
		o.call.caller.Done(o.lease, o.err)
	case o.call.done != nil:
		o.call.done(o.lease, o.err)
	}
}

// last reports whether this was the last callback of a call.
func (o *outcome) last() bool { return o.queued == nil && o.notice == nil && o.after == nil }

// deliver runs the callbacks that are due, in order, one at a time: whoever
// finds nobody at it does it for all, a callback that makes a call included.
// What callbacks send is written together afterwards.
func (s *session) deliver() {
	s.mu.Lock()
	if s.delivering || len(s.ready) == 0 {
		s.mu.Unlock()
		return
	}
	s.delivering = true
	l := s.link
	if l != nil {
		l.cork()
	}
	told := 0
	for len(s.ready) > 0 {
		told += s.tellLocked()
	}
	s.delivering = false
	s.mu.Unlock()
	if l == nil {
		return
	}
	if told > 1 {
		// Those who were woken are about to ask for more: let them append first,
		// so that it goes out in one write.
		runtime.Gosched()
	}
	l.uncork()
}

// tellLocked runs the callbacks that are due, without the lock, and returns how
// many there were.
func (s *session) tellLocked() int {
	batch := s.ready
	s.ready, s.spare = s.spare[:0], nil
	s.mu.Unlock()
	for i := range batch {
		o := &batch[i]
		o.tell(s.opts.Notify)
		if o.last() {
			s.svc.recycle(o.call)
		}
		*o = outcome{}
	}
	s.mu.Lock()
	if cap(batch) <= keptOutcomes {
		s.spare = batch[:0]
	}
	if len(s.ready) == 0 && s.opts.Settled != nil {
		s.mu.Unlock()
		s.opts.Settled()
		s.mu.Lock()
	}
	return len(batch)
}

// keptOutcomes bounds the memory that a burst leaves behind.
const keptOutcomes = 1024

// answerLocked ends a call.
func (s *session) answerLocked(c *call, l lease.Lease, err error) {
	if c.ours {
		return
	}
	s.ready = append(s.ready, outcome{call: c, lease: l, err: err})
}

// noticeLocked tells of a loss.
func (s *session) noticeLocked(n lease.Notice) {
	s.told.add(n.ID)
	s.ready = append(s.ready, outcome{notice: &n})
}

// afterLocked does fn once everything that is due was told.
func (s *session) afterLocked(fn func()) {
	s.ready = append(s.ready, outcome{after: fn})
}
