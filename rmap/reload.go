package rmap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
	"github.com/latchkey-go/latchkey/rmap/internal/hamt"
)

// errMoved: while the map was read it became another one, or too much changed to keep up with.
var errMoved = errors.New("the map moved on while it was read")

// hold begins to keep changes instead of applying them, anew if it was done already.
func (m *Map[K, V]) hold() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.copy.pending = &pending{}
	if m.copy.state == Live {
		m.setState(CatchingUp, nil)
	}
}

// release ends that, if it was not ended already. What was kept is applied as far as it follows, and whatever does not
// is left for the comparison that comes after. The mutex is held.
func (m *Map[K, V]) release() {
	c := &m.copy
	kept := c.pending
	c.pending = nil
	if kept == nil || len(kept.changes) == 0 {
		return
	}
	for _, ch := range kept.changes {
		if c.cursor.Judge(feed.Change{Position: feed.Position(ch.Revision), Prev: ch.Prev}) == feed.Next {
			m.apply(ch)
		}
	}
	m.publish()
}

// catchUp applies the changes that were missed, if the store still has them. It tells whether it found any. A copy that
// holds nothing follows the head's generation from its first change: that this generation is the present one is what
// the head has shown.
func (m *Map[K, V]) catchUp(ctx context.Context, head Head) (bool, error) {
	m.hold()
	m.mu.Lock()
	from := m.copy.revision()
	m.mu.Unlock()
	if from.Generation != head.Revision.Generation && !from.IsZero() || head.Revision.IsZero() {
		return false, nil
	}
	from.Generation = head.Revision.Generation
	changes, err := m.store.Since(ctx, m.name, from)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || len(changes) == 0 {
		return false, err
	}
	c := &m.copy
	changes, ok := leading(c.cursor, from, changes, head.Revision)
	if !ok {
		return false, nil
	}
	if !c.cursor.At().Exists() {
		c.cursor.Replace(feed.Position(from))
	}
	for _, ch := range changes {
		m.apply(ch)
	}
	c.stats.CaughtUp++
	c.stats.Replayed += uint64(len(changes))
	m.publish()
	m.note(slog.LevelInfo, "caught up", "changes", len(changes), "revision", c.revision().String())
	m.release()
	return true, nil
}

// leading returns those of the changes that follow a cursor, or the first change if it holds nothing, and whether they
// lead to the head. If they do not, the copy would show a state that may be older than what it was proved to have.
func leading(cursor feed.Cursor, from Revision, changes []Change, head Revision) ([]Change, bool) {
	if !cursor.At().Exists() {
		cursor.Replace(feed.Position(from))
	}
	for i, ch := range changes {
		at := feed.Change{Position: feed.Position(ch.Revision), Prev: ch.Prev}
		if cursor.Judge(at) != feed.Next {
			changes = changes[:i]
			break
		}
		cursor.Advance(at)
	}
	return changes, cursor.Meet(feed.Position(from), feed.Position(head)) != feed.Apart
}

