package tcpserve

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// hello is what a client says first.
const hello = `{"latchkey":1,"features":[]}`

// newService opens a service in memory that the test closes.
func newService(t *testing.T) lease.Service {
	t.Helper()
	svc, err := leaselocal.Open(leaselocal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return svc
}

// newDurable opens a service with a journal: its callbacks come from a loop of its
// own, after a sync.
func newDurable(t *testing.T) lease.Service {
	t.Helper()
	svc, err := leaselocal.Open(leaselocal.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { svc.Close() })
	return svc
}

// newServer starts a server over svc that the test shuts down.
func newServer(t *testing.T, svc lease.Service, o Options) *Server {
	t.Helper()
	s := New(svc, o)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s
}

// peer is the client's end of a connection, line by line.
type peer struct {
	t  *testing.T
	nc net.Conn
	in *bufio.Reader
}

func newPeer(t *testing.T, nc net.Conn) *peer {
	t.Cleanup(func() { nc.Close() })
	return &peer{t: t, nc: nc, in: bufio.NewReaderSize(nc, 2<<20)}
}

// pipe connects to the server in memory.
func pipe(t *testing.T, s *Server) *peer {
	t.Helper()
	client, server := net.Pipe()
	go s.ServeConn(server)
	return newPeer(t, client)
}

// send writes lines. Over a pipe a write ends when it was read, so that this
// must not happen while the server waits to be read itself.
func (p *peer) send(lines ...string) {
	p.t.Helper()
	if _, err := p.nc.Write([]byte(strings.Join(lines, "\n") + "\n")); err != nil {
		p.t.Fatalf("send %.80q: %v", lines, err)
	}
}

// line reads one line.
func (p *peer) line() string {
	p.t.Helper()
	line, err := p.in.ReadString('\n')
	if err != nil {
		p.t.Fatalf("read: %v (got %.80q)", err, line)
	}
	return strings.TrimSuffix(line, "\n")
}

// want reads one line and compares it. A * stands for a run of what varies.
func (p *peer) want(patterns ...string) {
	p.t.Helper()
	for _, pattern := range patterns {
		if got := p.line(); !match(pattern, got) {
			p.t.Fatalf("got  %s\nwant %s", got, pattern)
		}
	}
}

// end checks that the server has closed the connection.
func (p *peer) end() {
	p.t.Helper()
	if line, err := p.in.ReadString('\n'); err == nil {
		p.t.Fatalf("got %s, want the end of the connection", line)
	}
}

// match compares text with a pattern in which * stands for anything.
func match(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for _, part := range parts[1 : len(parts)-1] {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return strings.HasSuffix(text, parts[len(parts)-1])
}

// greet exchanges hellos.
func (p *peer) greet() *peer {
	p.t.Helper()
	p.send(hello)
	p.want(`{"latchkey":1,"features":[],"server":"latchkey*","durability":"*","fencing":"*"}`)
	return p
}

// open begins a session and returns its id.
func (p *peer) open(fields string) string {
	p.t.Helper()
	p.greet()
	p.send(`{"n":1,"do":"open"` + fields + `}`)
	line := p.line()
	_, rest, ok := strings.Cut(line, `{"n":1,"ok":true,"session":"`)
	if !ok {
		p.t.Fatalf("open: %s", line)
	}
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

// state lists every key of a service, without what changes by itself.
func state(t *testing.T, svc lease.Service) string {
	t.Helper()
	l, err := svc.List(context.Background(), lease.Query{Limit: lease.MaxListed})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, k := range l.Keys {
		fmt.Fprintf(&b, "%s:", k.Key)
		for _, h := range k.Holders {
			fmt.Fprintf(&b, " %s/%d", h.Session, h.Token)
		}
		fmt.Fprintf(&b, " +%d\n", k.Waiting)
	}
	return b.String()
}

// eventually waits for something that other goroutines of the real world bring
// about.
func eventually(t *testing.T, otherwise string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !done() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal(otherwise)
		}
	}
}
