package tcpserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// A client over a real socket does what one over a pipe does, and a unix socket
// is no different from TCP.
func TestSockets(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		s := newServer(t, newService(t), Options{})
		addr := listen(t, s, network)
		p, q := dial(t, addr), dial(t, addr)
		p.open(`,"name":"p"`)
		q.open(`,"name":"q"`)
		p.send(`{"n":2,"do":"acquire","id":"i","key":"k"}`)
		p.want(`{"n":2,"ok":true,*}`)
		q.send(`{"n":2,"do":"acquire","key":"k"}`)
		q.want(`{"n":2,"queued":true,*}`)
		p.send(`{"n":3,"do":"close"}`)
		p.want(`{"n":3,"ok":true}`)
		p.end()
		q.want(`{"n":2,"ok":true,*}`)
	}
}

// A client that says all at once and then closes its side still gets every
// answer, and then the end; what it asked for is done. With a journal the answers
// are still underway when the end comes.
func TestHalfClosed(t *testing.T) {
	t.Run("memory", func(t *testing.T) { halfClosed(t, newService(t)) })
	t.Run("durable", func(t *testing.T) { halfClosed(t, newDurable(t)) })
}

func halfClosed(t *testing.T, svc lease.Service) {
	s := newServer(t, svc, Options{})
	for _, network := range []string{"tcp", "unix"} {
		p := dial(t, listen(t, s, network))
		p.send(hello, `{"n":1,"do":"open","grace":600000}`, `{"n":2,"do":"acquire","key":"`+network+`"}`,
			`{"n":3,"do":"acquire","key":"`+network+`"}`)
		io.WriteString(p.nc, `{"n":4,"do":"pi`)
		p.nc.(interface{ CloseWrite() error }).CloseWrite()
		p.want(`{"latchkey":1,*}`, `{"n":1,"ok":true,*}`, `{"n":2,"ok":true,*}`, `{"n":3,"queued":true,*}`)
		p.end()
		l, err := svc.List(t.Context(), lease.Query{Key: network})
		if err != nil || len(l.Keys) != 1 || len(l.Keys[0].Holders) != 1 {
			t.Errorf("%s: %+v, %v", network, l, err)
		}
	}
}

// Connections over the limit are told by name and closed, the others are served,
// and there is room again when one ends.
func TestConnectionFlood(t *testing.T) {
	const limit = 10
	s := newServer(t, newService(t), Options{MaxConnections: limit})
	addr := listen(t, s, "tcp")
	var served []*peer
	for range limit {
		served = append(served, dial(t, addr).greet())
	}
	for range 200 {
		p := dial(t, addr)
		p.send(hello)
		p.failure(0, lease.ErrRefused, "10 connections are open, no more are served (MaxConnections)")
		p.end()
		p.nc.Close()
	}
	served[0].send(`{"n":1,"do":"ping"}`)
	served[0].want(`{"n":1,"ok":true}`)
	served[1].send(`{"n":1,"do":"close"}`)
	served[1].want(`{"n":1,"ok":true}`)
	served[1].end()
	eventually(t, "the connection that said goodbye is counted", func() bool { return s.Connections() < limit })
	dial(t, addr).greet()
}

// The goodbye of the whole: the service answers those that wait, their answers
// are sent, and every connection ends. A second shutdown is harmless.
func TestShutdown(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		addr := listen(t, s, network)
		holder, waiter, idle, silent := dial(t, addr), dial(t, addr), dial(t, addr).greet(), dial(t, addr)
		eventually(t, "not all are served", func() bool { return s.Connections() == 4 })
		holder.open("")
		holder.send(`{"n":2,"do":"acquire","key":"k"}`)
		holder.want(`{"n":2,"ok":true,*}`)
		waiter.open("")
		waiter.send(`{"n":2,"do":"acquire","key":"k"}`)
		waiter.want(`{"n":2,"queued":true,*}`)
		if err := svc.Close(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		done := make(chan error, 2)
		for range 2 {
			go func() { done <- s.Shutdown(ctx) }()
		}
		waiter.want(`{"n":2,"ok":false,"code":"closed",*}`)
		for _, p := range []*peer{holder, waiter, idle, silent} {
			p.end()
			p.nc.Close()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		cancel()
		if n := s.Connections(); n != 0 {
			t.Errorf("%d connections are left", n)
		}
	}
}

// A shutdown whose service goes on refuses what is new, lets holders release, and
// closes when its time is up.
func TestShutdownInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := New(svc, Options{})
		holder, waiter := pipe(t, s), pipe(t, s)
		holder.open("")
		holder.send(`{"n":2,"do":"acquire","id":"h","key":"k"}`)
		holder.want(`{"n":2,"ok":true,*}`)
		waiter.open("")
		waiter.send(`{"n":2,"do":"acquire","key":"k","max_hold":60000}`)
		waiter.want(`{"n":2,"queued":true,*}`)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(ctx) }()
		synctest.Wait()
		late := pipe(t, s)
		late.failure(0, lease.ErrClosed, "shutting down")
		late.end()
		holder.send(`{"n":3,"do":"acquire","key":"other"}`)
		holder.failure(3, lease.ErrClosed, "shutting down")
		holder.send(`{"n":4,"do":"watch"}`)
		holder.failure(4, lease.ErrClosed, "shutting down")
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		holder.end()
		waiter.end()
		if got := state(t, svc); !strings.Contains(got, "+1") {
			t.Errorf("sessions were ended: %s", got)
		}
	})
}

