package lmx_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// unwell is a service that answers some releases with an error and does nothing.
// Everything else is real.
type unwell struct {
	lease.Service
	opened  atomic.Int32
	failing atomic.Pointer[error]
	only    atomic.Int32 // the session it fails for, by its number; 0 is all
}

func (u *unwell) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	s, err := u.Service.Open(ctx, o)
	return &unwellSession{s, u, u.opened.Add(1)}, err
}

type unwellSession struct {
	lease.Session
	svc    *unwell
	number int32
}

func (s *unwellSession) Do(c lease.Command, done func(lease.Lease, error)) {
	only := s.svc.only.Load()
	if err := s.svc.failing.Load(); err != nil && (only == 0 || only == s.number) {
		done(lease.Lease{}, *err)
		return
	}
	s.Session.Do(c, done)
}

func unwellRig(t *testing.T, test func(*rig, *unwell)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		svc, err := leaselocal.Open(leaselocal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		u := &unwell{Service: svc}
		test(rigOn(t, u, tcpserve.Options{}), u)
	})
}

// A release that fails is answered as one, whichever frame asked for it, and what
// was not released is held as before.
func TestFailedRelease(t *testing.T) {
	unwellRig(t, func(r *rig, u *unwell) {
		c := r.Client()
		id, _ := r.Hold(c, "one", nil)
		_, grant := many(r, c, nil, "a", "b")
		r.Hold(c, "w", frame{"rwStatus": "begin_write"})
		failure := error(&lease.Error{Code: lease.ErrUnknown, Reason: "the disk is full"})
		for _, well := range []bool{false, true} {
			u.failing.Store(&failure)
			if well {
				u.failing.Store(nil)
			}
			for _, f := range []frame{
				lmxtest.Unlock("", id, "one", nil),
				{"type": "release-many", "lockUuid": grant.Text("lockUuid")},
				{"type": "unlock", "key": "w", "force": true, "rwStatus": "end_write"},
			} {
				uuid := r.ID()
				c.Send(f.With(frame{"uuid": uuid}))
				got := c.Expect(uuid)
				if done := got.True("unlocked") || got.True("released"); done != well || got.Has("warning") || (got.Text("error") == "") != well {
					t.Errorf("well %v: %v got %v", well, f, got)
				}
			}
			if n := r.Note("kept ids"); !well && n != 3 {
				t.Errorf("%d holds are known after no release, want 3", n)
			}
		}
		keepsNothing(r.World)
	})
}

// A hold may outlive its connection, which may end between the look for it and the
// command: then the command goes another way instead of being answered as done.
func TestCommandCrossesEnd(t *testing.T) {
	unwellRig(t, func(r *rig, u *unwell) {
		a, b := r.Client(), r.Client()
		first := u.opened.Load() + 1
		id, _ := r.Hold(a, "k", frame{"keepLocksAfterDeath": true})
		more, _ := r.Hold(a, "l", frame{"keepLocksAfterDeath": true})
		_, grant := many(r, a, frame{"keepLocksAfterDeath": true}, "m", "n")
		lost := error(lease.ErrSessionLost)
		u.only.Store(first)
		u.failing.Store(&lost)
		r.Release(b, "k", id)
		b.Send(frame{"type": "renew", "uuid": "r", "_uuid": more, "key": "l", "ttl": 60000})
		if f := b.Expect("r"); !f.True("renewed") {
			t.Errorf("renew: got %v", f)
		}
		r.Release(b, "l", more)
		b.Send(frame{"type": "release-many", "uuid": "m", "lockUuid": grant.Text("lockUuid")})
		if f := b.Expect("m"); !f.True("released") || !slices.Equal(f.Texts("keys"), []string{"m", "n"}) {
			t.Errorf("release-many: got %v", f)
		}
		r.wantKeys(b)
	})
}
