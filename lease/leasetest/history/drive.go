package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Load describes random traffic.
type Load struct {
	Seed    uint64
	Clients int           // each with a session and a goroutine
	Keys    int           // fewer keys are more contended
	Steps   int           // of each client
	Pace    time.Duration // how long things last, on average; ttls are a few times that

	// Grace of the sessions; zero leaves it to the service.
	Grace time.Duration

	// Prefix begins the clients' names, and so the ids of their requests.
	Prefix string

	// Suspends lets clients break off, and come back or not.
	Suspends bool
}

// Drive runs random traffic of all kinds: every mode, one key and many, tries and
// bounded waits, repeats, cancels, renewals, expiries, forces, detached holds,
// goodbyes, and sessions that break off. It returns when every client is done or
// ctx ends. It may run inside a synctest bubble.
func Drive(ctx context.Context, svc lease.Service, l Load) error {
	errs := make(chan error, l.Clients)
	var wg sync.WaitGroup
	for i := range l.Clients {
		d := &driver{l: l, svc: svc, rng: rand.New(rand.NewPCG(l.Seed, uint64(i))), name: fmt.Sprint(l.Prefix, "client ", i)}
		wg.Go(func() { errs <- d.run(ctx) })
	}
	wg.Wait()
	for range l.Clients {
		if err := <-errs; err != nil {
			return fmt.Errorf("history: seed %d: %w", l.Seed, err)
		}
	}
	return nil
}

// driver is one client.
type driver struct {
	l     Load
	svc   lease.Service
	rng   *rand.Rand
	name  string
	s     lease.Session
	held  []lease.Lease
	moves int
}

func (d *driver) run(ctx context.Context) error {
	if err := d.open(ctx, ""); err != nil {
		return err
	}
	for range d.l.Steps {
		if ctx.Err() != nil {
			break
		}
		if err := d.step(ctx); err != nil {
			return err
		}
	}
	d.command(ctx, func(done func(error)) { d.s.Close(done) })
	return nil
}

// open begins a session, or takes the old one over when it is still there.
func (d *driver) open(ctx context.Context, resume string) error {
	for ctx.Err() == nil {
		s, err := d.svc.Open(ctx, lease.SessionOptions{Name: d.name, Grace: d.l.Grace, Resume: resume})
		if err == nil {
			d.s = s
			return nil
		}
		if lease.CodeOf(err) == lease.ErrSessionLost {
			d.held = nil
			resume = ""
			continue
		}
		if lease.CodeOf(err) != lease.ErrUnavailable && lease.CodeOf(err) != lease.ErrUnknown {
			return err
		}
		d.sleep(ctx, d.l.Pace)
	}
	return nil
}

