package leaseremote

import (
	"errors"
	"os"
	"time"
)

// A lone caller that waits for its answer could as well read it: otherwise the
// network wakes the keeper, and the keeper the caller, which on a small machine
// costs as much as a third of the round trip. So when answers go to one caller at
// a time, the keeper rests and lets callers read in its place. Who may read the
// connection is decided under session.mu; whoever does owns link.in, link.readBy
// and the frames in hand. In-memory connections are not lent: there is nothing to
// gain, and whoever uses one can expect a notice at once.
const (
	// restFor is how long nothing may be read between two calls before the
	// keeper reads again; twice that is how late a notice can be. While calls
	// follow each other closely it doubles up to restMost, because a timer that
	// is due soon costs each wait of the process for the network more than the
	// call itself: measured, 60 µs a pair with 1 ms, 52 µs with 16 ms.
	restFor  = time.Millisecond
	restMost = 16 * time.Millisecond
	// lendFor is how long a caller reads at least, and half of how long at most.
	lendFor = 16 * time.Millisecond
	// wary is for how many answers the keeper reads by itself after it turned
	// out that several callers are at work.
	wary = 64
)

// lending is who reads the connection. It is guarded by session.mu.
type lending struct {
	wanted bool // a caller came that would have read
	rests  bool // the keeper does not read; a caller may
	busy   bool // a caller reads
	used   bool // a caller has read since the keeper looked
	wary   int  // answers to come before the keeper rests again
}

// Lend reads one answer, or what else comes first, if nobody else does. See
// lease.Session.
func (s *session) Lend() {
	s.mu.Lock()
	l := s.link
	if !s.lent.rests || s.lent.busy || l == nil || len(s.calls) != s.probes()+1 {
		s.lent.wanted = true
		s.mu.Unlock()
		return
	}
	s.lent.busy, s.lent.used = true, true
	s.mu.Unlock()
	err := s.readOnce(l)
	if err != nil {
		l.fail(err)
	}
	s.mu.Lock()
	s.lent.busy = false
	recall := err != nil || s.over || s.link != l || len(s.calls) > s.probes()
	s.mu.Unlock()
	if recall {
		s.recallKeeper()
	}
}

// probes is how many of the calls are pings of the session's own.
func (s *session) probes() int {
	if s.probe != nil {
		return 1
	}
	return 0
}

// readOnce takes the frames of one read.
func (s *session) readOnce(l *link) error {
	if now := time.Now(); l.readBy.Sub(now) < lendFor {
		l.readBy = now.Add(2 * lendFor)
		if err := l.conn.SetReadDeadline(l.readBy); err != nil {
			return err
		}
	}
	for {
		frame, err := l.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			l.in.Retry()
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.take(l, frame); err != nil {
			return err
		}
		if !l.in.Ready() {
			s.deliver()
			return nil
		}
	}
}

func (s *session) recallKeeper() {
	select {
	case s.recall <- struct{}{}:
	default: // it is on its way already
	}
}

// pause runs the callbacks of the frames so far, and lets a lone caller read on.
// See owner.
func (s *session) pause(l *link) {
	s.mu.Lock()
	lone := l.lends && s.lent.wanted && len(s.ready) == 1 && len(s.calls) == s.probes() && !s.over && s.link == l
	s.lent.wanted = false
	if s.lent.wary > 0 {
		s.lent.wary--
		lone = false
	}
	if lone {
		// Before the caller is told: it may be quicker than this goroutine.
		s.lent.rests, s.lent.used = true, true
	}
	s.mu.Unlock()
	s.deliver()
	if lone {
		s.rest(l)
	}
}

// rest waits until the keeper has to read again.
func (s *session) rest(l *link) {
	pause := restFor
	if s.lull == nil {
		s.lull = time.NewTimer(pause)
	} else {
		s.lull.Reset(pause)
	}
	ended := s.ctx.Done()
	for again := true; again; {
		ticked := false
		select {
		case <-s.recall:
		case <-s.lull.C:
			ticked = true
		case <-ended:
			ended = nil // a caller that reads still has to leave
		}
		s.mu.Lock()
		if again = s.lent.busy || ticked && s.lent.used; again {
			s.lent.used = false
			if ticked {
				pause = min(2*pause, restMost)
				s.lull.Reset(pause)
			}
		} else {
			s.lent.rests = false
			if len(s.calls) > s.probes() {
				s.lent.wary = wary
			}
		}
		s.mu.Unlock()
	}
	s.lull.Stop()
	l.readBy = time.Time{}
	if err := l.conn.SetReadDeadline(time.Time{}); err != nil {
		l.fail(err)
	}
}
