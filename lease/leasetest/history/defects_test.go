package history_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leasetest/history"
)

// faulty is a real service that breaks the contract in one way.
type faulty struct {
	lease.Service
	request func(r *lease.Request)
	grant   func(l *lease.Lease)
	command func(s lease.Session, c lease.Command, done func(lease.Lease, error)) bool
	force   bool // a force of all ends only one
}

func (f *faulty) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	s, err := f.Service.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &faultySession{s, f}, nil
}

func (f *faulty) Force(ctx context.Context, q lease.ForceRequest) (lease.Forced, error) {
	if f.force && q.Token == 0 {
		l, err := f.List(ctx, lease.Query{Key: q.Key})
		if err == nil && len(l.Keys) > 0 && len(l.Keys[0].Holders) > 0 {
			q.Token = l.Keys[0].Holders[0].Token
		}
	}
	return f.Service.Force(ctx, q)
}

type faultySession struct {
	lease.Session
	f *faulty
}

func (s *faultySession) Acquire(r lease.Request, c lease.Caller) {
	if s.f.request != nil {
		s.f.request(&r)
	}
	s.Session.Acquire(r, granter{c, s.f})
}

func (s *faultySession) Do(c lease.Command, done func(lease.Lease, error)) {
	if s.f.command == nil || !s.f.command(s.Session, c, done) {
		s.Session.Do(c, done)
	}
}

type granter struct {
	lease.Caller
	f *faulty
}

func (g granter) Done(l lease.Lease, err error) {
	if err == nil && g.f.grant != nil {
		l.Holds = slices.Clone(l.Holds)
		g.f.grant(&l)
	}
	g.Caller.Done(l, err)
}

// Services with a planted defect are caught by random traffic within a few seeds.
func TestDefectsAreCaught(t *testing.T) {
	for name, f := range map[string]*faulty{
		"two holders at once": {request: func(r *lease.Request) {
			if r.Mode == lease.Exclusive {
				r.Mode = lease.Shared
			}
		}},
		"one more than the limit": {request: func(r *lease.Request) {
			if r.Mode == lease.Counted {
				r.Limit++
			}
		}},
		"shared beside counted": {request: func(r *lease.Request) {
			if r.Mode == lease.Shared && !r.PreferReaders {
				r.Mode, r.Limit = lease.Counted, 3
			}
		}},
		"tokens repeat": {grant: func(l *lease.Lease) {
			for i := range l.Holds {
				l.Holds[i].Token /= 2
			}
		}},
		"ends early": {
			request: func(r *lease.Request) {
				if r.TTL != lease.Forever {
					r.TTL /= 2
				}
			},
			grant: func(l *lease.Lease) {
				if l.TTL != lease.Forever {
					l.Deadline = l.Deadline.Add(l.TTL)
				}
			}},
		"cancel is not carried out": {command: func(_ lease.Session, c lease.Command, done func(lease.Lease, error)) bool {
			if c.Verb == lease.Cancel {
				done(lease.Lease{}, nil)
			}
			return c.Verb == lease.Cancel
		}},
		"release is not carried out": {command: func(s lease.Session, c lease.Command, done func(lease.Lease, error)) bool {
			if c.Verb == lease.Release {
				s.Do(lease.Command{Verb: lease.Renew, ID: c.ID, Token: c.Token}, done)
			}
			return c.Verb == lease.Release
		}},
		"readers pass":   {request: func(r *lease.Request) { r.PreferReaders = r.Mode == lease.Shared }},
		"force ends one": {force: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20) {
				h := drive(t, f, seed)
				if err := h.Check(); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("twenty histories were explained")
		})
	}
}

// drive records random traffic on a service in memory, behind f when given.
func drive(t *testing.T, f *faulty, seed uint64) (h history.History) {
	synctest.Test(t, func(t *testing.T) {
		s, err := leaselocal.Open(leaselocal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var svc lease.Service = s
		if f != nil {
			f.Service = s
			svc = f
		}
		rec := history.Record(svc)
		err = history.Drive(t.Context(), rec, history.Load{
			Seed: seed, Clients: 2 + int(seed%7), Keys: 1 + int(seed%5), Steps: 60,
			Pace: 10 * time.Millisecond, Grace: 200 * time.Millisecond, Suspends: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		h = rec.History()
	})
	return h
}
