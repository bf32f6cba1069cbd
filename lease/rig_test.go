package lease_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// rig is a real service with a line to it that can be made to fail: commands and
// answers can be lost, delayed or refused. All its tests run in a synctest bubble.
type rig struct {
	lease.Service
	t   testing.TB
	bed *asleep.Clock // counts the sleep of the clients' machine; set before anybody connects

	mu      sync.Mutex // guards the fields below
	sent    []sent
	opened  int
	command func(c lease.Command) fault // nil: everything passes
	grant   func(deliver func())        // nil: outcomes are delivered at once
	notify  func(n lease.Notice) bool   // false swallows a notice; nil passes all
	last    *line
}

// sent is a command that went out, and when.
type sent struct {
	lease.Command
	at time.Time
}

// fault is what happens to a command.
type fault struct {
	drop bool  // never sent, never answered
	mute bool  // carried out, never answered
	err  error // refused with this
	zero bool  // carried out, and answered a millisecond later with a ttl of 0
}

func newRig(t testing.TB) *rig {
	t.Helper()
	s, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &rig{Service: s, t: t}
}

// Open puts the line between a session and its owner.
func (r *rig) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	notify := o.Notify
	o.Notify = func(n lease.Notice) {
		r.mu.Lock()
		pass := r.notify
		r.mu.Unlock()
		if pass == nil || pass(n) {
			notify(n)
		}
	}
	s, err := r.Service.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened++
	r.last = &line{Session: s, r: r, notify: notify}
	return r.last, nil
}

// line is a session seen through the rig.
type line struct {
	lease.Session
	r      *rig
	notify func(lease.Notice)

	mu sync.Mutex // guards id
	id string     // shown instead of the real one, when set
}

func (l *line) ID() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.id != "" {
		return l.id
	}
	return l.Session.ID()
}

func (l *line) Do(c lease.Command, done func(lease.Lease, error)) {
	l.r.mu.Lock()
	l.r.sent = append(l.r.sent, sent{c, time.Now()})
	done = l.r.counted(done)
	var f fault
	if l.r.command != nil {
		f = l.r.command(c)
	}
	l.r.mu.Unlock()
	switch {
	case f.drop:
	case f.mute:
		l.Session.Do(c, nil)
	case f.zero:
		l.Session.Do(c, func(got lease.Lease, err error) {
			got.TTL = 0
			time.AfterFunc(time.Millisecond, func() { done(got, err) })
		})
	case f.err != nil:
		if done != nil {
			done(lease.Lease{}, f.err)
		}
	default:
		l.Session.Do(c, done)
	}
}

func (l *line) Acquire(q lease.Request, c lease.Caller) {
	l.Session.Acquire(q, slow{c, l.r, l.r.bed.Mark()})
}

// counted makes sleep count, from now on, in the lease that an answer brings.
func (r *rig) counted(done func(lease.Lease, error)) func(lease.Lease, error) {
	if done == nil {
		return nil
	}
	awake := r.bed.Mark()
	return func(l lease.Lease, err error) {
		l.CountSleep(awake)
		done(l, err)
	}
}

// slow passes outcomes on when the rig says so.
type slow struct {
	lease.Caller
	r     *rig
	awake asleep.Mark
}

func (s slow) Done(l lease.Lease, err error) {
	s.r.mu.Lock()
	grant := s.r.grant
	s.r.mu.Unlock()
	l.CountSleep(s.awake)
	if grant == nil {
		s.Caller.Done(l, err)
		return
	}
	grant(func() { s.Caller.Done(l, err) })
}

// set changes the rig while it is in use.
func (r *rig) set(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// times returns when commands with this verb were sent.
func (r *rig) times(v lease.Verb) []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []time.Time
	for _, s := range r.sent {
		if s.Verb == v {
			out = append(out, s.at)
		}
	}
	return out
}

// only makes one verb suffer.
func only(v lease.Verb, f fault) func(lease.Command) fault {
	return func(c lease.Command) fault {
		if c.Verb == v {
			return f
		}
		return fault{}
	}
}

// connect opens a client on the rig.
func (r *rig) connect(o lease.ClientOptions) *lease.Client {
	r.t.Helper()
	c, err := lease.Connect(r.t.Context(), r, o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

func (r *rig) hold(c *lease.Client, q lease.Request) *lease.Held {
	r.t.Helper()
	h, err := c.Hold(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// holders counts who holds a key by the service's own word.
func (r *rig) holders(key string) int {
	r.t.Helper()
	return len(r.show(key).Holders)
}

func (r *rig) show(key string) lease.KeyInfo {
	r.t.Helper()
	l, err := r.List(context.Background(), lease.Query{Key: key})
	if err != nil {
		r.t.Fatal(err)
	}
	if len(l.Keys) == 0 {
		return lease.KeyInfo{Key: key}
	}
	return l.Keys[0]
}

// wait lets time pass. It is only called inside a synctest bubble.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func request(ttl time.Duration, keys ...string) lease.Request {
	return lease.Request{Keys: keys, TTL: ttl}
}
