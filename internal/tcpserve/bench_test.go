package tcpserve

import (
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// benchListen serves a listener on loopback until the benchmark ends.
func benchListen(b *testing.B, serve func(net.Listener)) net.Conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); serve(l) }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close(); l.Close(); <-done })
	return nc
}

// BenchmarkPair is a lock and its unlock by a client that only builds and cuts
// frames, with so many pairs in flight; BenchmarkEcho is the floor.
func BenchmarkPair(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			svc, err := leaselocal.Open(leaselocal.Options{})
			if err != nil {
				b.Fatal(err)
			}
			defer svc.Close()
			s := New(svc, Options{})
			nc := benchListen(b, func(l net.Listener) { s.Serve(l) })
			in := wire.NewReader(nc, wire.MaxReply)
			out := wire.AppendHello(nil, &wire.Hello{Version: wire.Version})
			out = wire.AppendRequest(out, &wire.Request{N: 1, Do: wire.OpOpen})
			roundTrip(b, nc, in, out, 2)
			for i := 0; b.Loop(); i++ {
				out = out[:0]
				for d := range depth {
					out = wire.AppendRequest(out, &wire.Request{N: uint64(d + 1), Do: wire.OpAcquire,
						ID: fmt.Sprintf("%d.%d", i, d), Key: fmt.Sprintf("key %d", d), TTL: lease.DefaultTTL})
				}
				roundTrip(b, nc, in, out, depth)
				out = out[:0]
				for d := range depth {
					out = wire.AppendRequest(out, &wire.Request{N: uint64(d + 1), Do: wire.OpRelease, ID: fmt.Sprintf("%d.%d", i, d)})
				}
				roundTrip(b, nc, in, out, depth)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*depth), "ns/pair")
		})
	}
}

// BenchmarkEcho is two bare round trips of lines as long as those of a pair.
func BenchmarkEcho(b *testing.B) {
	for _, depth := range []int{1, 64} {
		b.Run(fmt.Sprint(depth), func(b *testing.B) {
			nc := benchListen(b, func(l net.Listener) {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			})
			in := wire.NewReader(nc, wire.MaxReply)
			line := []byte(`{"n":1,"ok":true,"id":"1234.1","key":"key 1","token":123456,"ttl":30000,"elapsed":0,"remaining":3000}` + "\n")
			var out []byte
			for range depth {
				out = append(out, line...)
			}
			for b.Loop() {
				roundTrip(b, nc, in, out, depth)
				roundTrip(b, nc, in, out, depth)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*depth), "ns/pair")
		})
	}
}

func roundTrip(b *testing.B, nc net.Conn, in *wire.Reader, out []byte, lines int) {
	if _, err := nc.Write(out); err != nil {
		b.Fatal(err)
	}
	for range lines {
		if _, err := in.Next(); err != nil {
			b.Fatal(err)
		}
	}
}
