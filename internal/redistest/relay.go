package redistest

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A Direction is one way, or both, through a [Relay].
type Direction int

// Directions, as the client sees them.
const (
	Requests Direction = 1 << iota
	Replies
	Both = Requests | Replies
)

// A Relay passes connections on to a server and does to them what networks do. One
// process is given its address, so the others feel nothing of it. What it is told to
// do holds for the connections that are there and for those that come.
//
// A connection that cannot be passed on, because the server is away, is accepted and
// then closed.
type Relay struct {
	tb      testing.TB
	network string // of target
	target  string
	port    int
	running sync.WaitGroup

	accepted atomic.Int64
	requests atomic.Int64 // bytes passed on
	replies  atomic.Int64

	mu    sync.Mutex // guards ln and links
	ln    net.Listener
	links map[*link]struct{}

	// passing guards what follows. It is held for reading while bytes are passed on, so
	// that a change holds from the moment at which it was made.
	passing sync.RWMutex
	frozen  Direction
	dropped bool
	delay   time.Duration
	changed chan struct{} // closed and replaced at every change
}

// NewRelay listens on a port of its own until the end of the test and passes
// connections on to target, which is a host:port or the path of a unix socket.
func NewRelay(tb testing.TB, target string) *Relay {
	tb.Helper()
	ln, err := listen()
	if err != nil {
		tb.Fatal(err)
	}
	r := &Relay{tb: tb, network: "tcp", target: target, port: portOf(ln), links: make(map[*link]struct{}),
		changed: make(chan struct{})}
	if strings.HasPrefix(target, "/") {
		r.network = "unix"
	}
	tb.Cleanup(func() { r.Cut(); r.running.Wait() })
	r.open(ln)
	return r
}

// Addr is where the relay listens, as host:port. It stays the same.
func (r *Relay) Addr() string { return fmt.Sprintf("127.0.0.1:%d", r.port) }

// Cut closes all connections and refuses new ones, until Restore.
func (r *Relay) Cut() {
	r.mu.Lock()
	if r.ln != nil {
		r.ln.Close()
		r.ln = nil
	}
	r.mu.Unlock()
	r.Sever()
}

// Sever closes all connections and takes new ones.
func (r *Relay) Sever() {
	r.mu.Lock()
	links := r.links
	r.links = make(map[*link]struct{})
	r.mu.Unlock()
	for l := range links {
		l.close()
	}
}

// Restore takes connections again after Cut. It changes nothing else.
func (r *Relay) Restore() {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ln != nil {
		return
	}
	var ln net.Listener
	var err error
	for began := time.Now(); ; {
		if ln, err = listenOn(r.port); err == nil || time.Since(began) > patience {
			break
		}
		<-time.After(turn) // somebody else has found the port free, and tries it
	}
	if err != nil {
		r.tb.Fatalf("listen again as relay: %v", err)
	}
	r.openLocked(ln)
}

// Freeze keeps all connections open and passes nothing on, in one direction or both:
// not a byte after it has returned. A last chunk may still be read, then nothing, so
// that the sender's buffers fill. What is frozen already stays so. New connections are
// taken, and are as silent.
func (r *Relay) Freeze(d Direction) { r.change(func() { r.frozen |= d }) }

// Thaw passes on again what Freeze has held back, in the order in which it came.
func (r *Relay) Thaw() { r.change(func() { r.frozen = 0 }) }

// DropReplies takes what the server sends and throws it away, until it is told not
// to. What then comes may begin in the middle of a reply, so connections that were
// there are of use no more.
func (r *Relay) DropReplies(drop bool) { r.change(func() { r.dropped = drop }) }

// Delay passes everything on later by d in each direction, in its order. Up to 8 MiB
// are on their way at once.
func (r *Relay) Delay(d time.Duration) { r.change(func() { r.delay = d }) }

// Conns is the number of connections that are open.
func (r *Relay) Conns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.links)
}

// Accepted is the number of connections that there have been.
func (r *Relay) Accepted() int64 { return r.accepted.Load() }

// Bytes says how much has been passed on in each direction.
func (r *Relay) Bytes() (requests, replies int64) { return r.requests.Load(), r.replies.Load() }

func (r *Relay) change(do func()) {
	r.passing.Lock()
	defer r.passing.Unlock()
	do()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *Relay) open(ln net.Listener) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.openLocked(ln)
}

func (r *Relay) openLocked(ln net.Listener) {
	r.ln = ln
	r.running.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return // the listener is closed
			}
			r.take(ln, conn)
		}
	})
}

// take begins a link, unless the relay was cut since the connection came in.
func (r *Relay) take(ln net.Listener, client net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ln != ln {
		client.Close()
		return
	}
	l := &link{relay: r, client: client, end: make(chan struct{})}
	r.links[l] = struct{}{}
	r.accepted.Add(1)
	r.running.Go(l.run)
}

func (r *Relay) forget(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}
