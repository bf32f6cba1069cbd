// Package rmapredis keeps replicated maps in a Redis, for all processes that use it: the [rmap.Store] for programs that
// are many processes. It needs Redis 7.0 or later, or a server like it, without Redis Cluster.
//
//	store, err := rmapredis.Open(ctx, "redis://localhost:6379", rmapredis.Options{})
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//
// Certificates are given in [Options].TLS. Whoever needs other settings of the connection makes the client and gives it
// to [New].
//
// Every change of a map is one call of a script, which writes, numbers and broadcasts it in one atomic step. What is
// stored and sent begins with a version of the format: a process that meets a newer one refuses to write, and says so
// of what it cannot read. Scripts of other packages can change maps in an atomic step of their own: see [NewScript].
//
// Changes come over one connection for all maps of a store. It is trusted as long as it answers: see
// [Options.Heartbeat].
//
// What a user of the server must be allowed to do is in docs/rmap.md, where a test tries it.
package rmapredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/internal/redisfeed"
	"github.com/latchkey-go/latchkey/rmap"
)

// Defaults of [Options].
const (
	DefaultPrefix    = "latchkey:map:"
	DefaultTimeout   = 5 * time.Second
	DefaultHeartbeat = time.Second
	DefaultPong      = time.Second
)

// Options of a store. The zero value is what most want.
type Options struct {
	// Prefix is what the names of all keys and channels begin with; empty is [DefaultPrefix]. It has no braces.
	Prefix string
	// Timeout is how long a write or one chunk of a scan may take when its context has no deadline, and how long
	// [Open] waits for a connection; 0 is [DefaultTimeout].
	Timeout time.Duration
	// Heartbeat is how often the connection for changes is asked for a sign of life, and Pong how long that may take,
	// or the answer to [rmap.Feed.Head]. One that went silent is noticed within their sum. 0 is one second each.
	Heartbeat, Pong time.Duration
	// Database is the number of the database that the client of [New] has selected. Channels are shared by all databases
	// of a server, so it is part of their names. [Open] takes it from the URL.
	Database int
	// TLS, for Open with a rediss:// URL, says which certificates are trusted and shown; nil trusts those of the system.
	TLS *tls.Config
	// Logger is told of connections made and lost; nil is silent. Keys and values are never logged.
	Logger *slog.Logger

	version int // of the format to write; tests act as a later process with it
}

// A Store has maps in a Redis. It implements [rmap.Store]; [Open] and [New] make one.
type Store struct {
	client rueidis.Client
	own    bool // whether the client ends with the store
	hub    *redisfeed.Hub
	writer *Script // for every write
	setter *Script // for the usual one
	o      Options
	closed atomic.Bool
}

var _ rmap.Store = (*Store)(nil)

// Open connects to the Redis at a URL:
//
//	redis://user:password@host:port/database
//	rediss://user:password@host:port/database    with TLS, verified by the certificates of the system
//	unix://user:password@/path/of/the.sock?db=0
//
// An error wraps [rmap.ErrUnavailable] when the server did not answer or let nobody in, and [rmap.ErrInvalid] when the
// URL or an option is none.
func Open(ctx context.Context, address string, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("rmapredis: open: %w", err)
	}
	client, database, err := redisfeed.Dial(ctx, address, redisfeed.DialOptions{Timeout: o.Timeout, TLS: o.TLS})
	if err != nil {
		return nil, fmt.Errorf("rmapredis: open: %w", dialError(err))
	}
	o.Database = database
	s, err := New(client, o)
	if err != nil {
		client.Close()
		return nil, err
	}
	s.own = true
	return s, nil
}

// dialError translates what is wrong with a server or a client.
func dialError(err error) error {
	if errors.Is(err, redisfeed.ErrInvalid) {
		return fmt.Errorf("%w: %w", rmap.ErrInvalid, err)
	}
	return fmt.Errorf("%w: %w", rmap.ErrUnavailable, err)
}

// New returns a store over a client of the caller's, which has to outlive it. The client must speak RESP3, which it
// does unless told otherwise, read from no replicas, and, so that no write is done twice, have no ConnLifetime.
func New(client rueidis.Client, o Options) (*Store, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := redisfeed.Check(client); err != nil {
		return nil, fmt.Errorf("rmapredis: %w", dialError(err))
	}
	hub := redisfeed.New(client, redisfeed.Options{Heartbeat: o.Heartbeat, Timeout: o.Pong, Logger: o.Logger})
	return &Store{client: client, hub: hub, o: o,
		writer: NewScript(writeBody), setter: &Script{lua: rueidis.NewLuaScript(source(setFirst, setBody))}}, nil
}

// Close ends the store: no follower is called any more, and every call fails with [rmap.ErrClosed]. The client is
// closed with it if [Open] made it. A second Close is harmless.
func (s *Store) Close() {
	if s.closed.Swap(true) {
		return
	}
	s.hub.Close()
	if s.own {
		s.client.Close()
	}
}

func (o Options) withDefaults() (Options, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if strings.ContainsAny(o.Prefix, "{}") {
		return o, fmt.Errorf("rmapredis: %w: the prefix %q has braces, which are around the name of the map", rmap.ErrInvalid, o.Prefix)
	}
	for _, d := range []struct {
		name string
		of   *time.Duration
		is   time.Duration
	}{
		{"Timeout", &o.Timeout, DefaultTimeout}, {"Heartbeat", &o.Heartbeat, DefaultHeartbeat}, {"Pong", &o.Pong, DefaultPong},
	} {
		switch {
		case *d.of < 0:
			return o, fmt.Errorf("rmapredis: %w: the option %s is negative", rmap.ErrInvalid, d.name)
		case *d.of == 0:
			*d.of = d.is
		}
	}
	if o.version == 0 {
		o.version = format
	}
	return o, nil
}
