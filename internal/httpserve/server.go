package httpserve

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/tally"
	"github.com/latchkey-go/latchkey/lease"
)

// Limits of this front end. The sizes and numbers that it shares with the other
// front ends are in package lease.
const (
	defaultTTL   = 5 * time.Second  // of a hold over HTTP: short, because nobody renews a forgotten one
	bodyTimeout  = 30 * time.Second // to send a request's body
	writeTimeout = 30 * time.Second // to take a reply, or the next event of a stream
	headTimeout  = 10 * time.Second // to send a request's header
	idleTimeout  = 2 * time.Minute  // between two requests of a connection
	lookTimeout  = 10 * time.Second // for the service to answer a listing or a count
	maxHeader    = 16 << 10         // bytes of a request's header: the longest key, escaped, and room
	maxStreams   = 256              // open status streams; watches are limited by the service
)

// Options configure a Server. The zero value serves loopback hosts only.
type Options struct {
	// Version is shown on the page, in /v1/stats and in the metrics.
	Version string

	// Hosts are host names or addresses, without port, that requests may name
	// besides loopback ones and the address that they arrive on.
	Hosts []string

	// Logger gets what cannot be answered to a caller. Nil discards it.
	Logger *slog.Logger

	// More returns what the status page shows of the broker besides what the
	// service knows: listeners, data directory. May be nil. It must not block.
	More func() []Row

	// Dialect returns what is known of live-mutex connections besides what the
	// service knows. May be nil where there are none. It must not block.
	Dialect func() tally.Extra
}

// Row is one line of what the status page shows of the broker.
type Row struct {
	Name  string
	Value string
}

// Server answers HTTP requests from a lease service. It is an http.Handler;
// Serve runs it with the timeouts and the limit on connections that it needs.
type Server struct {
	svc     lease.Service
	session lease.Session
	opts    Options
	log     *slog.Logger
	started time.Time   // as the wall had it, for display
	before  lease.Token // the newest one when this server started
	hosts   map[string]bool
	routes  map[string]map[string]route // by path, then method
	metrics *meters
	board   *board
	http    *http.Server

	closing   chan struct{} // closed first: streams end, new requests are refused
	gone      chan struct{} // closed when the session has ended: no callback comes any more
	closeOnce sync.Once

	clamps atomic.Uint64 // requests whose max was cut to lease.MaxHolders

	mu      sync.Mutex     // guards callers and streams
	callers map[string]int // callers that wait for a request, by its id
	streams int
}

// New opens a session for the holds taken over HTTP and returns a server for
// them. The error is the service's when it refuses the session.
func New(svc lease.Service, o Options) (*Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	st, err := svc.Stats(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the service where tokens stand: %w", err)
	}
	// No host and process: they would be this broker's, not the holder's.
	session, err := svc.Open(ctx, lease.SessionOptions{Name: "http"})
	if err != nil {
		return nil, fmt.Errorf("open the session for http: %w", err)
	}
	s := &Server{
		svc: svc, session: session, opts: o, log: o.Logger, started: time.Now(), before: st.LastToken,
		hosts:   allowedHosts(o.Hosts),
		closing: make(chan struct{}), gone: make(chan struct{}),
		callers: make(map[string]int),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.board = newBoard(svc)
	s.metrics = newMetrics(s)
	s.routes = make(map[string]map[string]route)
	for _, r := range s.table() {
		if s.routes[r.path] == nil {
			s.routes[r.path] = make(map[string]route)
		}
		s.routes[r.path][r.method] = r
	}
	s.http = &http.Server{
		Handler:           s,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	return s, nil
}

// Serve answers the connections of l until Close and then returns nil, or the
// error that l failed with. It takes l over. At most lease.MaxConnections are
// open at a time; further ones wait to be accepted.
func (s *Server) Serve(l net.Listener) error {
	err := s.http.Serve(limit(l, lease.MaxConnections))
	select {
	case <-s.closing:
		return nil
	default:
		return fmt.Errorf("serve http: %w", err)
	}
}

// Close refuses new requests, ends the streams, answers every request that
// waits with code "closed", and returns when the replies are written or after
// ten seconds. Holds live on until their ttl. The service stays open. A second
// Close is harmless.
func (s *Server) Close() error {
	var err error
	s.closeOnce.Do(func() {
		close(s.closing)
		ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
		defer cancel()
		ended := make(chan error, 1)
		s.session.Close(func(err error) { ended <- err })
		select {
		case err = <-ended:
			if lease.CodeOf(err) == lease.ErrClosed {
				err = nil // the service went first, and the session with it
			}
		case <-ctx.Done():
			err = fmt.Errorf("close the session for http: %w", ctx.Err())
		}
		close(s.gone)
		if e := s.http.Shutdown(ctx); e != nil {
			s.http.Close()
			if err == nil {
				err = fmt.Errorf("close http: %w", e)
			}
		}
	})
	return err
}

// limit makes a listener accept no connection while n are open.
func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{})}
}

type limited struct {
	net.Listener
	slots  chan struct{} // one element per open connection
	closed chan struct{}
	once   sync.Once
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &slot{Conn: c, free: func() { <-l.slots }}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// slot gives its place back when it is closed, once.
type slot struct {
	net.Conn
	once sync.Once
	free func()
}

func (c *slot) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.free)
	return err
}