// faulty is a service with defects.
type faulty struct {
	lease.Service
}

func (f *faulty) List(context.Context, lease.Query) (lease.Listing, error) { panic("listing") }

func (f *faulty) Force(context.Context, lease.ForceRequest) (lease.Forced, error) {
	return lease.Forced{}, errors.New("the password is hunter2")
}

// A defect ends the connection that met it, with a code and nothing else, and no
// other; what it held ends with its session.
func TestDefect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, &faulty{svc}, Options{})
		p, other := pipe(t, s), pipe(t, s)
		other.open("")
		p.open(`,"grace":0`)
		p.send(`{"n":2,"do":"acquire","key":"k"}`)
		p.want(`{"n":2,"ok":true,*}`)
		p.send(`{"n":3,"do":"force","key":"k"}`)
		p.want(`{"n":3,"ok":false,"code":"internal","op":"force","reason":"a defect in the server, see its log"}`)
		p.send(`{"n":4,"do":"list"}`)
		p.want(`{"ok":false,"code":"internal","reason":"a defect in the server, see its log"}`)
		p.end()
		synctest.Wait()
		if got := state(t, svc); got != "" {
			t.Errorf("left %s", got)
		}
		other.send(`{"n":2,"do":"ping"}`)
		other.want(`{"n":2,"ok":true}`)
	})
}

// stuck is a service that does not answer in time.
type stuck struct{ lease.Service }

func (s *stuck) List(ctx context.Context, _ lease.Query) (lease.Listing, error) {
	<-ctx.Done()
	return lease.Listing{}, context.Cause(ctx)
}

func (s *stuck) Force(ctx context.Context, _ lease.ForceRequest) (lease.Forced, error) {
	<-ctx.Done()
	return lease.Forced{}, context.Cause(ctx)
}

// A service that does not answer is said to be unavailable, or the outcome
// unknown where there is one.
func TestStuckService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, &stuck{newService(t)}, Options{})
		p := pipe(t, s).greet()
		p.send(`{"n":1,"do":"list"}`)
		p.failure(1, lease.ErrUnavailable, "did not answer within 10s")
		p.send(`{"n":2,"do":"force","key":"k"}`)
		p.failure(2, lease.ErrUnknown, "did not answer within 10s")
	})
}

// A long listing comes in pages that fit a frame, and nothing is missing.
func TestListPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		p := pipe(t, s)
		p.open("")
		const keys = 2200
		for i := range keys {
			p.send(fmt.Sprintf(`{"n":2,"do":"acquire","key":"%0500d"}`, i))
			p.want(`{"n":2,"ok":true,*}`)
		}
		after, found, pages := "", 0, 0
		for more := true; more; pages++ {
			p.send(`{"n":3,"do":"list","limit":10000,"after":"` + after + `"}`)
			line := p.line()
			var r wire.Reply
			if err := wire.DecodeReply([]byte(line), &r); err != nil || len(line) > wire.MaxReply {
				t.Fatalf("a page of %d bytes, %v", len(line), err)
			}
			found += len(r.Infos)
			after, more = r.Infos[len(r.Infos)-1].Key, r.More
		}
		if found != keys || pages < 2 {
			t.Errorf("%d keys in %d pages, want %d", found, pages, keys)
		}
		p.send(`{"n":4,"do":"stats"}`)
		p.want(fmt.Sprintf(`{"n":4,"ok":true,"stats":{"service":"local",*"holds":%d,*}}`, keys))
		p.send(`{"n":5,"do":"force","key":"` + after + `","by":"me","reason":"why not"}`)
		p.want(`{"lost":"forced",*"by":"me: why not"}`, `{"n":5,"ok":true,"key":"*","token":*,"fence":*}`)
	})
}

