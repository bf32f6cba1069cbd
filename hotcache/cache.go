package hotcache

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// A Cache reads rows through this process's memory, the nodes and the loader, in that order. It is safe for use by
// several goroutines.
type Cache[K comparable, V any] struct {
	loader  Loader[K, V]
	o       Options[K, V]
	me      Member
	ring    *core.Ring
	nodes   []*nodeLink
	memory  *memory[K, V] // nil keeps nothing
	samples *sampler[K]
	log     *slog.Logger
	start   time.Time

	life context.Context // ends with Close; loads and whatever else is under way end with it
	end  context.CancelFunc
	busy sync.WaitGroup // everything that was started and must end before Close returns

	mu     sync.Mutex // guards what follows; never held while a node or the loader is waited for
	closed bool
	front  *core.Front
	hot    *core.Hot
	reads  map[core.ReadID]*reader[V]
	lastID core.ReadID
	alarm  *time.Timer // of the core's next deadline
	stats  stats
}

// A reader waits for one answer.
type reader[V any] struct {
	done chan answer[V] // has room for it
}

type answer[V any] struct {
	value   V
	version Version
	absent  bool
	outcome core.Outcome
	err     error
}

// New returns a cache in front of a loader. Call [Cache.Close] when done.
func New[K comparable, V any](loader Loader[K, V], o Options[K, V]) (*Cache[K, V], error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("hotcache: %w", err)
	}
	if loader == nil {
		return nil, fmt.Errorf("hotcache: %w: the loader is nil", ErrInvalid)
	}
	if len(o.Nodes) == 0 {
		o.Nodes = []NamedNode{{Name: "embedded", Node: NewEmbedded(o.Rules)}}
	}
	c := &Cache[K, V]{
		loader: loader, o: o, me: Member(rand.Text()), log: o.Logger, start: time.Now(),
		reads: map[core.ReadID]*reader[V]{}, samples: newSampler[K](), stats: stats{peeked: newTally()},
	}
	if err := c.connect(); err != nil {
		return nil, fmt.Errorf("hotcache: %w", err)
	}
	return c, nil
}

// connect makes the ring and follows every node.
func (c *Cache[K, V]) connect() error {
	names := make([]string, len(c.o.Nodes))
	seen := map[string]bool{}
	for i, n := range c.o.Nodes {
		if n.Name == "" || n.Node == nil || seen[n.Name] {
			return fmt.Errorf("%w: node %d has no name, the name of another, or no Node", ErrInvalid, i)
		}
		seen[n.Name], names[i] = true, n.Name
	}
	c.ring = core.NewRing(names)
	c.life, c.end = context.WithCancel(context.Background())
	c.memory = newMemory[K, V](c.o.MemoryEntries, c.o.MemoryBytes, func() { c.stats.evicted.Add(1) })
	set := c.o.settings()
	random := mathrand.New(mathrand.NewPCG(mathrand.Uint64(), mathrand.Uint64()))
	c.hot = core.NewHot(c.now(), core.HotSettings{
		Me: string(c.me), Ring: c.ring, Copies: c.o.Copies, Share: c.o.HotShare, Window: c.o.HotWindow,
	}, random)
	set.Home, set.Hot = c.ring.Owner, c.hot
	c.front = core.NewFront(len(names), set, random)
	c.alarm = time.AfterFunc(time.Hour, c.tick)
	c.alarm.Stop()
	for i, n := range c.o.Nodes {
		c.nodes = append(c.nodes, newNodeLink(i, n))
	}
	for _, n := range c.nodes {
		feed, err := n.node.Follow(c.me, &listener[K, V]{c, n})
		if err != nil {
			c.Close()
			return fmt.Errorf("node %q: %w", n.name, err)
		}
		n.feed = feed
		c.busy.Add(2)
		go c.tend(n)
		go c.acknowledge(n)
	}
	c.busy.Add(1)
	go c.watch()
	return nil
}

// now is the cache's own clock.
func (c *Cache[K, V]) now() time.Duration { return time.Since(c.start) }

// Get returns the value under a key, from this process's memory, the key's node or the loader. A read that begins after
// an [Cache.Invalidate] of the key has returned, in whatever process, never gets an older version: see there.
//
// The error wraps [ErrNotFound] when there is no such row, what the loader returned when that failed in this process, and
// [ErrLoadFailed] when it was another; [ErrOutdated] and [ErrOverloaded] have their reasons. The end of the context is
// that of the caller alone, the load goes on. What the value points at is shared with all who read it: do not change it.
func (c *Cache[K, V]) Get(ctx context.Context, key K) (V, error) {
	if c.memory != nil {
		if r, ok := c.memory.get(key, c.start); ok {
			c.samples.count(c.samples.hits, key)
			if !r.absent {
				return r.value, nil
			}
			return r.value, c.notFound(key)
		}
	}
	c.samples.count(c.samples.others, key)
	v, _, err := c.read(ctx, key, 0)
	return v, err
}

// GetVersion is Get that returns the version too, also of a row that does not exist. Without versions of the loader it
// means nothing.
func (c *Cache[K, V]) GetVersion(ctx context.Context, key K) (V, Version, error) {
	return c.GetAtLeast(ctx, key, 0)
}

