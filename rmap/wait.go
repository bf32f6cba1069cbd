package rmap

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// Sync makes every write visible here that was finished before it was called, by whatever process: it asks the store
// where the map stands, one round trip at any size, and reads what is missing if anything is. Calls at the same time
// share a round trip that begins after all of them. While the store is away it waits, until the context ends or, when
// that has no deadline, [Options.Timeout]; the error then wraps [ErrUnavailable] and the copy is untouched.
//
// What the store has lost, by an expiry, a restart without data or a failover, is no write that was finished: after
// Sync the copy shows what the store has.
func (m *Map[K, V]) Sync(ctx context.Context) error {
	ctx, cancel := m.limit(ctx)
	defer cancel()
	if err := m.sync(ctx); err != nil {
		return fmt.Errorf("rmap: sync map %q: %w", m.name, err)
	}
	return nil
}

func (m *Map[K, V]) sync(ctx context.Context) error {
	if ctx.Err() != nil {
		return m.loadError(context.Cause(ctx))
	}
	m.mu.Lock()
	c := &m.copy
	if c.state == Closed {
		m.mu.Unlock()
		return m.closedError()
	}
	if c.asked == nil {
		c.asked = &round{done: make(chan struct{})}
	}
	r := c.asked
	r.callers++
	m.mu.Unlock()
	m.nudge()
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
	}
	m.mu.Lock()
	r.callers--
	m.mu.Unlock()
	select {
	case <-r.done: // it came together with the end of the context
		return r.err
	default:
	}
	return m.loadError(context.Cause(ctx))
}

// WaitFor returns when the copy shows the change that a revision names and everything before it. It costs nothing when
// that is known already, and a [Map.Sync] otherwise. So a request can carry the revision of a write from the process that
// made it to another one, which then reads what was written, or something newer.
//
// The error wraps [ErrGone] when the store's history does not contain the revision: the map expired, was removed or
// began a new life, or the store went back to an older state. A revision of the same generation that is older than the
// last 1024, or than the last reading of the whole map, is taken to be part of the history. The zero Revision, which a
// write that found nothing to change in an empty map returns, is as good as Sync.
func (m *Map[K, V]) WaitFor(ctx context.Context, r Revision) error {
	ctx, cancel := m.limit(ctx)
	defer cancel()
	if err := m.waitFor(ctx, r); err != nil {
		return fmt.Errorf("rmap: wait for revision %v of map %q: %w", r, m.name, err)
	}
	return nil
}

func (m *Map[K, V]) waitFor(ctx context.Context, r Revision) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.remembers(r) {
		return nil
	}
	if err := m.sync(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.IsZero() || m.copy.cursor.Covers(feed.Position(r)) {
		return nil
	}
	return fmt.Errorf("%w: the map is at %v", ErrGone, m.copy.revision())
}

// remembers tells whether the copy surely shows r.
func (m *Map[K, V]) remembers(r Revision) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !r.IsZero() && m.copy.cursor.Remembers(feed.Position(r))
}

// SetAndWait is [Map.Set] followed by [Map.WaitFor] the revision that it made: when it returns nil, reads here show the
// value, or a newer one, also when the store was set back and the map was read anew meanwhile. When the write was
// applied but is not seen in time, the error wraps [ErrNotSeen], and its outcome is [AppliedNotSeen]. When the map lost
// the write at once, because it expired for example, the error wraps [ErrGone] as well.
func (m *Map[K, V]) SetAndWait(ctx context.Context, key K, value V) (Revision, error) {
	ctx, cancel := m.limit(ctx)
	defer cancel()
	r, err := m.Set(ctx, key, value)
	if err != nil {
		return r, err
	}
	err = m.waitFor(ctx, r)
	if err == nil {
		err = m.sees(key, r)
	} else {
		err = fmt.Errorf("%w: %w", ErrNotSeen, err)
	}
	if err != nil {
		return r, &WriteError{Op: "SetAndWait", Map: m.name, Key: m.quote(key), Outcome: AppliedNotSeen, Revision: r, Err: err}
	}
	return r, nil
}

// sees returns nil if what a change wrote under a key, or something newer, is surely in the copy, which stands behind
// that change. After the map was read as a whole it is not known any more which changes led there, but an entry says
// which one wrote it.
func (m *Map[K, V]) sees(key K, r Revision) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.copy.cursor.Remembers(feed.Position(r)) {
		return nil
	}
	switch e := m.copy.tree.Get(key); {
	case e == nil:
		return fmt.Errorf("%w: it was removed since, or the store went back", ErrNotSeen)
	case e.Value.nonce == r.Nonce || e.Value.number > r.Number:
		return nil
	}
	return fmt.Errorf("%w: %w: the store went back", ErrNotSeen, ErrGone)
}
