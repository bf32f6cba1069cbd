// Package hotcacheredis keeps the items of a cache in a Redis, for all processes that use it: the [hotcache.Node] for
// programs that are many processes. It needs Redis 7.0 or later, or a server like it, without Redis Cluster; for more
// than one server give a cache a node for each.
//
//	node, err := hotcacheredis.Open(ctx, "redis://localhost:6379", hotcacheredis.Options{Namespace: "prices"})
//	if err != nil {
//		return err
//	}
//	defer node.Close()
//	cache, err := hotcache.New(loadPrice, hotcache.Options[int64, Price]{
//		Nodes: []hotcache.NamedNode{{Name: "a", Node: node}},
//	})
//
// Whatever is asked of a node is one script or command, which decides and answers in one atomic step, by the server's
// clock. Invalidations come over one connection, which is trusted as long as it answers: see [Options.Heartbeat].
//
// # What a server may lose
//
// A Redis may evict what it likes: an item that is gone is a miss, a lease that is gone is a load that is not stored. Of
// the floors it cannot forget one without forgetting the generation, so that all loads go to the primary for a while; a
// list of members that is gone makes writers wait for as long as anybody may trust his memory. A server that was started
// again, with old data or none, or a replica that was made the primary, begins a generation too.
//
// What it cannot know: that its clock was set forward (strict invalidations may then not wait for all, for as long as
// [hotcache.Options.Trust], and by more than [hotcache.Rules.FloorTTL] floors are forgotten too early); that it was cut
// off, and another server is the primary by now; and, for as long as connections last, that a server which was the
// primary before, and was not started again since, is the primary once more.
//
// Bound the memory of the server with maxmemory, and give it the policy allkeys-lru or allkeys-lfu: floors and leases
// are in constant use, so that they are the last to go. Where nothing is evicted, a full server still takes
// invalidations, and stores no items.
//
// docs/hotcache.md has the permissions that a user of the server needs, and what to do when nodes are added.
package hotcacheredis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redisfeed"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

// Defaults and limits of [Options].
const (
	DefaultPrefix    = "latchkey:cache:"
	DefaultNamespace = "default"
	DefaultTimeout   = time.Second
	DefaultHeartbeat = time.Second
	DefaultPong      = time.Second

	// MaxNamespace is the length of a namespace in bytes.
	MaxNamespace = 512
	// MaxMembers is how many processes may trust their memory at the same time. Others work too, without it.
	MaxMembers = 4096
	// MaxTell is the length in bytes of what one member may tell others.
	MaxTell = 1 << 20
)

// Options of a node. The zero value is what most want.
type Options struct {
	// Namespace tells caches in one server apart: those whose keys or values are of another kind need another one. Empty
	// is [DefaultNamespace]. It has no braces.
	Namespace string
	// Prefix is what the names of all keys and channels begin with; empty is [DefaultPrefix]. It has no braces.
	Prefix string
	// Rules are those that all processes share; of zero ones, [hotcache.DefaultRules]. MaxItems and MaxBytes are of no
	// meaning here: the server has a limit of its own.
	Rules hotcache.Rules
	// Timeout is how long an answer may take when the context has no deadline, and how long [Open] waits for a
	// connection; 0 is [DefaultTimeout].
	Timeout time.Duration
	// Heartbeat is how often the connection for invalidations is asked for a sign of life, and Pong how long that may
	// take; 0 is one second each.
	Heartbeat, Pong time.Duration
	// TLS, for Open with a rediss:// URL, says which certificates are trusted and shown; nil trusts those of the system.
	TLS *tls.Config
	// Logger is told of connections made and lost; nil is silent. Keys and values are never logged.
	Logger *slog.Logger

	version  int  // of the format to write; tests act as a later process with it
	together bool // has reads look as if others were under way, for tests
}

// What may be wrong with a server, besides that it does not answer; to be matched with [errors.Is].
var (
	// ErrUnavailable: the server did not answer, or refused.
	ErrUnavailable = errors.New("redis is unavailable")
	// ErrFormat: what is stored was written by a newer version of this package. Upgrade this process.
	ErrFormat = errors.New("newer format")
	// ErrForeign: what is stored where a cache should be was not written by this package.
	ErrForeign = errors.New("not written by a cache")
)

// A Node keeps items in a Redis. It implements [hotcache.Node]; [Open] and [New] make one.
type Node struct {
	client  rueidis.Client
	own     bool // whether the client ends with the node
	hub     *redisfeed.Hub
	o       Options
	keys    keys
	scripts scripts
	trust   atomic.Int64 // the longest for which a member of this process trusts its memory
	closed  atomic.Bool

	life  context.Context // ends with Close
	end   context.CancelFunc
	one   chan struct{} // holds whoever gives the server the scripts
	loads atomic.Uint64 // how often that was done
	looks looker
}

var _ hotcache.Node = (*Node)(nil)

