package rmap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

const (
	// A failed comparison or reload is tried again after firstPause, then twice as long each time, up to lastPause; each
	// pause is drawn at random below that.
	firstPause = 20 * time.Millisecond
	lastPause  = 2 * time.Second
	// loadTries is how often a reload begins anew at once because the map became another one meanwhile.
	loadTries = 4
	// maxPurges is how many writes in a row may remove what is past its deadline.
	maxPurges = 64
	// clockSlack is how far, in milliseconds, the store's clock may seem to go back without the copy being read anew for
	// the entries that were hidden by it: clocks that are being set right run slower for a while.
	clockSlack = 100
)

// A round is a proof that callers wait for: that the copy shows all that was finished before the round began.
type round struct {
	done    chan struct{}
	err     error // set before done is closed
	callers int   // who still wait; the map's mutex guards it
}

// keep is the goroutine that compares the copy with the store: at every heartbeat, whenever there is doubt, and when
// somebody asks. It alone reads the store's head and reloads.
func (m *Map[K, V]) keep() {
	defer close(m.kept)
	k := keeper[K, V]{m: m, timer: time.NewTimer(0)}
	defer k.timer.Stop()
	for {
		select {
		case <-m.life.Done():
			m.mu.Lock()
			k.take()
			k.finish(m.closedError())
			m.mu.Unlock()
			m.say()
			return
		case <-m.wake:
		case <-k.timer.C:
		}
		k.turn(m.life)
		m.say()
		k.timer.Reset(k.idle())
	}
}

// keeper is what the goroutine of keep alone touches.
type keeper[K comparable, V any] struct {
	m     *Map[K, V]
	timer *time.Timer
	beat  int64         // when the next heartbeat is due, on the map's clock
	retry int64         // not before then, after a failure; on the map's clock
	pause time.Duration // the last one after failures, 0 when all is well
}

// turn does what is to do now.
func (k *keeper[K, V]) turn(ctx context.Context) {
	m, c := k.m, &k.m.copy
	m.mu.Lock()
	now := c.clock.now()
	if v := m.shown.Load(); v.ends != 0 && now >= v.ends {
		m.expire(expireBatch)
	}
	compare := c.up && (now >= k.beat || c.doubt && now >= k.retry || c.asked != nil)
	purge := c.up && c.purging() && now >= c.purgeAt
	if purge && k.beat-now < int64(m.opts.Heartbeat)/2 {
		purge, c.purgeAt = false, k.beat // it would have too little time before the heartbeat: see below
	}
	m.mu.Unlock()

	if compare {
		k.prove(ctx)
	}
	if purge {
		// A store that does not answer must not keep the heartbeat waiting.
		ctx, cancel := context.WithTimeout(ctx, time.Duration(max(k.beat-c.clock.now(), 0)))
		m.purge(ctx)
		cancel()
	}
}

// idle returns how long the keeper may sleep.
func (k *keeper[K, V]) idle() time.Duration {
	m, c := k.m, &k.m.copy
	m.mu.Lock()
	defer m.mu.Unlock()
	now := c.clock.now()
	next := now + int64(m.opts.Heartbeat)
	if c.up {
		next = k.beat
		if c.doubt {
			next = min(next, k.retry)
		}
		if c.purging() {
			next = min(next, c.purgeAt)
		}
	}
	if v := m.shown.Load(); v.ends != 0 {
		next = min(next, v.ends)
	}
	if c.asked != nil && c.up {
		next = now
	}
	return time.Duration(max(next-now, 0))
}

// linger waits a random while, so that not all processes read at once what they lost together, unless somebody asks.
func (k *keeper[K, V]) linger(ctx context.Context) {
	m := k.m
	m.mu.Lock()
	rushed := m.copy.rushed && len(m.copy.waiting) == 0
	m.copy.rushed = false
	m.mu.Unlock()
	if !rushed || m.opts.ReloadJitter <= 0 {
		return
	}
	t := time.NewTimer(rand.N(m.opts.ReloadJitter))
	defer t.Stop()
	for {
		select {
		case <-t.C:
			return
		case <-ctx.Done():
			return
		case <-m.wake:
			m.mu.Lock()
			asked := m.copy.asked != nil
			m.mu.Unlock()
			if asked {
				return
			}
		}
	}
}

// prove compares the copy with the store, mends it if need be, and answers those who asked before it began.
func (k *keeper[K, V]) prove(ctx context.Context) {
	m, c := k.m, &k.m.copy
	m.mu.Lock()
	c.doubt = false
	k.take()
	m.mu.Unlock()

	err := k.compare(ctx)

	m.mu.Lock()
	defer m.mu.Unlock()
	m.release()
	k.beat = c.clock.now() + int64(m.opts.Heartbeat)
	if err != nil {
		k.failed(err)
		return
	}
	k.pause, k.retry = 0, 0
	c.joined = true
	m.proved.Store(c.asking)
	if c.up && !c.doubt { // otherwise it was current, but may not be any more
		m.setState(Live, nil)
		c.rushed = false
	}
	k.finish(nil)
}

