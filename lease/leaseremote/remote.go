package leaseremote

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Options say how to reach a broker. The zero value is usable.
type Options struct {
	// Dial opens a connection instead of the default, which dials the address
	// with TCP or as a unix socket. It must return when ctx ends.
	Dial func(ctx context.Context) (net.Conn, error)

	// DialTimeout bounds one attempt to connect and to be greeted, within ctx.
	// Zero means 3 s. A session in a hurry to resume gives each attempt less.
	DialTimeout time.Duration

	// Logger gets what cannot be returned: broken connections and lost
	// sessions. Nil discards it.
	Logger *slog.Logger

	lend  bool          // tests: let callers read in-memory connections too
	sleep *asleep.Clock // tests: how long the machine has slept; nil asks the system
}

// defaultDialTimeout lets one lost packet of a handshake be repeated.
const defaultDialTimeout = 3 * time.Second

// Service is a lease.Service behind a broker. Its sessions and watches outlive
// broken connections; see the package comment.
type Service struct {
	addr string
	opts Options
	log  *slog.Logger
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	side *side
	kept sync.WaitGroup // the keepers
	idle sync.Pool      // *call, for reuse

	mu       sync.Mutex // guards what follows
	closed   bool
	spare    *link // greeted and not used yet
	sessions map[*session]struct{}
}

var _ lease.Service = (*Service)(nil)

// Dial connects to the broker at addr: "host:port", or "unix:" and the path of a
// socket. With Options.Dial set, addr only names the broker in errors. The
// context bounds the connecting alone. The error is ErrUnavailable when nobody
// answers, ErrProtocol when it is not a broker.
func Dial(ctx context.Context, addr string, o Options) (*Service, error) {
	network, target, err := splitAddress(addr)
	if err != nil && o.Dial == nil {
		return nil, err
	}
	if o.Dial == nil {
		o.Dial = func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, network, target)
		}
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = defaultDialTimeout
	}
	if o.sleep == nil {
		o.sleep = &asleep.Clock{}
	}
	v := &Service{addr: addr, opts: o, log: o.Logger, sessions: make(map[*session]struct{})}
	if v.log == nil {
		v.log = slog.New(slog.DiscardHandler)
	}
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.side = newSide(v)
	attempt, cancel := context.WithTimeout(ctx, o.DialTimeout)
	defer cancel()
	if v.spare, err = v.connect(attempt); err != nil {
		v.stop()
		return nil, v.unreachable("dial", err)
	}
	return v, nil
}

// splitAddress tells the two kinds of address apart.
func splitAddress(addr string) (network, target string, err error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		if path == "" {
			return "", "", lease.Refuse("address %q has no path after unix:", addr)
		}
		return "unix", path, nil
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
		return "", "", lease.Refuse("address %q is neither host:port nor unix:/path", addr)
	}
	return "tcp", addr, nil
}

// unreachable makes the error for a connection that could not be made. What the
// broker itself answered stays as it is.
func (v *Service) unreachable(op string, err error) error {
	if x, ok := err.(*lease.Error); ok {
		if x.Op == "" {
			x.Op = op
		}
		return x
	}
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed { // Close cut the connection
		return &lease.Error{Code: lease.ErrClosed, Op: op, Reason: "the service was closed", Cause: err}
	}
	return &lease.Error{Code: lease.ErrUnavailable, Op: op, Reason: "no broker reached at " + v.addr, Cause: err}
}

// connect opens a connection and exchanges hellos.
func (v *Service) connect(ctx context.Context) (*link, error) {
	conn, err := v.opts.Dial(ctx)
	if err != nil {
		return nil, err
	}
	l := newLink(conn)
	l.lends = l.lends || v.opts.lend
	if err := l.hello(ctx); err != nil {
		return nil, l.close(err)
	}
	return l, nil
}