// Open connects to the Redis at a URL:
//
//	redis://user:password@host:port/database
//	rediss://user:password@host:port/database    with TLS, verified by the certificates of the system
//	unix://user:password@/path/of/the.sock?db=0
//
// A server that is away is no error: the node then is one that does not answer yet, past which a cache goes, and is there
// when its server is. So a program starts whether its cache is there or not; one that is to wait calls [Node.Ready].
// Nor is it an error of anybody when a server goes away later. Open takes no longer than Options.Timeout twice, and less
// if the deadline of the context is before.
//
// What nobody mends by waiting is an error at once: [hotcache.ErrInvalid] for a URL or an option that is none, and for a
// Redis Cluster; [ErrUnavailable] for a password, a permission or a certificate that is refused, and a server that is too
// old; [ErrForeign] and [ErrFormat] for what is stored there.
func Open(ctx context.Context, address string, o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("hotcacheredis: open: %w", err)
	}
	client, _, away := redisfeed.Dial(ctx, address, redisfeed.DialOptions{Timeout: o.Timeout, TLS: o.TLS, Later: true})
	if client == nil {
		return nil, fmt.Errorf("hotcacheredis: open: %w", dialError(away))
	}
	n, err := New(client, o)
	if err != nil {
		client.Close()
		return nil, err
	}
	n.own = true
	if away == nil {
		away = n.meet(ctx)
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		away = ctx.Err()
	}
	if away != nil && !redisfeed.Away(away) {
		n.Close()
		return nil, fmt.Errorf("hotcacheredis: open: %w", dialError(away))
	}
	if away != nil {
		o.Logger.Warn("the server of a cache node is away; the node begins without it", "namespace", o.Namespace, "error", away)
	}
	return n, nil
}

// meet sees that the server has been looked at once, and has the scripts.
func (n *Node) meet(ctx context.Context) error {
	if n.loads.Load() > 0 {
		return nil
	}
	ctx, cancel := redistext.Limited(ctx, n.o.Timeout)
	defer cancel()
	return n.load(ctx, 0)
}

// Ready waits until the server answers. It gives up when the context ends, with the last reason, and at once when that is
// none which waiting helps against: see [Open].
func (n *Node) Ready(ctx context.Context) error {
	pause := time.NewTicker(readyPause)
	defer pause.Stop()
	for why := error(nil); ; {
		err := n.open(ctx)
		if err == nil {
			if err = n.answers(ctx); err == nil {
				return nil
			}
		}
		if why == nil || ctx.Err() == nil { // the end of the context says less than what was before
			why = fmt.Errorf("hotcacheredis: wait for the server: %w", dialError(err))
		}
		if n.closed.Load() {
			return fmt.Errorf("hotcacheredis: wait for the server: %w", hotcache.ErrClosed)
		}
		if ctx.Err() == nil && !redisfeed.Away(err) {
			return why
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", why, context.Cause(ctx))
		case <-n.life.Done():
		}
	}
}

// readyPause is how often the server is asked by who waits for it.
const readyPause = 50 * time.Millisecond

// answers asks the server for anything.
func (n *Node) answers(ctx context.Context) error {
	if err := n.meet(ctx); err != nil {
		return err
	}
	ctx, cancel := redistext.Limited(ctx, n.o.Timeout)
	defer cancel()
	return n.client.Do(ctx, n.client.B().Ping().Build()).Error()
}

// New returns a node over a client of the caller's, which has to outlive it. The client must speak RESP3, which it does
// unless told otherwise, and read from no replicas. Give it DisableCache, since nothing is cached by it, and DisableRetry,
// or a node that is out is found out late.
func New(client rueidis.Client, o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := redisfeed.Check(client); err != nil {
		return nil, fmt.Errorf("hotcacheredis: %w", dialError(err))
	}
	k := keys{o.Prefix + "{" + o.Namespace + "}"}
	n := &Node{client: client, o: o, keys: k, scripts: newScripts(k.base), one: make(chan struct{}, 1)}
	n.life, n.end = context.WithCancel(context.Background())
	n.trust.Store(int64(time.Second)) // until it is known better
	n.hub = redisfeed.New(client, redisfeed.Options{Heartbeat: o.Heartbeat, Timeout: o.Pong,
		Logger: o.Logger.With("namespace", o.Namespace)})
	return n, nil
}

// Close ends the node: no listener is called any more, and every call fails with [hotcache.ErrClosed]. The client is
// closed with it if [Open] made it. A second Close is harmless.
func (n *Node) Close() {
	if n.closed.Swap(true) {
		return
	}
	n.end()
	n.hub.Close()
	n.looks.mu.Lock()
	//lint:ignore SA2001 whoever looks together after this sees that it is closed, and is quick
	n.looks.mu.Unlock()
	n.looks.idle.Wait()
	n.one <- struct{}{} // nobody is in the middle of giving scripts any more, nor will be
	if n.own {
		n.client.Close()
	}
}
