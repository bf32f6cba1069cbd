package leaselocal

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"github.com/latchkey-go/latchkey/lease"
)

// List returns the selected keys at one moment, after what came before is
// durable. A listing by prefix walks all keys while nothing else is decided.
func (s *Service) List(ctx context.Context, q lease.Query) (lease.Listing, error) {
	var l lease.Listing
	var err error
	if e := s.call(ctx, func() func(error) {
		l, err = s.engine.List(q)
		return func(failed error) {
			if failed != nil {
				l, err = lease.Listing{}, &lease.Error{Code: lease.ErrUnavailable, Op: "list", Reason: "the journal failed meanwhile; ask again", Cause: failed}
			}
		}
	}); e != nil {
		return lease.Listing{}, e
	}
	return l, err
}

// Force ends holds of a key and is logged.
func (s *Service) Force(ctx context.Context, f lease.ForceRequest) (lease.Forced, error) {
	if err := f.Check(); err != nil {
		return lease.Forced{}, refusal(err, "force")
	}
	began := ctx.Err() == nil
	var got lease.Forced
	var err error
	if e := s.call(ctx, func() func(error) {
		got, err = s.engine.Force(f)
		return func(failed error) {
			if err == nil && failed != nil {
				got, err = lease.Forced{}, unknown(failed)
			}
			level := slog.LevelWarn
			if lease.CodeOf(err) == lease.ErrNotHeld {
				level = slog.LevelInfo // nothing was ended; clients of some dialects unlock that way as a matter of course
			}
			s.log.Log(context.Background(), level, "force", "key", f.Key, "by", f.By, "reason", f.Reason, "holds", len(got.Holds), "token", got.Token, "err", err)
		}
	}); e != nil {
		if ctx.Err() != nil && began {
			e = &lease.Error{Code: lease.ErrUnknown, Op: "force", Key: f.Key, Reason: "the answer was not waited for", Cause: e}
		}
		return lease.Forced{}, e
	}
	return got, err
}

// Stats returns counters and gauges.
func (s *Service) Stats(ctx context.Context) (lease.Stats, error) {
	var st lease.Stats
	if e := s.call(ctx, func() func(error) {
		st = s.engine.Stats()
		st.Service, st.Watches = "local", len(s.watches)
		s.disk.stats(s.o, &st)
		return nil
	}); e != nil {
		return lease.Stats{}, e
	}
	return st, nil
}

// watch is one watcher; fn is called by the owner of the engine.
type watch struct {
	q  lease.Query
	fn func(lease.Event)
}

// Watch calls fn with the events of the selected keys.
func (s *Service) Watch(ctx context.Context, q lease.Query, fn func(lease.Event)) (func(), error) {
	w := &watch{q: q, fn: fn}
	stop := sync.OnceFunc(func() {
		s.submit(op{do: func() func(error) {
			s.watches = slices.DeleteFunc(s.watches, func(x *watch) bool { return x == w })
			s.engine.Watch(len(s.watches) > 0)
			return nil
		}})
	})
	var err error
	if e := s.call(ctx, func() func(error) {
		if len(s.watches) >= lease.MaxWatches {
			err = lease.Refuse("%d watches, no more are allowed (MaxWatches)", len(s.watches))
			return nil
		}
		s.watches = append(s.watches, w)
		s.engine.Watch(true)
		return nil
	}); e != nil {
		stop() // it may begin yet
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	return stop, nil
}

func (s *Service) tell(e lease.Event) {
	for _, w := range s.watches {
		if w.q.Matches(e.Key) {
			w.fn(e)
		}
	}
}
