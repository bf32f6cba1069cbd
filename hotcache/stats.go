package hotcache

import (
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// stats are the cache's own counters. What is not atomic is guarded by the cache's mutex.
type stats struct {
	peeked        tally // answers of memory that are no reads, and are not sampled
	evicted       atomic.Uint64
	stuck         atomic.Int64 // loaders that go on though their time is over
	hotSent       atomic.Uint64
	hotHeard      atomic.Uint64
	hotBroken     atomic.Uint64
	outcomes      [core.Outcomes + 1]uint64
	loads         uint64
	loadErrors    uint64
	loadTime      time.Duration
	refusedLease  uint64
	refusedFloor  uint64
	invalidations uint64
	losses        uint64
	dropped       uint64
}

func (s *stats) count(o core.Outcome) { s.outcomes[min(o, core.Outcomes)]++ }

func (s *stats) loaded(took time.Duration, err error) {
	s.loads++
	s.loadTime += took
	if err != nil {
		s.loadErrors++
	}
}

func (s *stats) filled(r core.Refusal, err error) {
	switch {
	case err != nil:
	case r == core.LostLease:
		s.refusedLease++
	case r == core.Outdated:
		s.refusedFloor++
	}
}

// Stats count what happened to a cache since it was made.
type Stats struct {
	// Reads by outcome: memory, copy, home, load; stale, stale_on_error; and without an answer failed_load, failed_shared,
	// failed_outdated, shed. Rows that do not exist are answers. Those whose callers went away are not counted.
	Reads         map[string]uint64
	Loads         uint64            // calls of the loader
	LoadErrors    uint64            // those that failed; a row that does not exist is no failure
	LoadTime      time.Duration     // of all loads
	StuckLoads    int               // loaders that have not returned yet, though their time is over: see MaxStuckLoads
	RefusedLease  uint64            // fills that were not stored because their lease was gone
	RefusedFloor  uint64            // fills that were not stored because they were outdated
	Invalidations uint64            // heard from nodes
	Losses        uint64            // times that the feed of a node was lost
	Dropped       uint64            // times that everything of a node was dropped from memory, because something was missed
	MemoryEntries int               // what this process keeps, about
	MemoryEvicted uint64            // what it gave up to make room
	NodeErrors    map[string]uint64 // by node
	NodeReads     map[string]uint64 // by node: how often it was asked for a key, or for the copy of one
	HotKeys       int               // how many keys are hot now
	HotSamples    uint64            // reads that were counted for hot keys; each stands for as many as load makes needful
	HotMissed     uint64            // reads that were to be counted, and were not, since a buffer was full or in use
	HotSent       uint64            // reports of hot keys that this process sent, by as many nodes as it sent them over
	HotHeard      uint64            // reports that it heard, its own included
	HotBroken     uint64            // reports that could not be read
}

// Stats returns the counts so far.
func (c *Cache[K, V]) Stats() Stats {
	out := Stats{
		Reads: map[string]uint64{}, NodeErrors: map[string]uint64{}, NodeReads: map[string]uint64{},
		MemoryEvicted: c.stats.evicted.Load(), HotSamples: c.samples.taken.Load(), HotMissed: c.samples.missed.Load(),
		StuckLoads: int(c.stats.stuck.Load()), HotSent: c.stats.hotSent.Load(), HotHeard: c.stats.hotHeard.Load(), HotBroken: c.stats.hotBroken.Load(),
	}
	if c.memory != nil {
		out.MemoryEntries = c.memory.len()
	}
	for _, n := range c.nodes {
		out.NodeErrors[n.name] = n.errors.Load()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	out.HotKeys = c.hot.Len()
	for i, n := range c.nodes {
		out.NodeReads[n.name] = c.hot.Questions(i)
	}
	s := &c.stats
	for o := core.FromMemory; o < core.Outcomes; o++ {
		out.Reads[o.String()] = s.outcomes[o]
	}
	out.Reads[core.FromMemory.String()] += c.samples.hits.sum() + s.peeked.sum()
	out.Loads, out.LoadErrors, out.LoadTime = s.loads, s.loadErrors, s.loadTime
	out.RefusedLease, out.RefusedFloor = s.refusedLease, s.refusedFloor
	out.Invalidations, out.Losses, out.Dropped = s.invalidations, s.losses, s.dropped
	return out
}

// A Lag says of one node how old what this process serves from its memory may be.
type Lag struct {
	Node    string
	Trusted bool          // whether memory is served at all for the keys of this node
	Age     time.Duration // since the last proof that every invalidation was heard; meaningless without one
	Out     bool          // whether the node is left alone, because asking it failed
}

// Lag says how old what this process serves from its memory may be, by node. What is trusted is never older than
// [Options.Trust].
func (c *Cache[K, V]) Lag() []Lag {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	out := make([]Lag, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = Lag{Node: n.name, Trusted: c.front.Current(now, i), Out: c.front.Out(i)}
		if until := c.front.Sight(i).Until(c.o.Trust); until != 0 {
			out[i].Age = now - (until - c.o.Trust)
		}
	}
	return out
}
