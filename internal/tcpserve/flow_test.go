package tcpserve

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// counted counts reads that brought something, and writes.
type counted struct {
	net.Conn
	reads, writes atomic.Int32
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.reads.Add(1)
	}
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// A burst of 64 requests costs one read and one write.
func TestBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		client, server := net.Pipe()
		nc := &counted{Conn: server}
		go s.ServeConn(nc)
		p := newPeer(t, client)
		p.open("")
		for round := range 30 {
			var burst []string
			for i := range 64 {
				burst = append(burst, fmt.Sprintf(`{"n":%d,"do":"acquire","id":"%d-%d","key":"k%d"}`, i+1, round, i, i))
			}
			nc.reads.Store(0)
			nc.writes.Store(0)
			p.send(burst...)
			for i := range 64 {
				p.want(fmt.Sprintf(`{"n":%d,"ok":true,*}`, i+1))
			}
			synctest.Wait()
			// The first round finds the small buffer that idle connections have.
			if r, w := nc.reads.Load(), nc.writes.Load(); round > 0 && (r > 1 || w > 1) {
				t.Errorf("round %d: %d reads and %d writes, want one of each", round, r, w)
			}
			burst = burst[:0]
			for i := range 64 {
				burst = append(burst, fmt.Sprintf(`{"n":%d,"do":"release","id":"%d-%d"}`, i+1, round, i))
			}
			p.send(burst...)
			for range burst {
				p.want(`{*"ok":true,*}`)
			}
		}
	})
}

// A watcher that does not read misses events, is told so when it reads again, and
// gets every event from then on. The others are not held up.
func TestSlowWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		w, p := pipe(t, s), pipe(t, s)
		w.greet()
		w.send(`{"n":1,"do":"watch","prefix":"k"}`)
		w.want(`{"n":1,"ok":true}`)
		p.open("")
		const pairs = maxEvents / wideKey // twice what is kept for a watcher
		for i := range pairs {
			p.send(fmt.Sprintf(`{"n":2,"do":"acquire","id":"%d","key":"k%s"}`, i, wide()))
			p.want(`{"n":2,"ok":true,*}`)
			p.send(fmt.Sprintf(`{"n":3,"do":"release","id":"%d"}`, i))
			p.want(`{"n":3,"ok":true,*}`)
		}
		events := 0
		for {
			line := w.line()
			if line == `{"n":1,"event":"gap"}` {
				break
			}
			if !match(`{"n":1,"event":"*"*}`, line) {
				t.Fatalf("got %s", line)
			}
			events++
		}
		if events == 0 || events >= 2*pairs {
			t.Errorf("%d events before the gap, of %d", events, 2*pairs)
		}
		p.send(`{"n":2,"do":"acquire","id":"last","key":"k"}`)
		p.want(`{"n":2,"ok":true,*}`)
		w.want(`{"n":1,"event":"granted","key":"k",*}`)
		w.send(`{"n":2,"do":"unwatch","watch":1}`)
		w.want(`{"n":2,"ok":true}`)
		p.send(`{"n":3,"do":"release","id":"last"}`)
		p.want(`{"n":3,"ok":true,*}`)
		w.send(`{"n":3,"do":"ping"}`)
		w.want(`{"n":3,"ok":true}`)
	})
}

// A client that does not read its answers is cut off when a write has not
// succeeded in time; its session ends by its grace.
func TestClientThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		p := pipe(t, s)
		p.open("")
		p.send(`{"n":2,"do":"acquire","key":"k","forever":true}`)
		start := time.Now()
		time.Sleep(writeTimeout + lease.DefaultGrace)
		synctest.Wait()
		if n, got := s.Connections(), state(t, svc); n != 0 || got != "" {
			t.Errorf("after %v there are %d connections, and %s", time.Since(start), n, got)
		}
	})
}

// wideKey is the room that the key of wide takes in a frame: control characters
// are long when escaped.
const wideKey = 6 * (lease.MaxKeyLength - 1)

func wide() string { return strings.Repeat(`\u0001`, lease.MaxKeyLength-1) }

// Beyond the limit on unanswered requests each further acquire is refused by name;
// signs of life and releases go on, and there is room again when one is answered.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newService(t), Options{})
		p := pipe(t, s)
		p.open("")
		p.send(`{"n":2,"do":"acquire","id":"h","key":"k"}`)
		p.want(`{"n":2,"ok":true,*}`)
		for i := range lease.MaxInFlight {
			p.send(fmt.Sprintf(`{"n":%d,"do":"acquire","key":"k"}`, i+3))
			p.want(`{*,"queued":true,*}`)
		}
		p.send(`{"n":1,"do":"acquire","key":"other"}`)
		p.failure(1, lease.ErrRefused, "MaxInFlight")
		p.send(`{"n":1,"do":"ping"}`)
		p.want(`{"n":1,"ok":true}`)
		p.send(`{"n":1,"do":"release","id":"h"}`)
		p.want(`{"n":1,"ok":true,*}`, `{"n":3,"ok":true,*}`)
		p.send(`{"n":1,"do":"acquire","key":"other"}`)
		p.want(`{"n":1,"ok":true,*}`)
	})
}

// A client that is sent more grants than it reads is cut off before it costs more
// than its share of memory.
func TestUnsentIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newService(t)
		s := newServer(t, svc, Options{})
		p, holder := pipe(t, s), pipe(t, s)
		holder.open("")
		holder.send(`{"n":2,"do":"acquire","id":"h","key":"` + wide() + `"}`)
		holder.want(`{"n":2,"ok":true,*}`)
		p.open("")
		for i := range lease.MaxUnsent/wideKey + 100 {
			p.send(fmt.Sprintf(`{"n":%d,"do":"acquire","id":"%d","key":"%s","mode":"shared"}`, i+2, i, wide()))
			p.want(`{*,"queued":true,*}`)
		}
		holder.send(`{"n":3,"do":"release","id":"h"}`)
		holder.want(`{"n":3,"ok":true,*}`)
		synctest.Wait()
		if n := s.Connections(); n != 1 {
			t.Errorf("%d connections, want that of the client which does not read to be cut off", n)
		}
		rest, err := io.ReadAll(p.in)
		if len(rest) > lease.MaxUnsent {
			t.Errorf("%d bytes were kept, %v", len(rest), err)
		}
	})
}

// What happens between the start of a watch and its answer comes after the answer.
func TestWatchOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := &eager{Service: newService(t)}
		s := newServer(t, svc, Options{})
		p := pipe(t, s).greet()
		p.send(`{"n":5,"do":"watch"}`)
		p.want(`{"n":5,"ok":true}`, `{"n":5,"event":"granted","key":"early",*}`)
	})
}

// eager is a service that has an event before Watch returns.
type eager struct{ lease.Service }

func (e *eager) Watch(_ context.Context, _ lease.Query, fn func(lease.Event)) (func(), error) {
	fn(lease.Event{Kind: lease.EventGranted, Key: "early"})
	return func() {}, nil
}
