package tcpserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Timeouts of a connection.
const (
	helloTimeout  = 10 * time.Second // from connecting to the hello
	writeTimeout  = 10 * time.Second // for one write, less up to rearm
	rearm         = time.Second      // how often a write deadline is moved
	callTimeout   = 10 * time.Second // for the calls that wait for the service
	lingerTimeout = time.Second      // for a peer to read the last frame
	settleTimeout = time.Second      // for answers on their way when a peer has said all
)

// maxRefusing bounds the connections that are being told that they are too many.
const maxRefusing = 128

// Options configure a Server.
type Options struct {
	// Version of the program, told in the hello.
	Version string

	// MaxConnections is the number of connections served at a time. Zero means
	// lease.MaxConnections.
	MaxConnections int

	// Dialect makes the handler of a connection whose first line is a JSON object
	// but no hello. Nil refuses such connections.
	Dialect func(*Peer) Handler

	// Logger is told of defects and of what may need attention, and on the debug
	// level of each connection that was ended for cause. Nil discards.
	Logger *slog.Logger
}

// Server serves one service on any number of listeners and connections. Its
// methods are safe for concurrent use.
type Server struct {
	svc      lease.Service
	opts     Options
	log      *slog.Logger
	draining atomic.Bool

	mu        sync.Mutex // guards what follows
	hello     []byte     // the answer to a hello, once the service told its properties
	conns     map[*conn]struct{}
	sessions  map[string]*conn
	turns     map[string]*turn // of the sessions that are being resumed
	listeners map[net.Listener]struct{}
	refusing  int
	empty     chan struct{} // closed when the last connection is gone; nil until asked for
}

// New returns a server for svc. It does not close svc.
func New(svc lease.Service, o Options) *Server {
	if o.MaxConnections == 0 {
		o.MaxConnections = lease.MaxConnections
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		svc: svc, opts: o, log: o.Logger,
		conns:     make(map[*conn]struct{}),
		sessions:  make(map[string]*conn),
		turns:     make(map[string]*turn),
		listeners: make(map[net.Listener]struct{}),
	}
}

// Serve accepts connections until the listener or the server is closed, and
// returns nil then. It closes the listener.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	s.mu.Lock()
	if s.draining.Load() {
		s.mu.Unlock()
		return nil
	}
	s.listeners[l] = struct{}{}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	var pause time.Duration
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			go s.ServeConn(nc)
		case errors.Is(err, net.ErrClosed):
			return nil
		case temporary(err):
			// Out of file descriptors, most likely: what is being served goes on,
			// and those that connect wait in the backlog.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("cannot accept a connection; will try again", "error", err, "pause", pause)
			time.Sleep(pause)
		default:
			return fmt.Errorf("accept on %s: %w", l.Addr(), err)
		}
	}
}

func temporary(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

// ServeConn serves one connection until it ends, and closes it.
func (s *Server) ServeConn(nc net.Conn) {
	c := newConn(s, nc)
	switch err := s.admit(c); err {
	case nil:
		c.run()
		s.forget(c)
	default:
		s.refuse(c, err)
	}
}

// admit counts a connection in, or says why not.
func (s *Server) admit(c *conn) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.draining.Load():
		return &lease.Error{Code: lease.ErrClosed, Reason: "the server is shutting down"}
	case len(s.conns) >= s.opts.MaxConnections:
		return lease.Refuse("%d connections are open, no more are served (MaxConnections)", len(s.conns))
	}
	s.conns[c] = struct{}{}
	return nil
}

// refuse tells a connection why it is not served, unless too many are being told.
func (s *Server) refuse(c *conn, reason error) {
	s.mu.Lock()
	room := s.refusing < maxRefusing
	if room {
		s.refusing++
	}
	s.mu.Unlock()
	if room {
		c.lastWords(reason)
		s.mu.Lock()
		s.refusing--
		s.mu.Unlock()
	}
	c.nc.Close()
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if len(s.conns) == 0 && s.empty != nil {
		close(s.empty)
		s.empty = nil
	}
}

// adopt notes that c has the session now. A connection that had it until then
// has lost it to c and is ended. It is told why, so that a client that lives
// does not come back and take the session from c in turn.
func (s *Server) adopt(id string, c *conn) {
	s.mu.Lock()
	old := s.sessions[id]
	s.sessions[id] = c
	s.mu.Unlock()
	if old != nil && old != c {
		r := wire.Failure(0, "", &lease.Error{Code: lease.ErrSessionLost, Reason: "another connection resumed the session"})
		old.out.add(&r)
		old.out.finish()
	}
}

// disown reports whether c still had the session.
func (s *Server) disown(id string, c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[id] != c {
		return false
	}
	delete(s.sessions, id)
	return true
}

// greeting returns the answer to a hello. It is made when it is first needed,
// since the service is asked for its properties.
func (s *Server) greeting() []byte {
	s.mu.Lock()
	hello := s.hello
	s.mu.Unlock()
	if hello != nil {
		return hello
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	h := wire.Hello{Version: wire.Version, Server: "latchkey"}
	if s.opts.Version != "" {
		h.Server += " " + s.opts.Version
	}
	st, err := s.svc.Stats(ctx)
	if err != nil {
		s.log.Warn("the service did not tell its properties", "error", err)
		return wire.AppendHello(nil, &h)
	}
	h.Durability, h.Fencing = st.Durability, st.Fencing
	hello = wire.AppendHello(nil, &h)
	s.mu.Lock()
	s.hello = hello
	s.mu.Unlock()
	return hello
}

// Connections returns the number of connections being served.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Shutdown stops accepting, refuses new requests, waits until the service has
// answered those that are there, sends the answers and closes the connections.
// Close the service first or meanwhile: that is what answers the requests that
// wait. When ctx ends before, connections are closed as they are, as if the
// network had failed, and the error is ctx's. Sessions are not ended: their
// clients may resume them if the service outlives this server. A second call is
// harmless.
func (s *Server) Shutdown(ctx context.Context) error {
	s.mu.Lock()
	s.draining.Store(true)
	for l := range s.listeners {
		l.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	empty := make(chan struct{})
	switch {
	case len(s.conns) == 0:
		close(empty)
	case s.empty != nil:
		empty = s.empty
	default:
		s.empty = empty
	}
	s.mu.Unlock()

	for _, c := range conns {
		select {
		case <-c.out.answered(true):
		case <-ctx.Done():
		}
	}
	for _, c := range conns {
		c.out.finish()
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
	}
	for _, c := range conns {
		c.nc.Close()
	}
	<-empty
	return fmt.Errorf("close connections in order: %w", context.Cause(ctx))
}