// take makes those who asked so far the keeper's, and forgets those who gave up. The mutex is held.
func (k *keeper[K, V]) take() {
	c := &k.m.copy
	c.waiting = slices.DeleteFunc(c.waiting, func(r *round) bool { return r.callers == 0 })
	if c.asked != nil {
		c.waiting = append(c.waiting, c.asked)
		c.asked = nil
	}
}

// finish answers those who wait. The mutex is held.
func (k *keeper[K, V]) finish(err error) {
	for _, r := range k.m.copy.waiting {
		r.err = err
		close(r.done)
	}
	k.m.copy.waiting = nil
}

// failed notes an error of the store and decides when to try again. The mutex is held.
func (k *keeper[K, V]) failed(err error) {
	m, c := k.m, &k.m.copy
	if c.state == Closed {
		return // that the context has ended is why, and no news
	}
	k.pause = min(max(2*k.pause, firstPause), lastPause)
	k.retry = c.clock.now() + int64(rand.N(k.pause))
	k.beat = max(k.beat, k.retry)
	c.doubt = true
	switch {
	case isRefusal(err):
		m.setState(Refused, err)
		k.finish(err)
	case c.up:
		m.setState(CatchingUp, err)
	case c.err == nil:
		c.err = err
	}
	m.note(slog.LevelDebug, "comparing with the store failed", "error", err)
}

// compare asks for the store's head until the copy has it.
func (k *keeper[K, V]) compare(ctx context.Context) error {
	m := k.m
	for try := range loadTries {
		head, meeting, err := m.ask(ctx)
		if err != nil {
			return err
		}
		switch {
		case meeting == feed.Current:
			return nil
		case meeting == feed.Ahead && try < loadTries-1:
			continue
		}
		k.linger(ctx)
		if try == 0 {
			caught, err := m.catchUp(ctx, head)
			if err != nil {
				return err
			}
			if caught {
				continue // the next head says whether that was all
			}
		}
		if err := m.reload(ctx, head); !errors.Is(err, errMoved) {
			return err
		}
	}
	return fmt.Errorf("%w: the map became another one each time it was read", ErrUnavailable)
}

// ask reads the store's head and says how the copy stands to it. It takes from the head what no change announces: the
// time, and when the map ends.
func (m *Map[K, V]) ask(ctx context.Context) (Head, feed.Meeting, error) {
	c := &m.copy
	m.mu.Lock()
	m.release() // what was kept was handed over before the answer, and must not be applied behind it
	from, sent, hidden := c.cursor.At(), c.clock.now(), c.hidden
	m.mu.Unlock()
	head, err := m.feed.Head(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	c.stats.Heads++
	if err != nil {
		return head, 0, err
	}
	c.clock.saw(head.Now, sent)
	at := feed.Position(head.Revision)
	meeting := c.cursor.Meet(from, at)
	c.asking = sent
	if meeting == feed.Current {
		c.lifetime = head.Lifetime // of this life, however far the copy is by now
		if hidden > head.Now+clockSlack {
			return head, feed.Apart, nil // the store's clock was ahead and is right again: what it ended here is there still
		}
	}
	if c.cursor.At() != at {
		return head, meeting, nil
	}
	c.expires = head.Expires
	if c.over && (c.expires == 0 || c.expires > c.clock.store(c.clock.now())) {
		c.over = false
		m.tell(Event[K, V]{Cause: CauseReload, Revision: c.revision()})
	}
	m.publish()
	return head, meeting, nil
}

// purge asks the store to remove what is past its deadline, which makes it a numbered change for all. Every process
// that sees the deadline does so; the first one finds something to remove.
func (m *Map[K, V]) purge(ctx context.Context) {
	m.mu.Lock()
	ops := make([]Op, 0, len(m.copy.purge))
	for key := range m.copy.purge {
		ops = append(ops, Op{Do: DoExpire, Key: key})
	}
	m.copy.purge, m.copy.more = nil, false
	m.mu.Unlock()
	ctx, cancel := m.limit(ctx)
	defer cancel()
	for done := range maxPurges {
		res, err := m.store.Write(ctx, m.name, Write{Ops: ops})
		if err != nil && ctx.Err() == nil {
			// The next write of anybody removes them as well, and no reader sees them.
			m.log.Debug("removing entries past their deadline failed", "error", err)
		}
		if err == nil && !res.Changed || err != nil && (done == 0 || ctx.Err() == nil) {
			return
		}
		if err != nil {
			break
		}
		ops = nil // the store removes some more of what it knows to be past its deadline with each write
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copy.more, m.copy.purgeAt = true, m.copy.clock.now()+int64(rand.N(purgeSpread))
}