func (d *driver) sleep(ctx context.Context, most time.Duration) {
	t := time.NewTimer(time.Duration(d.rng.Int64N(int64(most))) + 1)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// step does one random thing.
func (d *driver) step(ctx context.Context) error {
	switch n := d.rng.IntN(100); {
	case n < 45 || len(d.held) == 0 && n < 85:
		d.acquire(ctx)
	case n < 70:
		d.release(ctx)
	case n < 80:
		d.do(ctx, lease.Command{Verb: lease.Renew, ID: d.any().ID})
	case n < 83:
		d.do(ctx, lease.Command{Verb: lease.Detach, ID: d.any().ID})
	case n < 88:
		d.sleep(ctx, 4*d.l.Pace)
	case n < 92:
		d.force(ctx)
	case n < 95:
		d.command(ctx, func(done func(error)) { d.s.Close(done) })
		d.held = nil
		return d.open(ctx, "")
	case d.l.Suspends:
		d.s.Suspend()
		if d.rng.IntN(3) == 0 {
			d.held = nil
			return d.open(ctx, "")
		}
		d.sleep(ctx, d.l.Pace)
		return d.open(ctx, d.s.ID())
	}
	return nil
}

func (d *driver) any() lease.Lease {
	if len(d.held) == 0 {
		return lease.Lease{ID: "nothing"}
	}
	return d.held[d.rng.IntN(len(d.held))]
}

func (d *driver) request() lease.Request {
	d.moves++
	r := lease.Request{
		ID:  fmt.Sprintf("%s-%d", d.name, d.moves),
		TTL: time.Duration(1+d.rng.IntN(6)) * d.l.Pace,
	}
	for _, k := range d.rng.Perm(d.l.Keys)[:1+d.rng.IntN(min(3, d.l.Keys))*d.rng.IntN(2)] {
		r.Keys = append(r.Keys, fmt.Sprint("k", k))
	}
	switch d.rng.IntN(4) {
	case 0:
		r.Mode, r.PreferReaders = lease.Shared, d.rng.IntN(4) == 0
	case 1:
		r.Mode, r.Limit = lease.Counted, 1+d.rng.IntN(3)
	}
	switch d.rng.IntN(5) {
	case 0:
		r.Try = true
	case 1, 2:
		r.Wait = time.Duration(1+d.rng.IntN(5)) * d.l.Pace
	}
	if d.rng.IntN(12) == 0 {
		r.TTL = lease.Forever
	}
	if d.rng.IntN(20) == 0 {
		r.LockDelay = d.l.Pace
	}
	return r
}

// waiter is a lease.Caller that hands the outcome to whoever waits for it.
type waiter chan error

// Queued implements lease.Caller.
func (waiter) Queued(lease.Queued) {}

// Done implements lease.Caller.
func (w waiter) Done(_ lease.Lease, err error) { w <- err }

// acquire asks, and mostly waits; sometimes it asks twice, or cancels.
func (d *driver) acquire(ctx context.Context) {
	r := d.request()
	w := make(waiter, 2)
	d.s.Acquire(r, w)
	asked := 1
	if d.rng.IntN(10) == 0 {
		d.s.Acquire(r, w)
		asked = 2
	}
	// Every wait has an end, so that clients that hold several keys cannot stop
	// one another for ever.
	limit := time.NewTimer(time.Duration(1+d.rng.IntN(8)) * d.l.Pace)
	defer limit.Stop()
	for range asked {
		select {
		case err := <-w:
			if err == nil && !d.holds(r.ID) {
				d.held = append(d.held, lease.Lease{ID: r.ID})
			}
			continue
		case <-limit.C:
		case <-ctx.Done():
		}
		d.do(ctx, lease.Command{Verb: lease.Cancel, ID: r.ID})
		return
	}
	if d.rng.IntN(20) == 0 {
		d.do(ctx, lease.Command{Verb: lease.Cancel, ID: r.ID})
	}
}

func (d *driver) holds(id string) bool {
	for _, l := range d.held {
		if l.ID == id {
			return true
		}
	}
	return false
}

func (d *driver) release(ctx context.Context) {
	if len(d.held) == 0 {
		return
	}
	i := d.rng.IntN(len(d.held))
	l := d.held[i]
	d.held = append(d.held[:i], d.held[i+1:]...)
	d.do(ctx, lease.Command{Verb: lease.Release, ID: l.ID})
}

func (d *driver) force(ctx context.Context) {
	key := fmt.Sprint("k", d.rng.IntN(d.l.Keys))
	f := lease.ForceRequest{Key: key, By: d.name}
	if l, err := d.svc.List(ctx, lease.Query{Key: key}); err == nil && len(l.Keys) > 0 && d.rng.IntN(2) == 0 {
		if hs := l.Keys[0].Holders; len(hs) > 0 {
			f.Token = hs[d.rng.IntN(len(hs))].Token
		}
	}
	// What comes of it is in the history; a force that fails is part of the load.
	_, _ = d.svc.Force(ctx, f)
}

// do runs a command and waits for its answer, but not for ever: a session that
// broke off owes none.
func (d *driver) do(ctx context.Context, c lease.Command) {
	d.command(ctx, func(done func(error)) { d.s.Do(c, func(_ lease.Lease, err error) { done(err) }) })
}

func (d *driver) command(ctx context.Context, start func(done func(error))) {
	answer := make(chan error, 1)
	start(func(err error) { answer <- err })
	limit := time.NewTimer(100 * d.l.Pace)
	defer limit.Stop()
	select {
	case <-answer:
	case <-limit.C:
	case <-ctx.Done():
	}
}
