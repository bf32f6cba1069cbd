package leasetest

import (
	"context"
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// clients checks that lease.Client, written once for every service, finds in this
// one what it needs.
func clients() []test {
	return []test{
		{"HeldIsRenewed", heldIsRenewed},
		{"HeldEndsWithForce", heldForced},
		{"CancelledAcquireLeavesNothing", cancelledAcquire},
		{"DoTakesTurns", doTakesTurns},
		{"NestedDoIsADeadlock", nestedDo},
		{"LeadFollowsLoss", leadFollows},
		{"EventsArrive", eventsArrive},
		{"CloseReleases", clientCloseReleases},
	}
}

func (e *env) connect(o lease.ClientOptions) *lease.Client {
	e.Helper()
	c, err := lease.Connect(e.ctx, e.svc, o)
	if err != nil {
		e.Fatalf("connect: %v", err)
	}
	e.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		c.Close(ctx)
	})
	return c
}

// A held lease lives on far beyond its ttl, with its session's grace much shorter.
func heldIsRenewed(e *env) {
	c := e.connect(lease.ClientOptions{SessionOptions: lease.SessionOptions{Grace: 2 * time.Second}})
	h, err := c.Hold(e.ctx, lasting(time.Second, exclusive("k")))
	if err != nil {
		e.Fatal(err)
	}
	e.pass(30 * time.Second)
	if h.Err() != nil || h.Context().Err() != nil {
		e.Fatalf("lost: %v", h.Err())
	}
	if err := h.Release(e.ctx); err != nil {
		e.Fatalf("release: %v", err)
	}
	e.empty()
}

func heldForced(e *env) {
	c := e.connect(lease.ClientOptions{})
	h, err := c.Hold(e.ctx, exclusive("k"))
	if err != nil {
		e.Fatal(err)
	}
	e.force(lease.ForceRequest{Key: "k", By: "ops"})
	if err := context.Cause(h.Context()); !errors.Is(err, lease.ErrForced) || !errors.Is(h.Err(), lease.ErrForced) {
		e.Fatalf("cause %v, err %v, want forced", err, h.Err())
	}
	if err := h.Release(e.ctx); !errors.Is(err, lease.ErrForced) {
		e.Fatalf("release: %v, want the loss", err)
	}
}

func cancelledAcquire(e *env) {
	c := e.connect(lease.ClientOptions{})
	p := e.join("p")
	l := p.hold("k")
	ctx, stop := context.WithTimeout(e.ctx, time.Second)
	defer stop()
	if _, err := c.Acquire(ctx, exclusive("k")); !errors.Is(err, lease.ErrCancelled) || !errors.Is(err, context.DeadlineExceeded) {
		e.Fatalf("acquire: %v, want cancelled by the deadline", err)
	}
	if k := e.show("k"); len(k.Waiters) != 0 {
		e.Fatalf("waiters are left: %+v", k.Waiters)
	}
	p.release(l)
	e.empty()
}

// Many callers of Do on one key never overlap, and none is lost.
func doTakesTurns(e *env) {
	c, d := e.connect(lease.ClientOptions{}), e.connect(lease.ClientOptions{})
	var inside, done int
	var last lease.Token
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			err := []*lease.Client{c, d}[i%2].Do(e.ctx, exclusive("k"), func(ctx context.Context, h *lease.Held) error {
				inside++ // unsynchronized on purpose: the lease is what protects it
				if inside != 1 || h.Token() <= last {
					e.Errorf("%d inside with token %d after %d", inside, h.Token(), last)
				}
				last = h.Token()
				time.Sleep(5 * time.Millisecond)
				inside--
				done++
				return nil
			})
			if err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	if done != 40 {
		e.Fatalf("%d of 40 ran", done)
	}
	e.empty()
}