// GetAtLeast is Get that returns no version below min: the one that the reader has seen, or written, elsewhere. [Fresh]
// loads the row in any case.
func (c *Cache[K, V]) GetAtLeast(ctx context.Context, key K, min Version) (V, Version, error) {
	if c.memory != nil && min != Fresh {
		if r, ok := c.memory.get(key, c.start); ok && r.version >= min {
			c.samples.count(c.samples.hits, key)
			if !r.absent {
				return r.value, r.version, nil
			}
			return r.value, r.version, c.notFound(key)
		}
	}
	c.samples.count(c.samples.others, key)
	return c.read(ctx, key, min)
}

func (c *Cache[K, V]) notFound(key K) error {
	return fmt.Errorf("hotcache: key %v: %w", key, ErrNotFound)
}

// read goes the long way.
func (c *Cache[K, V]) read(ctx context.Context, key K, min Version) (V, Version, error) {
	var zero V
	name, err := c.encodeKey(key)
	if err != nil {
		return zero, 0, err
	}
	begin := c.front.Read
	for range decodeTries {
		a, err := c.wait(ctx, name, min, begin)
		if err != nil {
			return zero, 0, err
		}
		switch {
		case a.err == nil && a.absent:
			return zero, a.version, c.notFound(key)
		case a.err == nil:
			return a.value, a.version, nil
		case a.outcome == fromBroken: // what a node has cannot be decoded: it is loaded anew, and replaced
			begin = c.front.Reload
		default:
			return zero, 0, fmt.Errorf("hotcache: key %v: %w", key, a.err)
		}
	}
	return zero, 0, fmt.Errorf("hotcache: key %v: %w", key, ErrDecode)
}

// decodeTries is how often a read is begun anew because a node's value does not decode.
const decodeTries = 2

func (c *Cache[K, V]) encodeKey(key K) (string, error) {
	data, err := c.o.Keys.Encode(key)
	switch {
	case err != nil:
		return "", fmt.Errorf("hotcache: %w: the key cannot be encoded: %w", ErrInvalid, err)
	case len(data) == 0:
		return "", fmt.Errorf("hotcache: %w: the key is empty", ErrInvalid)
	case len(data) > MaxKey:
		return "", fmt.Errorf("hotcache: %w: the key has %d bytes, the limit is %d", ErrTooLarge, len(data), MaxKey)
	}
	return string(data), nil
}

// A begin is how the core is told of a read.
type begin func(now time.Duration, id core.ReadID, key string, min Version) []core.Action

// wait has the core answer one read.
func (c *Cache[K, V]) wait(ctx context.Context, name string, min Version, begin begin) (answer[V], error) {
	if err := ctx.Err(); err != nil {
		return answer[V]{}, fmt.Errorf("hotcache: %w", err)
	}
	r := &reader[V]{done: make(chan answer[V], 1)}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return answer[V]{}, ErrClosed
	}
	c.lastID++
	id := c.lastID
	c.reads[id] = r
	c.settle(begin(c.now(), id, name, min))
	select {
	case a := <-r.done:
		return a, nil
	case <-ctx.Done():
	case <-c.life.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case a := <-r.done: // it came at the same moment
		return a, nil
	default:
	}
	delete(c.reads, id)
	c.front.Leave(id, name)
	if c.life.Err() != nil {
		return answer[V]{}, ErrClosed
	}
	return answer[V]{}, fmt.Errorf("hotcache: %w", context.Cause(ctx))
}

// Peek returns the value under a key if this process's memory or the key's node has it, and never loads it. What a Get
// brought is stored a moment after that has returned. A row that is known not to exist is not there either. The error is
// that of the node, or [ErrDecode].
func (c *Cache[K, V]) Peek(ctx context.Context, key K) (value V, ok bool, err error) {
	if c.memory != nil {
		if r, ok := c.memory.get(key, c.start); ok {
			c.stats.peeked.add()
			return r.value, !r.absent, nil
		}
	}
	name, err := c.encodeKey(key)
	if err != nil {
		return value, false, err
	}
	if c.life.Err() != nil {
		return value, false, ErrClosed
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.NodeTimeout)
	defer cancel()
	a, err := c.nodes[c.ring.Owner(name)].node.Ask(ctx, Ask{Key: name})
	if err != nil {
		return value, false, fmt.Errorf("hotcache: peek at key %v: %w", key, err)
	}
	if a.State != core.Hit || a.Item.Absent {
		return value, false, nil
	}
	if value, err = c.decode(a.Item.Data); err != nil {
		return value, false, fmt.Errorf("hotcache: peek at key %v: %w", key, err)
	}
	return value, true, nil
}

// Close ends the cache: readers, those that wait included, get [ErrClosed], loads have their contexts ended. A loader
// that does not heed that is left to itself. A second call does nothing but wait for the first.
func (c *Cache[K, V]) Close() {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	for _, n := range c.nodes {
		n.shard.until.Store(0) // nobody waits any more until this memory has heard of an invalidation
	}
	c.alarm.Stop()
	c.mu.Unlock()
	c.end()
	if already {
		c.busy.Wait()
		return
	}
	for _, n := range c.nodes {
		if n.feed != nil {
			n.feed.Close()
		}
	}
	c.busy.Wait()
	if c.memory != nil {
		c.memory.close()
	}
}
