package rmap

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A replica is what a map holds of the store's, and how it stands to it. The map's mutex guards it.
type replica[K comparable, V any] struct {
	cursor   feed.Cursor
	tree     tree[K, V] // all entries, at the cursor
	broken   int        // entries of tree without a value
	deadline due[K]     // entries of tree that end
	expires  int64      // when the whole map ends, by the store's clock; 0 is never
	over     bool       // that moment has passed here: readers see nothing, whatever tree holds
	lifetime Lifetime
	clock    clock

	state   State
	since   time.Time           // when state began
	err     error               // why it is not Live
	up      bool                // the feed stands
	doubt   bool                // the copy must be compared with the store at once
	rushed  bool                // a connection was lost and others will reload too: spread it
	pending *pending            // changes kept while the map is read as a whole; nil otherwise
	purge   map[string]struct{} // encoded keys, past their deadline, of which the store has not said that they are gone
	more    bool                // the store had more to remove than was asked for at once
	purgeAt int64               // when to ask it to remove them, on the map's clock
	hidden  int64               // the latest deadline of what was dropped here because its time was over
	asking  int64               // when the last head was asked for that was answered, on the map's clock
	joined  bool                // it was current once

	asked   *round   // those who wait for a proof that has not begun
	waiting []*round // those whose proof has begun, and those of proofs that failed
	subs    map[*subscriber[K, V]]struct{}
	told    []Event[K, V] // what subscribers are told as soon as readers can see it
	notes   []slog.Record // what the logger is told as soon as the mutex is not held
	unsaid  int           // notes for which there was no room
	stats   Stats
}

// pending keeps changes that arrive while the map is read, which are applied to what was read.
type pending struct {
	changes []Change
	bytes   int
	lost    bool // there were too many, or the feed was lost
}

// purgeSpread is the longest time that a process leaves it to the others to have an entry removed that all saw expire.
const purgeSpread = 100 * time.Millisecond

// What pending may hold: far more than arrives while a map of the greatest size is read.
const (
	maxPending      = 1 << 18
	maxPendingBytes = 256 << 20
)

func (p *pending) add(ch Change) {
	for _, s := range ch.Steps {
		p.bytes += len(s.Entry.Key) + len(s.Entry.Value.Data)
	}
	if p.lost || len(p.changes) >= maxPending || p.bytes > maxPendingBytes {
		p.lose()
		return
	}
	p.changes = append(p.changes, ch)
}

func (p *pending) lose() { p.changes, p.lost = nil, true }

// purging tells whether the store is to be asked to remove entries.
func (r *replica[K, V]) purging() bool { return len(r.purge) > 0 || r.more }

func (r *replica[K, V]) init() {
	r.tree = emptyTree[K, V]()
	r.clock.start = time.Now()
	r.state, r.since = CatchingUp, time.Now()
}

// revision returns the cursor's position as users see it.
func (r *replica[K, V]) revision() Revision { return Revision(r.cursor.At()) }

// follower keeps the methods that the store calls off the map's own.
type follower[K comparable, V any] struct{ m *Map[K, V] }

// Up implements [Follower]: what the copy missed is not known, so it is compared with the store before it counts as
// current.
func (f follower[K, V]) Up() {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copy.up = true
	m.doubt(nil)
}

// Down implements [Follower].
func (f follower[K, V]) Down(err error) {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copy.up, m.copy.rushed = false, true
	if p := m.copy.pending; p != nil {
		p.lose() // what is being read may have been set back meanwhile without a trace in the heads
	}
	m.copy.stats.Losses++
	m.setState(CutOff, err)
}

// Unreadable implements [Follower]. A newer format makes the copy worthless at once; anything else may be a stray
// message, which the comparison with the store will show.
func (f follower[K, V]) Unreadable(err error) {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copy.stats.Unreadable++
	m.note(slog.LevelWarn, "a broadcast message cannot be read", "error", err)
	if errors.Is(err, ErrFormat) {
		m.setState(Refused, err)
	}
	m.doubt(err)
}

// Changed implements [Follower]: it applies the next change at once, in the caller's goroutine, so that no switch lies
// between the arrival of a change and the first read that sees it.
func (f follower[K, V]) Changed(ch Change) {
	m := f.m
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.copy
	c.clock.saw(ch.Now, -1)
	switch {
	case c.state == Closed:
	case c.pending != nil:
		c.pending.add(ch)
	default:
		m.take(ch)
	}
}

// take does with a change what the cursor says.
func (m *Map[K, V]) take(ch Change) {
	c := &m.copy
	switch c.cursor.Judge(feed.Change{Position: feed.Position(ch.Revision), Prev: ch.Prev}) {
	case feed.Next:
		m.apply(ch)
		m.publish()
	case feed.Duplicate:
		c.stats.Duplicates++
	default:
		c.stats.Strange++
		m.doubt(nil)
	}
}