// first returns a connection for a first use: the spare one, if it is there.
func (v *Service) first(ctx context.Context) (*link, error) {
	v.mu.Lock()
	l := v.spare
	v.spare = nil
	v.mu.Unlock()
	if l != nil {
		return l, nil
	}
	return v.connect(ctx)
}

// Open begins or resumes a session on a connection of its own. It makes one
// attempt within ctx and Options.DialTimeout; ErrUnavailable means that the
// broker was not reached. See lease.Service.
//
// A session that another connection resumes answers everything with
// ErrSessionLost from then on, has a deadline that has passed, and is not told of
// losses any more; it does not take the session back.
func (v *Service) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	if err := o.Check(); err != nil {
		return nil, v.unreachable("open", err)
	}
	if o.Grace == 0 {
		o.Grace = lease.DefaultGrace
	}
	s := newSession(v, o)
	if err := v.adopt(s); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, v.opts.DialTimeout)
	defer cancel()
	l, err := s.begin(ctx)
	if err != nil {
		s.Suspend()
		v.forget(s)
		v.kept.Done()
		return nil, v.unreachable("open", err)
	}
	go s.keep(l)
	return s, nil
}

// adopt makes a session known to Close.
func (v *Service) adopt(s *session) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return &lease.Error{Code: lease.ErrClosed, Op: "open", Reason: "the service was closed"}
	}
	v.sessions[s] = struct{}{}
	v.kept.Add(1)
	return nil
}

func (v *Service) forget(s *session) {
	v.mu.Lock()
	delete(v.sessions, s)
	v.mu.Unlock()
}

// Close says goodbye for every session, which releases holds that are not
// detached, answers what waits with ErrClosed, and closes all connections. It
// takes at most about a second when the broker does not answer. It must not be
// called from a callback.
func (v *Service) Close() error {
	v.mu.Lock()
	v.closed = true
	l := v.spare
	v.spare = nil
	sessions := make([]*session, 0, len(v.sessions))
	for s := range v.sessions {
		sessions = append(sessions, s)
	}
	v.mu.Unlock()
	if l != nil {
		l.close(errStopped)
	}
	for _, s := range sessions {
		s.leave() // before any of them releases what another one waits for
	}
	for _, s := range sessions {
		s.Close(nil)
	}
	v.side.close()
	v.kept.Wait()
	v.stop()
	return nil
}

// hello exchanges first frames.
func (l *link) hello(ctx context.Context) error {
	stop := l.abortWith(ctx)
	defer stop()
	if _, err := l.conn.Write(wire.AppendHello(nil, &wire.Hello{Version: wire.Version})); err != nil {
		return err
	}
	line, err := l.in.Next()
	if err == wire.ErrTooLong {
		return &lease.Error{Code: lease.ErrProtocol, Reason: "what answers is no broker: its first line does not end"}
	}
	if err != nil {
		return err
	}
	_, err = wire.DecodeHelloReply(line)
	return err
}

// abortWith breaks the connection when ctx ends before stop is called.
func (l *link) abortWith(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { l.fail(context.Cause(ctx)) })
}

// ask sends one request and waits for its answer, on a connection that nobody
// else uses yet. take gets the frames that come before the answer.
func (l *link) ask(ctx context.Context, req *wire.Request, take func(*wire.Reply)) (wire.Reply, error) {
	stop := l.abortWith(ctx)
	defer stop()
	var r wire.Reply
	if _, err := l.conn.Write(wire.AppendRequest(nil, req)); err != nil {
		return r, err
	}
	for {
		line, err := l.next()
		if err != nil {
			return r, err
		}
		if err := wire.DecodeReply(line, &r); err != nil {
			return r, err
		}
		switch {
		case r.Kind == wire.Failed && (r.N == req.N || r.N == 0):
			return r, r.Err()
		case r.Kind == wire.OK && r.N == req.N:
			return r, nil
		}
		if take != nil {
			take(&r)
		}
	}
}
