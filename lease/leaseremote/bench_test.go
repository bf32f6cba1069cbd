package leaseremote

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// serve starts a broker in memory on loopback and returns its address.
func serve(b *testing.B) string {
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		b.Fatal(err)
	}
	srv := tcpserve.New(svc, tcpserve.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go srv.Serve(ln)
	b.Cleanup(func() {
		svc.Close()
		srv.Shutdown(context.Background())
	})
	return ln.Addr().String()
}

// waiter is one caller that waits for its answers.
type waiter struct {
	s    lease.Session
	got  chan error
	done func(lease.Lease, error)
	l    lease.Lease
}

func newWaiter(s lease.Session) *waiter {
	w := &waiter{s: s, got: make(chan error, 1)}
	w.done = func(_ lease.Lease, err error) { w.got <- err }
	return w
}

func (w *waiter) Queued(lease.Queued) {}

func (w *waiter) Done(l lease.Lease, err error) {
	w.l = l
	w.got <- err
}

func (w *waiter) pair(keys []string) error {
	w.s.Acquire(lease.Request{Keys: keys}, w)
	if err := <-w.got; err != nil {
		return err
	}
	w.s.Do(lease.Command{Verb: lease.Release, ID: w.l.ID}, w.done)
	return <-w.got
}

// BenchmarkPair is one caller that locks and unlocks, the measure of latency.
func BenchmarkPair(b *testing.B) {
	v, err := Dial(context.Background(), serve(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	s, err := v.Open(context.Background(), lease.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	w, keys := newWaiter(s), []string{"bench/key"}
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		if err := w.pair(keys); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPairs64 is 64 callers on one session.
func BenchmarkPairs64(b *testing.B) {
	v, err := Dial(context.Background(), serve(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	s, err := v.Open(context.Background(), lease.SessionOptions{})
	if err != nil {
		b.Fatal(err)
	}
	const callers = 64
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range callers {
		all.Add(1)
		go func() {
			defer all.Done()
			w, keys := newWaiter(s), []string{fmt.Sprintf("bench/key/%d", i)}
			for n := i; n < b.N; n += callers {
				if err := w.pair(keys); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	all.Wait()
}

// BenchmarkEcho is what the machine allows: two round trips of a line of the
// same size, with nothing behind them.
func BenchmarkEcho(b *testing.B) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 4096)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	line := make([]byte, 100)
	line[99] = '\n'
	in := bufio.NewReader(c)
	b.ResetTimer()
	for range b.N {
		for range 2 {
			if _, err := c.Write(line); err != nil {
				b.Fatal(err)
			}
			if _, err := in.ReadSlice('\n'); err != nil {
				b.Fatal(err)
			}
		}
	}
}