// apply puts the change that follows into the tree, and tells subscribers. Readers see it with the next publish.
func (m *Map[K, V]) apply(ch Change) {
	c := &m.copy
	c.cursor.Advance(feed.Change{Position: feed.Position(ch.Revision), Prev: ch.Prev})
	c.expires = ch.Expires
	if c.over && (c.expires == 0 || c.expires > c.clock.store(c.clock.now())) {
		// The map was given more time just before it ended here, so what was hidden is there after all.
		c.over = false
		m.tell(Event[K, V]{Cause: CauseReload, Revision: ch.Revision})
	}
	subs := c.subs
	if c.over {
		c.subs = nil // they were told that there is nothing left, and nothing of this can be read
	}
	for _, s := range ch.Steps {
		m.step(ch.Revision, s)
	}
	c.subs = subs
	c.stats.Changes++
}

func (m *Map[K, V]) step(r Revision, s Step) {
	c := &m.copy
	switch s.Do {
	case DoSet:
		it, err := m.newItem(s.Entry)
		if err != nil {
			m.tellBroken(nil, r, err)
			return
		}
		old := m.put(it)
		if it.Value.err != nil {
			m.tellBroken(&it.Key, r, it.Value.err)
			return
		}
		m.tell(changed(CauseSet, r, old, it))
	case DoDelete, DoExpire:
		key, err := m.decodeKey(s.Entry.Key)
		if err != nil {
			return // it was told when it came
		}
		delete(c.purge, s.Entry.Key)
		cause := CauseDelete
		if s.Do == DoExpire {
			cause = CauseExpire
		}
		if old := m.drop(key); old != nil {
			m.tell(changed(cause, r, old, nil))
		}
	case DoClear, DoDestroy:
		c.tree, c.broken, c.deadline, c.purge = emptyTree[K, V](), 0, due[K]{}, nil
		m.tell(Event[K, V]{Cause: CauseReset, Revision: r})
	}
}

// put adds an item to the tree and returns what it replaced.
func (m *Map[K, V]) put(it *item[K, V]) (old *item[K, V]) {
	c := &m.copy
	c.tree, old = c.tree.With(it)
	c.broken += brokenCount(it) - brokenCount(old)
	c.deadline.set(it.Key, it.Value.deadline)
	return old
}

// drop removes a key from the tree and returns what was there.
func (m *Map[K, V]) drop(key K) (old *item[K, V]) {
	c := &m.copy
	c.tree, old = c.tree.Without(key)
	c.broken -= brokenCount(old)
	c.deadline.set(key, 0)
	return old
}

func brokenCount[K comparable, V any](it *item[K, V]) int {
	if it != nil && it.Value.err != nil {
		return 1
	}
	return 0
}

// publish shows readers the copy as it is now, and then tells subscribers what led there: who was told of a change must
// not read what was before it.
func (m *Map[K, V]) publish() {
	m.show()
	m.deliver()
}

func (m *Map[K, V]) show() {
	c := &m.copy
	v := &view[K, V]{tree: c.tree, broken: c.broken, revision: c.revision(), clock: c.clock}
	if c.over {
		v.tree, v.broken = emptyTree[K, V](), 0
		m.shown.Store(v)
		return
	}
	v.expires = c.expires
	for _, at := range []int64{c.expires, c.deadline.first()} {
		if at != 0 {
			if local := c.clock.local(at); v.ends == 0 || local < v.ends {
				v.ends = local
			}
		}
	}
	if was := m.shown.Load(); v.ends != 0 && (was.ends == 0 || v.ends < was.ends) {
		m.nudge() // the keeper must wake earlier than it meant to
	}
	m.shown.Store(v)
}

// expireBatch is how many entries the keeper drops before others get the mutex.
const expireBatch = 512

// expire drops what is past its deadline, at most so many entries, tells subscribers, and has the keeper tell the store.
func (m *Map[K, V]) expire(most int) {
	c := &m.copy
	now := c.clock.store(c.clock.now())
	if c.expires != 0 && c.expires <= now && !c.over {
		c.over = true
		if c.tree.Len() > 0 {
			m.tell(Event[K, V]{Cause: CauseReset, Revision: c.revision()})
		}
		m.doubt(nil) // the store must say whether it is really over: a change on its way may give it more time
	}
	for range most {
		key, ok := c.deadline.pop(now)
		if !ok {
			break
		}
		old := m.drop(key)
		c.hidden = max(c.hidden, old.Value.deadline)
		if c.over {
			continue // it was told already that there is nothing left
		}
		m.tell(changed(CauseExpire, c.revision(), old, nil))
		if len(c.purge) >= PurgeBatch {
			continue // the store knows of them too
		}
		if data, err := m.encodeKey(key); err == nil {
			if len(c.purge) == 0 {
				c.purge, c.purgeAt = map[string]struct{}{}, c.clock.now()+int64(rand.N(purgeSpread))
			}
			c.purge[data] = struct{}{}
		}
	}
	m.publish()
	m.nudge()
}

// doubt has the copy compared with the store at once.
func (m *Map[K, V]) doubt(err error) {
	m.copy.doubt = true
	if m.copy.up && (m.copy.state == Live || m.copy.state == CutOff) {
		m.setState(CatchingUp, err)
	}
	m.nudge()
}

// nudge wakes the keeper.
func (m *Map[K, V]) nudge() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}
