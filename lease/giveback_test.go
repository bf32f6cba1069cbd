package lease_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// A hold that is lost while the connection is down, and released then, does not
// stay at the broker until its ttl when the session goes on after all.
func TestReleaseAfterALossIsMadeUpFor(t *testing.T) {
	for _, released := range []string{"while it is away", "by Do", "with a context that ends"} {
		t.Run(released, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { madeUpFor(t, released) })
		})
	}
}

func madeUpFor(t *testing.T, released string) {
	s := &site{t: t, dir: t.TempDir()}
	s.start()
	svc, err := leaseremote.Dial(t.Context(), "memory", leaseremote.Options{Dial: s.dial})
	if err != nil {
		t.Fatal(err)
	}
	c, err := lease.Connect(t.Context(), svc, lease.ClientOptions{})
	if err != nil {
		t.Fatal(err)
	}
	session := c.Session().ID()
	q := lease.Request{Keys: []string{"k"}, TTL: time.Hour, ID: "mine"}
	if released == "by Do" {
		err = c.Do(t.Context(), q, func(ctx context.Context, _ *lease.Held) error {
			s.stop()
			<-ctx.Done()
			return context.Cause(ctx)
		})
	} else {
		h, e := c.Hold(t.Context(), q)
		if e != nil {
			t.Fatal(e)
		}
		s.stop()
		<-h.Context().Done()
		ctx, cancel := context.WithCancel(t.Context())
		if released == "with a context that ends" {
			cancel()
		}
		err = h.Release(ctx)
		cancel()
	}
	if !errors.Is(err, lease.ErrServiceGone) {
		t.Fatalf("got %v, want the loss", err)
	}
	time.Sleep(time.Second)
	s.start() // a durable broker gives every session its grace anew
	time.Sleep(3 * time.Second)
	l, err := s.svc.List(t.Context(), lease.Query{})
	if err != nil || len(l.Keys) != 0 {
		t.Errorf("left behind: %+v %v", l.Keys, err)
	}
	if now := c.Session(); now == nil || now.ID() != session {
		t.Error("the session did not go on, so that this shows nothing")
	}
	if err := c.Close(t.Context()); err != nil {
		t.Error(err)
	}
	svc.Close()
	s.stop()
}

// A release that fails is sent again once a second until it is answered, its hold
// is over anyway, its id is in use again, or the client is closed; never two at a
// time.
func TestReleasesAreOwedWithinBounds(t *testing.T) {
	away := &lease.Error{Code: lease.ErrUnavailable, Reason: "away"}
	owing := func(t *testing.T, f fault, q lease.Request) (*rig, *lease.Client, *lease.Held) {
		r := newRig(t)
		c := r.connect(lease.ClientOptions{})
		h := r.hold(c, q)
		r.set(func() { r.command = only(lease.Release, f) })
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := h.Release(ctx); err == nil {
			t.Fatal("the release came through")
		}
		return r, c, h
	}
	q := lease.Request{Keys: []string{"k"}, ID: "mine", TTL: 10 * time.Second}
	counts := map[string]func(t *testing.T) (r *rig, least, most int){
		"answered": func(t *testing.T) (*rig, int, int) {
			r, _, h := owing(t, fault{err: away}, q)
			wait(3500 * time.Millisecond)
			r.set(func() { r.command = nil })
			wait(time.Second)
			if n := r.holders("k"); n != 0 {
				t.Errorf("%d hold it", n)
			}
			if err := h.Release(t.Context()); err != nil {
				t.Errorf("released again: %v", err)
			}
			return r, 5, 5
		},
		"one at a time": func(t *testing.T) (*rig, int, int) {
			r, _, _ := owing(t, fault{drop: true}, q)
			return r, 2, 2
		},
		"over": func(t *testing.T) (*rig, int, int) {
			r, _, _ := owing(t, fault{err: away}, q)
			return r, 10, 22
		},
		"used again": func(t *testing.T) (*rig, int, int) {
			r, c, _ := owing(t, fault{err: away}, q)
			again := r.hold(c, q)
			r.set(func() { r.command = nil })
			wait(time.Minute)
			if err := again.Err(); err != nil {
				t.Errorf("the new hold under the id: %v", err)
			}
			return r, 1, 1
		},
		"closed": func(t *testing.T) (*rig, int, int) {
			r, c, _ := owing(t, fault{err: away}, q)
			if err := c.Close(t.Context()); err != nil {
				t.Error(err)
			}
			return r, 1, 1
		},
		"refused": func(t *testing.T) (*rig, int, int) {
			r, _, _ := owing(t, fault{err: lease.Refuse("no")}, q)
			return r, 1, 1
		},
	}
	for name, count := range counts {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, least, most := count(t)
				wait(time.Minute)
				if n := len(r.times(lease.Release)); n < least || n > most {
					t.Errorf("sent %d times, want %d to %d", n, least, most)
				}
			})
		})
	}
}

// A grant that came too late to act on is given back in the same way.
func TestLateGrantIsOwed(t *testing.T) {
	for _, held := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			c := r.connect(lease.ClientOptions{})
			r.set(func() {
				r.command = only(lease.Release, fault{err: &lease.Error{Code: lease.ErrUnavailable, Reason: "away"}})
				r.grant = func(deliver func()) { time.AfterFunc(1990*time.Millisecond, deliver) }
			})
			var err error
			if q := request(2*time.Second, "k"); held {
				_, err = c.Hold(t.Context(), q)
			} else {
				_, err = c.Acquire(t.Context(), q)
			}
			if !errors.Is(err, lease.ErrExpired) {
				t.Fatalf("got %v, want that it came too late", err)
			}
			wait(time.Minute)
			if n := len(r.times(lease.Release)); n < 2 || n > 4 {
				t.Errorf("held %v: sent %d times, want 2 to 4", held, n)
			}
		})
	}
}
