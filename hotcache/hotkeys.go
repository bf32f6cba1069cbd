package hotcache

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// A HotKey is a key that many read: on several nodes, of which reads choose the less busy.
type HotKey[K comparable] struct {
	Key K
	// Reads is how many of the fleet's reads in a [Options.HotWindow] are of this key, at most; at least it is Reads-Error.
	// The bounds are those of the sketches; under load they count samples, each of which stands for many reads.
	Reads, Error uint64
	// Share is that of Reads-Error in all reads.
	Share float64
	// Nodes are where the key is, its home first.
	Nodes []string
}

// HotKeys returns the keys that are hot, the most read first. All processes of a fleet agree on them, but for the time
// that a report takes from one to the other.
func (c *Cache[K, V]) HotKeys() []HotKey[K] {
	c.mu.Lock()
	hot := c.hot.Keys()
	where := make([][]int, len(hot.Keys))
	for i, h := range hot.Keys {
		where[i] = c.hot.Where(h.Key)
	}
	c.mu.Unlock()
	out := make([]HotKey[K], 0, len(hot.Keys))
	for i, h := range hot.Keys {
		key, err := c.decodeKey(h.Key)
		if err != nil {
			continue // another program's
		}
		k := HotKey[K]{Key: key, Reads: h.Count, Error: h.Err, Share: float64(h.Least()) / float64(max(hot.Total, 1))}
		for _, node := range where[i] {
			k.Nodes = append(k.Nodes, c.nodes[node].name)
		}
		out = append(out, k)
	}
	return out
}

// heat is what the goroutine for hot keys alone touches.
type heat[K comparable] struct {
	samples []sample[K]
	keys    []string
	names   map[K]string // of keys that were sampled before, so that the same ones cost nothing the next time
	turn    int          // of the nodes that carry reports
	life    uint64       // generation of the sets that this process keeps
	sets    uint64       // how many it kept
}

// watch is the goroutine that counts what was sampled, tells the fleet, and keeps the set of hot keys where those who
// begin find it.
func (c *Cache[K, V]) watch() {
	defer c.busy.Done()
	h := &heat[K]{names: map[K]string{}, turn: rand.IntN(len(c.nodes)), life: rand.Uint64() | 1}
	c.warm()
	timer := time.NewTimer(soonest)
	defer timer.Stop()
	for {
		select {
		case <-c.life.Done():
			return
		case <-timer.C:
		}
		c.collect(h)
		c.mu.Lock()
		news := c.hot.Tick(c.now())
		c.mu.Unlock()
		if news.Report != nil {
			c.tell(h, news.Report)
		}
		if news.Set != nil {
			c.keepSet(h, news.Set)
		}
		c.mu.Lock()
		next := c.hot.Next()
		c.mu.Unlock()
		timer.Reset(max(next-c.now(), soonest))
	}
}

// chunk is how many samples are counted at a time, so that reads do not wait long for the mutex.
const chunk = 64

// collect counts what was sampled.
func (c *Cache[K, V]) collect(h *heat[K]) {
	h.samples, h.keys = c.samples.collect(h.samples[:0]), h.keys[:0]
	for _, s := range h.samples {
		h.keys = append(h.keys, c.nameOf(h, s.key))
	}
	for begin := 0; begin < len(h.keys); begin += chunk {
		c.mu.Lock()
		for i := begin; i < min(begin+chunk, len(h.keys)); i++ {
			if h.keys[i] != "" {
				c.hot.Count(h.keys[i], uint64(h.samples[i].weight))
			}
		}
		c.mu.Unlock()
	}
	clear(h.samples)
	clear(h.keys)
}

// What is remembered of names: as many as a few collections bring, and none that would make that much memory.
const (
	knownNames = 4 * samplesWanted
	longName   = 256
)

// nameOf is encodeKey for keys of which the reader got the error, or the panic: they do not count.
func (c *Cache[K, V]) nameOf(h *heat[K], key K) (name string) {
	defer func() {
		if recover() != nil {
			name = ""
		}
	}()
	name, ok := h.names[key]
	if ok {
		return name
	}
	name, _ = c.encodeKey(key)
	if len(name) <= longName {
		if len(h.names) >= knownNames {
			clear(h.names)
		}
		h.names[key] = name
	}
	return name
}

// hotTimeout limits what is asked of a node for hot keys, so that one which is slow does not hold up the windows.
func (c *Cache[K, V]) hotTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(c.life, min(c.o.NodeTimeout, c.o.HotWindow/4))
}

// tell sends a report to everybody.
func (c *Cache[K, V]) tell(h *heat[K], r *core.Report) {
	text := r.String()
	h.turn++
	r.Over(h.turn, len(c.nodes), func(node int) bool {
		n := c.nodes[node]
		ctx, cancel := c.hotTimeout()
		err := n.feed.Tell(ctx, Everybody, text)
		cancel()
		if err != nil {
			if c.life.Err() == nil {
				c.log.Debug("a report of hot keys was not sent", "node", n.name, "error", err)
			}
			return false
		}
		c.stats.hotSent.Add(1)
		return true
	})
}

// hotSetKey is under what the set of hot keys is kept, as a copy that no reader takes for one of a row: its generation
// is that of no node. Should there be a row of that name, it is merely read from its home alone.
const hotSetKey = "\x00latchkey:hot"

// hotSetNodes is on how many nodes it is kept.
const hotSetNodes = 2

// keepSet keeps the set of hot keys for those who begin.
func (c *Cache[K, V]) keepSet(h *heat[K], set *core.Report) {
	h.sets++
	lasts := max(time.Minute, 10*c.o.HotWindow)
	cp := Copy{
		Item:  Item{Version: Version(h.sets), Data: []byte(set.String())},
		Times: Times{Soft: lasts, Hard: lasts, Keep: lasts},
		Stamp: Stamp{Generation: h.life, Number: h.sets},
	}
	for _, node := range c.ring.Owners(hotSetKey, hotSetNodes) {
		ctx, cancel := c.hotTimeout()
		if err := c.nodes[node].node.PutCopy(ctx, hotSetKey, cp); err != nil && c.life.Err() == nil {
			c.log.Debug("the set of hot keys was not kept", "node", c.nodes[node].name, "error", err)
		}
		cancel()
	}
}

// warm takes over the set of hot keys that the fleet has.
func (c *Cache[K, V]) warm() {
	for _, node := range c.ring.Owners(hotSetKey, hotSetNodes) {
		ctx, cancel := c.hotTimeout()
		cp, err := c.nodes[node].node.GetCopy(ctx, hotSetKey)
		cancel()
		if err != nil || cp == nil {
			continue
		}
		if r, err := core.ParseReport(string(cp.Item.Data)); err == nil {
			c.mu.Lock()
			c.hot.Adopt(r)
			c.mu.Unlock()
			return
		}
	}
}

// toldHot takes the report of another process.
func (c *Cache[K, V]) toldHot(node *nodeLink, text string) {
	r, err := core.ParseReport(text)
	if err != nil {
		c.log.Warn("a report of hot keys cannot be read", "node", node.name)
		c.stats.hotBroken.Add(1)
		return
	}
	c.stats.hotHeard.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hot.Hear(c.now(), r)
}