// reload reads the whole map while it goes on changing. Before and after, it asks for the head. Every entry it was
// given is at least as new as the first head, and every change after the first head was kept; so when those are applied
// to the entries, in order, the result is exactly the map as it was at the second head or later. Readers have the old
// copy until then.
func (m *Map[K, V]) reload(ctx context.Context, seen Head) error {
	began := time.Now()
	cause := m.causeOf(seen)
	m.hold()
	first, err := m.feed.Head(ctx)
	if err != nil {
		return err
	}
	read, err := m.scan(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	asked := m.copy.clock.now()
	if p := m.copy.pending; p != nil {
		read.early = len(p.changes)
	}
	m.mu.Unlock()
	last, err := m.feed.Head(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.copy.state == Closed {
		return m.closedError()
	}
	m.copy.clock.saw(last.Now, asked)
	m.copy.asking = asked
	if err := m.install(read, first, last, cause); err != nil {
		return err
	}
	m.copy.stats.Reloads[cause]++
	m.copy.stats.ReloadTime = time.Since(began)
	m.note(slog.LevelInfo, "read the whole map", "cause", cause.String(), "entries", m.copy.tree.Len(),
		"revision", m.copy.revision().String(), "took", time.Since(began))
	return nil
}

// A reading is what a scan gave. What takes time with the size of the map is done with it while the mutex is not held.
type reading[K comparable, V any] struct {
	tree     tree[K, V]
	broken   int     // as in replica
	deadline due[K]  // as in replica
	newest   uint64  // the highest number of an entry
	early    int     // how many changes had been kept when the last head was asked for
	errors   []error // keys that do not decode, a few of them
}

func (m *Map[K, V]) scan(ctx context.Context) (reading[K, V], error) {
	const mostErrors = 8
	var out reading[K, V]
	b := hamt.NewBuilder[K, cell[V]]()
	err := m.store.Scan(ctx, m.name, func(chunk []Entry) error {
		for _, e := range chunk {
			out.newest = max(out.newest, e.Number)
			it, err := m.newItem(e)
			if err == nil {
				b.Add(it)
			} else if len(out.errors) < mostErrors {
				out.errors = append(out.errors, err)
			}
		}
		return ctx.Err()
	})
	if err != nil {
		return out, err
	}
	out.tree = b.Map()
	for it := range out.tree.All() {
		out.broken += brokenCount(it)
		out.deadline.set(it.Key, it.Value.deadline)
	}
	return out, nil
}

// install makes what was read, with the changes that were kept, the copy. The mutex is held.
func (m *Map[K, V]) install(read reading[K, V], first, last Head, cause ReloadCause) error {
	c := &m.copy
	kept := c.pending
	if kept == nil || kept.lost {
		return errMoved
	}
	// Whether the changes lead from the first head to the last is found out before anything is touched.
	var cursor feed.Cursor
	cursor.Replace(feed.Position(first.Revision))
	met := first.Revision == last.Revision
	var follow []Change
	rest := after(kept.changes, first.Revision)
	for i, ch := range rest {
		at := feed.Change{Position: feed.Position(ch.Revision), Prev: ch.Prev}
		switch cursor.Judge(at) {
		case feed.Next:
			if met && len(kept.changes)-len(rest)+i < read.early {
				return errMoved // it came before the last head was asked for, which knows nothing of it: it was undone
			}
			cursor.Advance(at)
			follow = append(follow, ch)
			met = met || ch.Revision == last.Revision
		case feed.Reload:
			return errMoved // the store was elsewhere in between, and some of what was read may be from there
		}
	}
	if !met || read.newest > last.Revision.Number {
		return errMoved
	}
	if first.Revision.IsZero() {
		read = reading[K, V]{tree: emptyTree[K, V]()} // what was seen is of a life that came and went in between
	}
	reset := c.cursor.IsReset(feed.Position(first.Revision), first.Cleared)
	hidden := c.over
	quiet := cause == ReloadJoin || hidden && first.Revision.IsZero()

	c.cursor.Replace(feed.Position(first.Revision))
	c.tree, c.broken, c.deadline, c.purge, c.hidden = read.tree, read.broken, read.deadline, nil, 0
	c.expires, c.lifetime, c.over = first.Expires, first.Lifetime, false
	subs := c.subs
	c.subs = nil // one event stands for all that was missed
	for _, ch := range follow {
		reset = reset || clears(ch)
		m.apply(ch)
	}
	c.subs = subs
	if c.revision() == last.Revision {
		c.expires = last.Expires
	}
	c.pending = nil
	m.publish()
	if !quiet {
		event := Event[K, V]{Cause: CauseReload, Revision: c.revision()}
		if reset {
			event.Cause = CauseReset
		}
		m.tell(event)
	}
	m.tellReadErrors(read)
	m.deliver()
	return nil
}

// after returns the changes that were handed over after a head was read. What came before it ends with the head's own
// change, if there was any.
func after(changes []Change, head Revision) []Change {
	for i, ch := range changes {
		if ch.Revision == head {
			return changes[i+1:]
		}
	}
	return changes
}

func clears(ch Change) bool {
	for _, s := range ch.Steps {
		if s.Do == DoClear || s.Do == DoDestroy {
			return true
		}
	}
	return false
}

func (m *Map[K, V]) tellReadErrors(read reading[K, V]) {
	r := m.copy.revision()
	for _, err := range read.errors {
		m.tellBroken(nil, r, err)
	}
	if m.copy.broken == 0 {
		return
	}
	for it := range m.copy.tree.All() {
		if it.Value.err != nil {
			m.tellBroken(&it.Key, r, it.Value.err)
		}
	}
}

// A ReloadCause says why a map was read as a whole.
type ReloadCause uint8

const (
	ReloadJoin       ReloadCause = iota // the first time
	ReloadGap                           // changes were missed that the store no longer keeps
	ReloadGeneration                    // the map began a new life, or is gone
	ReloadRollback                      // the store went back to an older state
	reloadCauses
)

// String returns the cause as it appears in logs and metrics.
func (c ReloadCause) String() string {
	return [...]string{"join", "gap", "generation", "rollback", "unknown"}[min(c, reloadCauses)]
}

// causeOf says why the copy must be read anew, given the head that it does not have.
func (m *Map[K, V]) causeOf(head Head) ReloadCause {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := m.copy.cursor.At()
	switch {
	case !m.copy.joined:
		return ReloadJoin
	case head.Revision.Generation != at.Generation:
		return ReloadGeneration
	case head.Revision.Number <= at.Number:
		return ReloadRollback
	}
	return ReloadGap
}

// loadError is what a failed Sync says.
func (m *Map[K, V]) loadError(err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if why := m.copy.err; why != nil {
		return fmt.Errorf("%w: the copy is %v (%w): %w", ErrUnavailable, m.copy.state, why, err)
	}
	return fmt.Errorf("%w: the copy is %v: %w", ErrUnavailable, m.copy.state, err)
}