// Nested calls declare what they hold by their context, so that crossed nesting
// is refused instead of hanging.
func nestedDo(e *env) {
	c, d := e.connect(lease.ClientOptions{}), e.connect(lease.ClientOptions{})
	var both sync.WaitGroup // each has its first key
	both.Add(2)
	errs := make(chan error, 2)
	ctx, stop := context.WithTimeout(e.ctx, time.Minute)
	defer stop()
	nest := func(c *lease.Client, first, second string) {
		errs <- c.Do(ctx, exclusive(first), func(ctx context.Context, _ *lease.Held) error {
			both.Done()
			both.Wait()
			return c.Do(ctx, exclusive(second), func(context.Context, *lease.Held) error { return nil })
		})
	}
	go nest(c, "x", "y")
	go nest(d, "y", "x")
	got := []error{<-errs, <-errs}
	if got[0] == nil {
		got[0], got[1] = got[1], got[0]
	}
	if !errors.Is(got[0], lease.ErrDeadlock) || got[1] != nil {
		e.Fatalf("got %v, want one deadlock and one success", got)
	}
	e.empty()
}

func leadFollows(e *env) {
	c, d := e.connect(lease.ClientOptions{}), e.connect(lease.ClientOptions{})
	terms := make(chan string, 10)
	lead := func(c *lease.Client, name string) chan error {
		done := make(chan error, 1)
		go func() {
			done <- c.Lead(e.ctx, lasting(time.Second, exclusive("leader")), func(ctx context.Context, h *lease.Held) error {
				terms <- name
				<-ctx.Done()
				if errors.Is(context.Cause(ctx), lease.ErrForced) {
					return context.Cause(ctx)
				}
				return nil
			})
		}()
		synctest.Wait()
		return done
	}
	dc := lead(c, "c")
	dd := lead(d, "d")
	e.pass(10 * time.Second)
	for _, want := range []string{"c", "d", "c"} {
		select {
		case got := <-terms:
			if got != want {
				e.Fatalf("%s leads, want %s", got, want)
			}
		case <-time.After(time.Minute):
			e.Fatalf("nobody leads, want %s", want)
		}
		e.force(lease.ForceRequest{Key: "leader"})
	}
	ctx := e.ctx
	if err := c.Close(ctx); err != nil {
		e.Fatal(err)
	}
	if err := d.Close(ctx); err != nil {
		e.Fatal(err)
	}
	for _, done := range []chan error{dc, dd} {
		if err := <-done; !errors.Is(err, lease.ErrClosed) {
			e.Errorf("lead ended with %v, want closed", err)
		}
	}
}

func eventsArrive(e *env) {
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	a := e.join("a")
	var got []lease.EventKind
	done := make(chan error, 1)
	go func() {
		for ev, err := range lease.Events(ctx, e.svc, lease.Query{Key: "k"}) {
			if err != nil {
				done <- err
				return
			}
			got = append(got, ev.Kind)
		}
		done <- nil
	}()
	synctest.Wait()
	a.release(a.hold("k"))
	stop()
	if err := <-done; !errors.Is(err, context.Canceled) {
		e.Fatalf("events ended with %v, want the context's end", err)
	}
	if len(got) != 2 || got[0] != lease.EventGranted || got[1] != lease.EventReleased {
		e.Fatalf("events %v, want granted and released", got)
	}
}

func clientCloseReleases(e *env) {
	c := e.connect(lease.ClientOptions{})
	h, err := c.Hold(e.ctx, exclusive("k"))
	if err != nil {
		e.Fatal(err)
	}
	kept, err := c.Hold(e.ctx, exclusive("kept"))
	if err != nil {
		e.Fatal(err)
	}
	if err := kept.Detach(e.ctx); err != nil {
		e.Fatal(err)
	}
	if err := c.Close(e.ctx); err != nil {
		e.Fatal(err)
	}
	if !errors.Is(context.Cause(h.Context()), lease.ErrClosed) {
		e.Fatalf("cause %v, want closed", context.Cause(h.Context()))
	}
	if got := keysOf(e.list(lease.Query{})); len(got) != 1 || got[0] != "kept" {
		e.Fatalf("held after the close: %q, want kept only", got)
	}
}
