package hotcache

import (
	"sync/atomic"
	"time"

	"github.com/maypok86/otter/v2"
)

// A memory is what this process keeps for itself. What may be served from it is decided by the core; the storage, with
// its bound and its choice of what to evict, is otter's.
type memory[K comparable, V any] struct {
	cache *otter.Cache[K, *remembered[V]]
}

// A remembered value is served while its node's shard is trusted, has not been dropped since, and its time lasts.
type remembered[V any] struct {
	value   V
	version Version
	absent  bool
	size    uint32
	shard   *shard
	life    uint64        // of the shard when it was put
	ends    time.Duration // on the cache's clock
}

// A shard is what readers of memory must know of one node. It is written under the cache's mutex and read without.
type shard struct {
	life  atomic.Uint64 // goes up when everything of this node is dropped
	until atomic.Int64  // memory may be served until then, on the cache's clock
}

func newMemory[K comparable, V any](entries, bytes int, evicted func()) *memory[K, V] {
	if entries < 0 && bytes <= 0 {
		return nil
	}
	o := otter.Options[K, *remembered[V]]{
		OnDeletion: func(e otter.DeletionEvent[K, *remembered[V]]) {
			if e.WasEvicted() {
				evicted()
			}
		},
	}
	if bytes > 0 {
		o.MaximumWeight = uint64(bytes)
		o.Weigher = func(_ K, r *remembered[V]) uint32 { return r.size }
	} else {
		o.MaximumSize = entries
	}
	return &memory[K, V]{cache: otter.Must(&o)}
}

// get returns what may be served now, on a clock that began at some time.
func (m *memory[K, V]) get(key K, start time.Time) (*remembered[V], bool) {
	r, ok := m.cache.GetIfPresent(key)
	if !ok {
		return nil, false
	}
	if t := time.Since(start); r.life != r.shard.life.Load() || t >= r.ends || int64(t) >= r.shard.until.Load() {
		return nil, false
	}
	return r, true
}

func (m *memory[K, V]) put(key K, r *remembered[V]) { m.cache.Set(key, r) }

func (m *memory[K, V]) drop(key K) { m.cache.Invalidate(key) }

func (m *memory[K, V]) len() int { return m.cache.EstimatedSize() }

func (m *memory[K, V]) close() { m.cache.StopAllGoroutines() }
