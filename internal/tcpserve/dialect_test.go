package tcpserve

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// parrot is a dialect that answers a line with itself, and does what some say.
type parrot struct {
	mu    sync.Mutex
	ended []string // the lines that connections had when they ended
}

type parrotConn struct {
	all   *parrot
	peer  *Peer
	lines []string
}

func (p *parrot) open(peer *Peer) Handler { return &parrotConn{all: p, peer: peer} }

func (c *parrotConn) Line(line []byte) error {
	c.lines = append(c.lines, string(line))
	switch string(line) {
	case `{"do":"panic"}`:
		panic("on purpose")
	case `{"do":"fail"}`:
		return &lease.Error{Code: lease.ErrProtocol, Reason: "not so"}
	case `{"do":"finish"}`:
		c.peer.Send([]byte("last\n"))
		c.peer.Finish()
		return nil
	case `{"do":"cut"}`:
		c.peer.Cut()
		return nil
	}
	c.peer.Send(append(line, '\n'))
	return nil
}

func (c *parrotConn) Farewell(err error) []byte {
	return []byte("farewell " + string(lease.CodeOf(err)) + "\n")
}

func (c *parrotConn) Drain(context.Context) { c.lines = append(c.lines, "drained") }

func (c *parrotConn) End() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.all.ended = append(c.all.ended, strings.Join(c.lines, " "))
}

func (p *parrot) gone(lines ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.ended, strings.Join(lines, " "))
}

// What begins with an object that is no hello is the dialect's, line by line to
// the end, and the native protocol goes on beside it.
func TestDialect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all parrot
		s := newServer(t, newService(t), Options{Dialect: all.open})
		p := pipe(t, s)
		time.Sleep(time.Hour) // such a client may connect long before it speaks
		p.send(`{"a":1}`)
		p.want(`{"a":1}`)
		p.send(``, `what`, `{"latchkey":1,"features":[]}`)
		p.want(``, `what`, `{"latchkey":1,"features":[]}`)
		native := pipe(t, s)
		native.open(``)
		p.nc.Close()
		synctest.Wait()
		if !all.gone(`{"a":1}`, ``, `what`, `{"latchkey":1,"features":[]}`, "drained") {
			t.Errorf("ended: %q", all.ended)
		}
		native.send(`{"n":2,"do":"ping"}`)
		native.want(`{"n":2,"ok":true}`)
		for _, first := range []string{`GET / HTTP/1.1`, `[]`, ``} {
			other := pipe(t, s)
			other.send(first)
			other.failure(0, lease.ErrProtocol, "")
			other.end()
		}
		slow := pipe(t, s)
		slow.nc.Write([]byte(`{"a"`))
		slow.failure(0, lease.ErrProtocol, "no hello within 10s")
		slow.end()
	})
}

// However a connection of the dialect ends, its handler is told, and only what is
// the client's fault or a defect has last words.
func TestDialectEnds(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		var all parrot
		s := newServer(t, newService(t), Options{Dialect: all.open})
		addr := listen(t, s, network)
		long := `{"x":"` + strings.Repeat("y", lease.MaxFrame) + `"}`
		for _, c := range []struct{ line, last string }{
			{`{"do":"panic"}`, "farewell internal"},
			{`{"do":"fail"}`, "farewell protocol"},
			{long, "farewell protocol"},
			{`{"do":"finish"}`, "last"},
			{`{"do":"cut"}`, ""},
		} {
			p := dial(t, addr)
			p.send(`{"hi":1}`)
			p.want(`{"hi":1}`)
			p.send(c.line)
			if c.last != "" {
				p.want(c.last)
			}
			p.end()
		}
		p := dial(t, addr)
		p.send(`{"stays":1}`)
		p.want(`{"stays":1}`)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		p.end()
		hi := `{"hi":1}`
		for _, want := range [][]string{{hi, `{"do":"panic"}`}, {hi, `{"do":"fail"}`}, {hi}, {hi, `{"do":"finish"}`}, {hi, `{"do":"cut"}`}, {`{"stays":1}`}} {
			if !all.gone(want...) {
				t.Errorf("%s: the handler was not told the end of %q", network, want)
			}
		}
		if n := len(all.ended); n != 6 {
			t.Errorf("%s: %d ends, want 6", network, n)
		}
	}
}

// A handler's frames from other goroutines reach a client that does nothing, and
// one that reads nothing is cut off.
func TestDialectSends(t *testing.T) {
	var peers = make(chan *Peer, 1)
	var all parrot
	s := newServer(t, newService(t), Options{Dialect: func(p *Peer) Handler {
		peers <- p
		return all.open(p)
	}})
	p := dial(t, listen(t, s, "tcp"))
	p.send(`{"hi":1}`)
	p.want(`{"hi":1}`)
	peer := <-peers
	peer.Send([]byte("sent\n"))
	p.want("sent")
	peer.Bring([]byte("brought\n"))
	peer.Settle()
	p.want("brought")
	frame := []byte(strings.Repeat("z", 64<<10) + "\n")
	for range lease.MaxUnsent/len(frame) + 200 {
		peer.Send(frame)
	}
	for {
		if _, err := p.in.ReadString('\n'); err != nil {
			if errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			return
		}
	}
}
