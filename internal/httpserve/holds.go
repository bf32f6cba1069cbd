package httpserve

import (
	"context"
	"crypto/rand"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// outcome is what the service answered.
type outcome struct {
	lease lease.Lease
	err   error
}

// caller waits for the outcome of a request. Its channel has room for the one
// answer, so that the service's loop never waits for an HTTP connection.
type caller struct{ done chan outcome }

func (c caller) Queued(lease.Queued)           {}
func (c caller) Done(l lease.Lease, err error) { c.done <- outcome{l, err} }

// acquire runs a request to its outcome. When ctx ends first, the request gives
// up its place, unless another caller that repeated it still waits.
func (s *Server) acquire(ctx context.Context, req lease.Request) (lease.Lease, error) {
	named := req.ID != ""
	if !named {
		req.ID = rand.Text()
	} else if l, held := s.earlier(ctx, req); held {
		return l, nil
	}
	return s.await(ctx, req, named)
}

func (s *Server) await(ctx context.Context, req lease.Request, named bool) (lease.Lease, error) {
	s.join(req.ID)
	c := caller{make(chan outcome, 1)}
	s.session.Acquire(req, c)
	select {
	case o := <-c.done:
		// A grant that reaches nobody is taken back when nobody can ask for it
		// again: only a caller that chose the id can.
		s.leave(req.ID, ctx.Err() != nil && !named)
		return o.lease, o.err
	case <-ctx.Done():
		s.leave(req.ID, true)
		return lease.Lease{}, &lease.Error{Code: lease.ErrCancelled, Op: "acquire", Reason: "the caller hung up"}
	case <-s.gone:
		s.leave(req.ID, false)
		return s.afterEnd(c.done, "acquire")
	}
}

// earlier finds the grant of a request that was made before this process
// started. Its session ended with the process, so that to the service the repeat
// is another request, which would wait for its own first grant.
func (s *Server) earlier(ctx context.Context, req lease.Request) (lease.Lease, bool) {
	// To detach what is detached changes nothing and answers with the lease.
	l, err := s.command(ctx, lease.Command{Verb: lease.Detach, ID: req.ID})
	if err != nil || !slices.Equal(keysOf(l), slices.Sorted(slices.Values(req.Keys))) {
		return lease.Lease{}, false
	}
	// One of this process has a newer token; the service itself compares it with
	// the repeat.
	return l, l.Token() <= s.before
}

// join counts a caller of a request.
func (s *Server) join(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers[id]++
}

// leave counts a caller off, and cancels the request for the last one. The
// cancel is sent under the mutex, so that a repeat that joins later is behind it
// and learns that the request is over, instead of being cancelled unawares.
func (s *Server) leave(id string, cancel bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.callers[id]--
	if s.callers[id] > 0 {
		return
	}
	delete(s.callers, id)
	if cancel {
		s.session.Do(lease.Command{Verb: lease.Cancel, ID: id}, nil)
	}
}

// command runs a command to its outcome.
func (s *Server) command(ctx context.Context, c lease.Command) (lease.Lease, error) {
	done := make(chan outcome, 1)
	s.session.Do(c, func(l lease.Lease, err error) { done <- outcome{l, err} })
	select {
	case o := <-done:
		return o.lease, o.err
	case <-ctx.Done():
		return lease.Lease{}, &lease.Error{Code: lease.ErrUnknown, Op: c.Verb.String(), Reason: "the caller hung up"}
	case <-s.gone:
		return s.afterEnd(done, c.Verb.String())
	}
}

// afterEnd is the outcome of what was under way when the session ended: the
// answer, if it was given, is there by now.
func (s *Server) afterEnd(done chan outcome, op string) (lease.Lease, error) {
	select {
	case o := <-done:
		return o.lease, o.err
	default:
		return lease.Lease{}, &lease.Error{Code: lease.ErrUnknown, Op: op,
			Reason: "the broker shut down before it answered; a hold, if there is one, lasts until its ttl"}
	}
}

// remaining is how long a lease is certain to last from now on, in whole
// milliseconds; nil for one that does not end by itself.
func remaining(l lease.Lease) *int64 {
	if l.TTL == lease.Forever || l.Deadline.IsZero() {
		return nil
	}
	return ms(max(time.Until(l.Deadline), 0))
}

// ms is a duration in whole milliseconds, cut off, or nil for Forever.
func ms(d time.Duration) *int64 {
	if d == lease.Forever {
		return nil
	}
	n := d.Milliseconds()
	return &n
}
