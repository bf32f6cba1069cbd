package lmx

import (
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

const (
	// brokerVersion is the version of the protocol that is spoken, as live-mutex
	// numbers its packages.
	brokerVersion = "0.2.27"

	defaultTTL = 5 * time.Second // where a request has none, as live-mutex brokers have it

	// askAgain is how long a grant from the queue may stay unacknowledged, by a
	// client that acknowledges, before it is sent once more.
	askAgain = 500 * time.Millisecond

	// mismatchTime is how long a client of another version may take to confirm
	// that it was told so.
	mismatchTime = 2 * time.Second

	callTimeout = 10 * time.Second // for calls that wait for the service
)

// Peer is a connection to a client. Its methods may be called from any goroutine
// and do not wait for the client.
type Peer interface {
	// Send sends a frame soon.
	Send(frame []byte)
	// Bring sends a frame from a callback of the session; Settle follows.
	Bring(frame []byte)
	// Settle sends what was brought.
	Settle()
	// Finish closes the connection once all is sent.
	Finish()
	// Cut closes it at once.
	Cut()
	// RemoteAddr is where the client is.
	RemoteAddr() net.Addr
}

// Server serves one lease service to any number of connections. Its methods are
// safe for concurrent use.
type Server struct {
	svc    lease.Service
	log    *slog.Logger
	clamps atomic.Uint64

	mu       sync.Mutex // guards what follows, and the fields of Conn and request that say so
	clients  int
	opened   int // of those, how many have a session
	readers  int // counted in monitors
	keys     map[string]*key
	ids      map[string]*request // what is held, by id; more of the same id are twins
	ended    ended
	unacked  unacked
	reminder *time.Timer // of the oldest in unacked
}

// New returns a server for svc, which it does not close. A nil logger discards.
func New(svc lease.Service, log *slog.Logger) *Server {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{svc: svc, log: log, keys: map[string]*key{}, ids: map[string]*request{}}
}

// Open begins a connection.
func (s *Server) Open(p Peer) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	return &Conn{srv: s, peer: p, reqs: map[string]*request{}}
}

// Counts are what a server knows beyond the service's statistics.
type Counts struct {
	Clients     int    // connections
	Sessionless int    // of those, how many have no session of the service yet
	Readers     int    // readers counted by monitors, over all keys
	Clamps      uint64 // requests whose max was cut to lease.MaxHolders
}

// Counts returns the present counts.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Counts{Clients: s.clients, Sessionless: s.clients - s.opened, Readers: s.readers, Clamps: s.clamps.Load()}
}
