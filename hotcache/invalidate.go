package hotcache

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// Invalidate makes sure that nothing older than a version of a row is served any more. Call it after the change was
// committed, with the version that it made; 0 means everything older than this moment.
//
// When it has returned nil, no read that begins afterwards, in any process that uses these nodes, gets an older
// version: not from a node, from the memory of a process, from a copy of a hot key, or from a load that was under way.
// For that it waits until every process that may trust its memory has said that it heard of it, or can no longer do so,
// which takes [Options.Trust] at most. With [Options.Bounded] it returns at once, and other processes may serve what
// they have until then.
//
// The error is a [NotInvalidatedError]: the row is written, and the cache may not know. Do it again, or let the outbox
// do so. A key or a version that is none is refused with [ErrInvalid] or [ErrTooLarge]: it was never in the cache.
func (c *Cache[K, V]) Invalidate(ctx context.Context, key K, v Version) error {
	name, err := c.encodeKey(key)
	if err != nil {
		return err
	}
	if v == Fresh {
		return fmt.Errorf("hotcache: key %v: %w: Fresh is not the version of a row", key, ErrInvalid)
	}
	if err := c.invalidate(ctx, name, v); err != nil {
		return &NotInvalidatedError{Key: fmt.Sprintf("key %v", key), Version: v, Err: err}
	}
	return nil
}

func (c *Cache[K, V]) invalidate(ctx context.Context, name string, v Version) error {
	if c.life.Err() != nil {
		return ErrClosed
	}
	n := c.nodes[c.ring.Owner(name)]
	limited, cancel := context.WithTimeout(ctx, c.o.NodeTimeout)
	defer cancel()
	inv, members, err := n.node.Invalidate(limited, name, v, c.me)
	if err != nil {
		n.errors.Add(1)
		return fmt.Errorf("node %q: %w", n.name, err)
	}
	done := time.Now()
	c.mu.Lock()
	c.settle(c.front.Invalidating(c.now(), n.index, inv))
	at := core.StampOf(inv.Position)
	defer n.await.over(at)
	if c.o.Bounded || len(members) == 0 {
		return nil
	}
	longest := c.o.longestTrust() - time.Since(done)
	return n.await.all(ctx, at, members, longest)
}

// awaited are the acknowledgements that writers wait for, by the invalidation.
type awaited struct {
	mu      sync.Mutex // guards what follows
	byStamp map[Stamp]*awaitedAcks
	order   []Stamp // in which they were made, to forget the oldest
}

type awaitedAcks struct {
	from    map[Member]bool // who said so
	missing int             // how many more the writer waits for; it is known when he has his answer
	all     chan struct{}   // nil until then
	wanted  map[Member]bool
	over    bool // nobody waits any more, so those who come late need not be remembered
}

// maxAwaited is how many invalidations are remembered of which acknowledgements came: they may come before the writer
// knows their number. Writers of older ones wait for the longest time.
const maxAwaited = 4096

func (a *awaited) of(at Stamp) *awaitedAcks {
	w := a.byStamp[at]
	if w == nil {
		w = &awaitedAcks{from: map[Member]bool{}}
		a.byStamp[at] = w
		if a.order = append(a.order, at); len(a.order) > maxAwaited {
			delete(a.byStamp, a.order[0])
			a.order = a.order[1:]
		}
	}
	return w
}

// came notes an acknowledgement.
func (a *awaited) came(at Stamp, from Member) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.of(at)
	if w.over || w.from[from] {
		return
	}
	w.from[from] = true
	if w.wanted[from] {
		if w.missing--; w.missing == 0 {
			close(w.all)
		}
	}
}

// over notes that nobody waits for an invalidation any more.
func (a *awaited) over(at Stamp) {
	a.mu.Lock()
	defer a.mu.Unlock()
	*a.of(at) = awaitedAcks{over: true}
}

// all waits until all members have acknowledged an invalidation, but no longer than need be.
func (a *awaited) all(ctx context.Context, at Stamp, members []Member, longest time.Duration) error {
	a.mu.Lock()
	w := a.of(at)
	w.wanted, w.all = map[Member]bool{}, make(chan struct{})
	for _, m := range members {
		if !w.from[m] && !w.wanted[m] {
			w.wanted[m] = true
			w.missing++
		}
	}
	if w.missing == 0 {
		close(w.all)
	}
	all := w.all
	a.mu.Unlock()
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-all:
		return nil
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the home was told, others may not have heard of it yet: %w", context.Cause(ctx))
	}
}