// flaky is a listener that cannot accept now and then, and in the end for good.
type flaky struct {
	net.Listener
	mu     sync.Mutex
	errors []error
}

func (f *flaky) Accept() (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.errors) == 0 {
		return nil, net.ErrClosed
	}
	err := f.errors[0]
	f.errors = f.errors[1:]
	return nil, err
}

func (f *flaky) Close() error   { return nil }
func (f *flaky) Addr() net.Addr { return &net.UnixAddr{Name: "flaky"} }

// Running out of file descriptors does not end the serving; a broken listener does.
func TestAcceptErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		full := &net.OpError{Op: "accept", Err: syscall.EMFILE}
		start := time.Now()
		if err := s.Serve(&flaky{errors: []error{full, full, full}}); err != nil {
			t.Errorf("got %v, want nil for a listener that was closed", err)
		}
		if d := time.Since(start); d != 35*time.Millisecond {
			t.Errorf("tried again within %v, want growing pauses", d)
		}
		broken := errors.New("broken")
		if err := s.Serve(&flaky{errors: []error{full, broken}}); !errors.Is(err, broken) {
			t.Errorf("got %v, want the listener's error", err)
		}
	})
}

// Many clients that come, ask at random, vanish in the middle and come back leave
// nothing behind, and every answer belongs to a request.
func TestManyClients(t *testing.T) {
	t.Run("memory", func(t *testing.T) { manyClients(t, newService(t)) })
	t.Run("durable", func(t *testing.T) { manyClients(t, newDurable(t)) })
}

func manyClients(t *testing.T, svc lease.Service) {
	s := newServer(t, svc, Options{})
	addr := listen(t, s, "tcp")
	var wg sync.WaitGroup
	for worker := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(worker), 1))
			for range 20 {
				if err := visit(addr, r); err != nil {
					t.Errorf("worker %d: %v", worker, err)
					return
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "something is left", func() bool { return state(t, svc) == "" && s.Connections() == 0 })
}

// visit is one connection of a random client without grace.
func visit(addr net.Addr, r *rand.Rand) error {
	nc, err := net.Dial(addr.Network(), addr.String())
	if err != nil {
		return err
	}
	defer nc.Close()
	var out []byte
	out = wire.AppendHello(out, &wire.Hello{Version: wire.Version})
	out = wire.AppendRequest(out, &wire.Request{N: 1, Do: wire.OpOpen, Grace: lease.NoGrace})
	requests := uint64(1 + r.IntN(40))
	for n := uint64(2); n <= requests; n++ {
		q := wire.Request{N: n, ID: fmt.Sprint(r.IntN(8)), Do: wire.OpAcquire, Key: fmt.Sprint(r.IntN(4))}
		switch r.IntN(4) {
		case 0:
			q.Do, q.Key = wire.OpRelease, ""
		case 1:
			q.Do, q.Key = wire.OpCancel, ""
		}
		out = wire.AppendRequest(out, &q)
	}
	if _, err := nc.Write(out); err != nil {
		return err
	}
	in := wire.NewReader(nc, wire.MaxReply)
	if _, err := in.Next(); err != nil {
		return err
	}
	answered := make(map[uint64]bool)
	for range r.IntN(int(requests) + 1) {
		nc.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		line, err := in.Next()
		if err != nil {
			return nil // it waits for what another one holds
		}
		var reply wire.Reply
		if err := wire.DecodeReply(line, &reply); err != nil {
			return err
		}
		if reply.Kind == wire.OK || reply.Kind == wire.Failed {
			if reply.N < 1 || reply.N > requests || answered[reply.N] {
				return fmt.Errorf("%d was answered out of place: %s", reply.N, line)
			}
			answered[reply.N] = true
		}
	}
	if r.IntN(2) == 0 {
		io.WriteString(nc, `{"n":1,"do":"clo`)
	}
	return nil
}
