package hotcache

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// fromBroken marks the answer to readers of a value that does not decode, who begin anew.
const fromBroken = core.Outcomes

// settle does what the core asks for and unlocks the mutex, which must be held. What concerns the memory of a whole node
// is done before that, in the order of the core's events. Keys are dropped behind it, since that takes the user's codec,
// but before settle returns, so before anybody says that an invalidation was heard; what was put there meanwhile is newer,
// and then merely a miss. The rest goes to goroutines of its own.
func (c *Cache[K, V]) settle(actions []core.Action) {
	var later []core.Action
	var drops []string
	for _, a := range actions {
		switch a.Do {
		case core.DoDrop:
			drops = append(drops, a.Key)
		case core.DoDropNode:
			c.nodes[a.Node].shard.life.Add(1)
			c.stats.dropped++
		default:
			later = append(later, a)
		}
	}
	if c.closed {
		c.mu.Unlock()
		return
	}
	for i, n := range c.nodes {
		n.shard.until.Store(int64(c.front.Sight(i).Until(c.o.Trust)))
	}
	c.arm()
	c.busy.Add(len(later))
	c.mu.Unlock()
	for _, name := range drops {
		if key, err := c.decodeKey(name); err == nil && c.memory != nil {
			c.memory.drop(key)
		}
	}
	for i := range later {
		if a := &later[i]; a.Do == core.DoServe || a.Do == core.DoKeep {
			c.hand(a)
			c.busy.Done()
		} else {
			go c.perform(a)
		}
	}
}

// soonest is after how long a timer goes off that is due. It is not zero, since timers of Go 1.26 that are due in a test's
// bubble run at once, on several threads at a time, which the race detector does not survive.
const soonest = time.Nanosecond

// arm sets the alarm for the core's next deadline. The mutex is held, and the cache is not closed.
func (c *Cache[K, V]) arm() {
	if at, ok := c.front.Next(); ok {
		c.alarm.Reset(max(at-c.now(), soonest))
	}
}

// tick is called by the alarm.
func (c *Cache[K, V]) tick() {
	c.mu.Lock()
	c.settle(c.front.Tick(c.now()))
}

