package leaseremote

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// listen serves a broker on a loopback address until the test ends.
func listen(t testing.TB, svc lease.Service) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := tcpserve.New(svc, tcpserve.Options{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		srv.Serve(ln)
	}()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		srv.Shutdown(ctx)
		<-done
	})
	return ln.Addr().String()
}

func memory(t testing.TB) lease.Service {
	t.Helper()
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return svc
}

// Real sockets that are reset again and again under load: everything is answered
// as if nothing had happened, and one key has one holder.
func TestCutsOverTCP(t *testing.T) {
	svc := memory(t)
	addr := listen(t, svc)
	var mu sync.Mutex
	var conns []*net.TCPConn
	v, err := Dial(t.Context(), addr, Options{Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			mu.Lock()
			conns = append(conns, c.(*net.TCPConn))
			mu.Unlock()
		}
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	s, err := v.Open(t.Context(), lease.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	reset := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.SetLinger(0)
			c.Close()
		}
		conns = nil
	}
	const callers, turns = 8, 32
	var inside sync.Mutex
	var all sync.WaitGroup
	for i := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			for n := range turns {
				w := newWaiter(s)
				s.Acquire(lease.Request{ID: fmt.Sprint(i, "/", n), Keys: []string{"k"}}, w)
				if i%2 == 0 {
					s.Lend()
				}
				if err := <-w.got; err != nil {
					t.Errorf("acquire: %v", err)
					return
				}
				if !inside.TryLock() {
					t.Error("two holders at once")
					return
				}
				if i == 0 && n%4 == 0 {
					reset()
				}
				inside.Unlock()
				s.Do(lease.Command{Verb: lease.Release, ID: w.l.ID}, w.done)
				if err := <-w.got; err != nil {
					t.Errorf("release: %v", err)
					return
				}
			}
		}()
	}
	all.Wait()
	if l, err := svc.List(t.Context(), lease.Query{}); err != nil || len(l.Keys) != 0 {
		t.Fatalf("left behind: %+v, %v", l, err)
	}
}

// One caller that reads its own answers, on a real socket that is reset between
// and during its calls.
func TestLoneCallerOverTCP(t *testing.T) {
	addr := listen(t, memory(t))
	conns := make(chan net.Conn, 100)
	v, err := Dial(t.Context(), addr, Options{Dial: func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			conns <- c
		}
		return c, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	s, err := v.Open(t.Context(), lease.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := newWaiter(s)
	for i := range 400 {
		if i%100 == 99 {
			go func() { (<-conns).Close() }()
		}
		if err := w.lone(lease.Request{Keys: []string{"k"}}); err != nil {
			t.Fatal(err)
		}
	}
}

// A broker that stops reading costs no caller its time: calls return at once,
// and what cannot be sent any more is refused by name.
func TestCallsNeverWait(t *testing.T) {
	svc := memory(t)
	srv := tcpserve.New(svc, tcpserve.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	frozen, thaw := make(chan struct{}), make(chan struct{})
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		srv.ServeConn(&lazyConn{Conn: c, frozen: frozen, thaw: thaw})
	}()
	v, err := Dial(t.Context(), ln.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := v.Open(t.Context(), lease.SessionOptions{Grace: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	close(frozen)
	keys := make([]string, lease.MaxKeys)
	for i := range keys {
		keys[i] = fmt.Sprintf("%02d%s", i, strings.Repeat("x", lease.MaxKeyLength-2))
	}
	refused := errors.New("not refused")
	for range 1000 { // 33 KB each: far more than the sockets and the limit take
		w := newWaiter(s)
		s.Acquire(lease.Request{Keys: keys}, w)
		select {
		case refused = <-w.got:
		default:
			continue
		}
		break
	}
	if !errors.Is(refused, lease.ErrUnavailable) || !strings.Contains(refused.Error(), "MaxUnsent") {
		t.Fatalf("got %v, want the limit by name", refused)
	}
	close(thaw)
	w := newWaiter(s)
	for { // until there is room again
		s.Do(lease.Command{Verb: lease.Ping}, w.done)
		if err := <-w.got; err == nil {
			break
		} else if !errors.Is(err, lease.ErrUnavailable) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	<-served
}

// lazyConn stops reading from frozen to thaw.
type lazyConn struct {
	net.Conn
	frozen, thaw chan struct{}
}

func (c *lazyConn) Read(p []byte) (int, error) {
	select {
	case <-c.frozen:
		<-c.thaw
	default:
	}
	return c.Conn.Read(p)
}
