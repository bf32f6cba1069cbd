package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/lease"
)

// inFlight bounds the unanswered requests of a crowd: enough to keep a broker
// busy, few enough that none waits long in a socket.
const inFlight = 64

// crowd holds many keys through one session, without a goroutine each.
type crowd struct {
	session lease.Session
	leases  []lease.Lease
}

// openSession opens a session whose losses go to notify, which may be nil.
func (b *broker) openSession(ctx context.Context, e *env, notify func(lease.Notice)) (lease.Session, error) {
	s, err := b.service.Open(ctx, lease.SessionOptions{Name: "bench crowd", Notify: notify})
	if err != nil {
		return nil, err
	}
	e.later(func() error {
		closed := make(chan error, 1)
		s.Close(func(err error) { closed <- err })
		return <-closed
	})
	return s, nil
}

// take asks for n keys, key(i) with request(i), at most inFlight at once, and
// stores the grants.
func (c *crowd) take(ctx context.Context, n int, request func(i int) lease.Request) error {
	c.leases = make([]lease.Lease, n)
	return pipeline(ctx, n, func(i int, done func(error)) {
		r := request(i)
		c.session.Acquire(r, reply(func(l lease.Lease, err error) {
			if err == nil && (len(l.Holds) != 1 || l.Holds[0].Key != r.Keys[0] || l.Token() == 0) {
				err = rounds.Wrong("asked for %q and got %v", r.Keys, l.Holds)
			}
			c.leases[i] = l
			done(err)
		}))
	})
}

// drop releases what take was granted.
func (c *crowd) drop(ctx context.Context) error {
	return pipeline(ctx, len(c.leases), func(i int, done func(error)) {
		c.session.Do(lease.Command{Verb: lease.Release, ID: c.leases[i].ID}, func(_ lease.Lease, err error) { done(err) })
	})
}

// reply is a lease.Caller that wants the outcome only.
type reply func(lease.Lease, error)

func (reply) Queued(lease.Queued)             {}
func (f reply) Done(l lease.Lease, err error) { f(l, err) }

// pipeline starts n asynchronous calls, at most inFlight unanswered, and waits
// for all. The first error stops it.
func pipeline(ctx context.Context, n int, start func(i int, done func(error))) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slots := make(chan struct{}, inFlight)
	var open sync.WaitGroup
	for i := range n {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		open.Add(1)
		start(i, func(err error) {
			if err != nil {
				cancel(err)
			}
			<-slots
			open.Done()
		})
	}
	open.Wait()
	return context.Cause(ctx)
}

// keepKeys makes the broker hold n keys of 16 bytes for an hour.
func (b *broker) keepKeys(ctx context.Context, e *env, n int) (*crowd, error) {
	s, err := b.openSession(ctx, e, nil)
	if err != nil {
		return nil, err
	}
	c := &crowd{session: s}
	return c, c.take(ctx, n, func(i int) lease.Request {
		return lease.Request{Keys: []string{fmt.Sprintf("held:%011d", i)}, TTL: time.Hour}
	})
}