// hand serves readers, or puts a value into memory.
func (c *Cache[K, V]) hand(a *core.Action) {
	res := answer[V]{version: a.Item.Version, absent: a.Item.Absent, outcome: a.Outcome, err: a.Err}
	if a.Err == nil && !a.Item.Absent {
		var err error
		if res.value, err = c.decode(a.Item.Data); err != nil {
			if a.Do == core.DoKeep {
				return
			}
			c.log.Warn("a cached value cannot be decoded; loading it anew", "node", c.nodes[a.Node].name, "error", err)
			res.err, res.outcome = err, fromBroken
		}
	}
	if a.Do == core.DoKeep {
		c.keep(a, res)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range a.Reads {
		if r := c.reads[id]; r != nil {
			delete(c.reads, id)
			r.done <- res
			c.stats.count(res.outcome)
		}
	}
}

// keep puts a value into memory, unless it was invalidated while it was decoded.
func (c *Cache[K, V]) keep(a *core.Action, res answer[V]) {
	key, err := c.decodeKey(a.Key)
	if err != nil {
		return
	}
	n := c.nodes[a.Node]
	r := &remembered[V]{
		value: res.value, version: res.version, absent: res.absent, shard: n.shard,
		size: uint32(len(a.Key) + len(a.Item.Data)),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	if !c.closed && c.front.Holds(now, a.Node, a.Key, a.Stamp) {
		r.life, r.ends = n.shard.life.Load(), now+min(a.Times.Soft, c.o.MemoryTTL)
		c.memory.put(key, r)
	}
}

// perform does one action of the core, in a goroutine of its own, and reports back.
func (c *Cache[K, V]) perform(a *core.Action) {
	defer c.busy.Done()
	if a.Do == core.DoLoad {
		item, times, err := c.load(a.Key, a.Min)
		c.mu.Lock()
		c.settle(c.front.Loaded(c.now(), a.Op, item, times, err))
		return
	}
	ctx, cancel := context.WithTimeout(c.life, c.o.NodeTimeout)
	defer cancel()
	node := c.nodes[a.Node].node
	switch a.Do {
	case core.DoAsk:
		answer, err := node.Ask(ctx, a.Ask)
		c.report(a, err)
		c.mu.Lock()
		c.settle(c.front.Answered(c.now(), a.Op, answer, err))
	case core.DoCopy:
		cp, err := node.GetCopy(ctx, a.Key)
		c.report(a, err)
		c.mu.Lock()
		c.settle(c.front.Copied(c.now(), a.Op, a.Node, cp, err))
	case core.DoPutCopy:
		c.report(a, node.PutCopy(ctx, a.Key, a.Copy))
	case core.DoFill:
		r, err := node.Fill(ctx, a.Fill)
		c.report(a, err)
		c.mu.Lock()
		c.stats.filled(r.Refusal, err)
		c.settle(c.front.Filled(c.now(), a.Op, r, err))
	case core.DoRenew:
		held, err := node.Renew(ctx, a.Key, a.Token)
		c.report(a, err)
		c.mu.Lock()
		c.settle(c.front.Renewed(c.now(), a.Op, held, err))
	case core.DoFail:
		c.report(a, node.Fail(ctx, a.Key, a.Token, a.Why, a.Pause))
	}
}

// report notes an error of a node, which no caller gets: the read goes on without the node.
func (c *Cache[K, V]) report(a *core.Action, err error) {
	if err == nil || c.life.Err() != nil {
		return
	}
	c.nodes[a.Node].errors.Add(1)
	c.log.Warn("a cache node did not do what it was asked", "node", c.nodes[a.Node].name, "error", err)
}

// load calls the loader and encodes what it returns.
func (c *Cache[K, V]) load(name string, min Version) (Item, Times, error) {
	key, err := c.decodeKey(name)
	if err != nil {
		return Item{}, Times{}, err
	}
	if n := c.stats.stuck.Load(); n >= MaxStuckLoads {
		return Item{}, Times{}, fmt.Errorf("%w: %d loaders have not returned, though their time is over: they must heed their contexts",
			ErrOverloaded, n)
	}
	ctx, cancel := context.WithTimeout(c.life, c.o.LoadTimeout)
	defer cancel()
	began := time.Now()
	item, err := c.call(ctx, key, min)
	took := time.Since(began)
	c.mu.Lock()
	c.stats.loaded(took, err)
	c.mu.Unlock()
	switch {
	case errors.Is(err, ErrNotFound):
		item.Absent = true
		return item, c.times(c.o.NegativeTTL, c.o.NegativeTTL).Minus(took), nil
	case err != nil:
		return Item{}, Times{}, err
	}
	return item, c.times(c.o.RefreshAfter, c.o.TTL).Minus(took), nil
}

// call runs the loader, and the codec for what it returns, in a goroutine of its own, so that one which does not heed its
// context, or never ends, holds up nobody.
func (c *Cache[K, V]) call(ctx context.Context, key K, min Version) (Item, error) {
	type loaded struct {
		item Item
		err  error
	}
	done := make(chan loaded, 1)
	var left atomic.Bool // by whoever of the two is first: the loader that ends, or who waits for it
	go func() {
		var l loaded
		returned := false
		defer func() {
			if left.Swap(true) {
				c.stats.stuck.Add(-1)
			}
			if p := recover(); p != nil {
				c.log.Error("the loader panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				l.err = fmt.Errorf("%w: %v", ErrPanic, p)
			} else if !returned {
				l.err = fmt.Errorf("%w: it ended its goroutine", ErrPanic)
			}
			done <- l
		}()
		var value V
		value, l.item.Version, l.err = c.loader(ctx, key, min)
		if l.err == nil {
			l.item.Data, l.err = c.encode(value)
		}
		returned = true
	}()
	var l loaded
	select {
	case l = <-done:
	case <-ctx.Done():
		c.stats.stuck.Add(1)
		if left.Swap(true) { // it came at the same moment
			c.stats.stuck.Add(-1)
			l = <-done
		} else {
			l.err = fmt.Errorf("the loader did not return in %v: %w", c.o.LoadTimeout, context.Cause(ctx))
		}
	}
	if l.item.Version == Fresh && (l.err == nil || errors.Is(l.err, ErrNotFound)) {
		l.err = fmt.Errorf("%w: the loader returned the version that stands for Fresh", ErrInvalid)
	}
	return l.item, l.err
}

func (c *Cache[K, V]) encode(v V) (data []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			data, err = nil, fmt.Errorf("%w: the value cannot be encoded: the codec panicked: %v", ErrInvalid, p)
		}
	}()
	if data, err = c.o.Values.Encode(v); err != nil {
		return nil, fmt.Errorf("%w: the value cannot be encoded: %w", ErrInvalid, err)
	}
	if len(data) > MaxValue {
		return nil, fmt.Errorf("%w: the value has %d bytes, the limit is %d", ErrTooLarge, len(data), MaxValue)
	}
	return data, nil
}

// times returns how long a value is good whose load begins now.
func (c *Cache[K, V]) times(soft, hard time.Duration) Times {
	return Times{Soft: core.Spread(soft, rand.N[time.Duration]), Hard: hard, Keep: hard + max(c.o.StaleWhile, c.o.StaleOnError)}
}

func (c *Cache[K, V]) decode(data []byte) (v V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the codec panicked: %v", ErrDecode, p)
		}
	}()
	if v, err = c.o.Values.Decode(data); err != nil {
		err = fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return v, err
}

func (c *Cache[K, V]) decodeKey(name string) (k K, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the codec of the keys panicked: %v", ErrDecode, p)
		}
	}()
	if k, err = c.o.Keys.Decode([]byte(name)); err != nil {
		err = fmt.Errorf("%w: the key: %w", ErrDecode, err)
	}
	return k, err
}
