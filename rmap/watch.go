package rmap

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync"
)

// A Cause says what an [Event] is about.
type Cause uint8

const (
	// CauseSet: the key has a new value.
	CauseSet Cause = iota + 1
	// CauseDelete: the key was removed.
	CauseDelete
	// CauseExpire: the key's time was over.
	CauseExpire
	// CauseReset: everything that was there is gone: the map was cleared, destroyed, or expired; or the store holds
	// another life or an older state of it, and what that has must be read again.
	CauseReset
	// CauseReload: changes were missed, and the copy was read anew: anything may have changed, so read again.
	CauseReload
	// CauseAgain: the subscriber fell behind, and events were dropped up to the event's revision: read again.
	CauseAgain
	// CauseBroken: a value, or a key, could not be decoded: see Err.
	CauseBroken
)

// String returns the cause in a word.
func (c Cause) String() string {
	switch c {
	case CauseSet:
		return "set"
	case CauseDelete:
		return "delete"
	case CauseExpire:
		return "expire"
	case CauseReset:
		return "reset"
	case CauseReload:
		return "reload"
	case CauseAgain:
		return "again"
	case CauseBroken:
		return "broken"
	}
	return "unknown cause"
}

// An Event says what changed in the copy. When a subscriber gets it, reads show that state or a later one. After
// CauseReset, CauseReload and CauseAgain the map must be read again; a [Map.Snapshot] taken then has all that was
// missed, and the events after it follow.
type Event[K comparable, V any] struct {
	Cause  Cause
	Key    K    // for CauseSet, CauseDelete, CauseExpire; for CauseBroken unless it is the key that did not decode
	Old    V    // the value before, if HasOld
	New    V    // the value after, if HasNew
	HasKey bool // unless it concerns the whole map, or it is the key that did not decode
	HasOld bool
	HasNew bool
	// Revision is that of the change. When an entry expires, that is where the copy stood at its deadline: the store
	// removes it with a later change, which is not told again.
	Revision Revision
	Err      error // for CauseBroken
}

// WatchOptions are those of [Map.Watch].
type WatchOptions struct {
	// Events is how many the subscriber may be behind. Default [DefaultEvents].
	Events int
}

// Watch subscribes to the changes of the copy, from the call on. The sequence ends with the context, or when the map is
// closed; it may be ranged over once. A subscriber that falls behind by more than its buffer loses what is in it and
// gets one event with [CauseAgain] instead, so nothing grows and nothing is lost in silence.
func (m *Map[K, V]) Watch(ctx context.Context, o WatchOptions) iter.Seq[Event[K, V]] {
	_, events := m.Follow(ctx, o)
	return events
}

// Follow returns the copy as it is now, and the events that lead on from there: none is in both, and none is missing.
// Otherwise it is like [Map.Watch].
func (m *Map[K, V]) Follow(ctx context.Context, o WatchOptions) (Snapshot[K, V], iter.Seq[Event[K, V]]) {
	if o.Events <= 0 {
		o.Events = DefaultEvents
	}
	s := &subscriber[K, V]{limit: o.Events, ready: make(chan struct{}, 1)}
	m.mu.Lock()
	if v := m.shown.Load(); v.ends != 0 && m.copy.clock.now() >= v.ends {
		m.expire(math.MaxInt)
	}
	now := Snapshot[K, V]{m.shown.Load()}
	if m.copy.state == Closed {
		s.end()
	} else {
		if m.copy.subs == nil {
			m.copy.subs = map[*subscriber[K, V]]struct{}{}
		}
		m.copy.subs[s] = struct{}{}
	}
	m.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { m.unsubscribe(s) })
	return now, func(yield func(Event[K, V]) bool) {
		defer stop()
		defer m.unsubscribe(s)
		for {
			e, ok := s.next(ctx)
			if !ok || !yield(e) {
				return
			}
		}
	}
}

func (m *Map[K, V]) unsubscribe(s *subscriber[K, V]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.copy.subs, s)
	s.end()
}

// endSubscribers ends all sequences. The mutex is held.
func (m *Map[K, V]) endSubscribers() {
	for s := range m.copy.subs {
		s.end()
	}
	m.copy.subs = nil
}

// A subscriber is the queue between the copy, which must not wait, and one reader.
type subscriber[K comparable, V any] struct {
	limit int
	ready chan struct{} // has room for one: something was added, or it ended

	mu     sync.Mutex // guards all below; taken after the map's, never before
	queue  []Event[K, V]
	again  Revision // where the reader must read again from, when behind
	behind bool
	ended  bool
}

// add queues an event, and tells how many were lost because of it and whether the subscriber has just fallen behind.
func (s *subscriber[K, V]) add(e Event[K, V]) (lost int, fell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ended:
		return 0, false
	case s.behind:
		s.again = e.Revision
		return 1, false
	case len(s.queue) >= s.limit:
		lost, fell = len(s.queue)+1, true
		s.queue, s.behind, s.again = nil, true, e.Revision
	default:
		s.queue = append(s.queue, e)
	}
	s.signal()
	return lost, fell
}

func (s *subscriber[K, V]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.signal()
}

func (s *subscriber[K, V]) signal() {
	select {
	case s.ready <- struct{}{}:
	default:
	}
}

// next waits for an event. What was queued when the map was closed is still given; after the context nothing is.
func (s *subscriber[K, V]) next(ctx context.Context) (e Event[K, V], ok bool) {
	for {
		if ctx.Err() != nil {
			return e, false
		}
		s.mu.Lock()
		switch {
		case s.behind:
			e = Event[K, V]{Cause: CauseAgain, Revision: s.again}
			s.behind = false
			s.mu.Unlock()
			return e, true
		case len(s.queue) > 0:
			e = s.queue[0]
			s.queue[0] = Event[K, V]{} // what was delivered must not be kept alive
			s.queue = s.queue[1:]
			s.mu.Unlock()
			return e, true
		case s.ended:
			s.mu.Unlock()
			return e, false
		}
		s.mu.Unlock()
		select {
		case <-s.ready:
		case <-ctx.Done():
		}
	}
}

// tell has subscribers told of an event by the next deliver. The mutex is held.
func (m *Map[K, V]) tell(e Event[K, V]) {
	if c := &m.copy; len(c.subs) > 0 {
		c.told = append(c.told, e)
	}
}

// deliver hands what is to be told to all subscribers. The mutex is held, so all get all in the same order.
func (m *Map[K, V]) deliver() {
	c := &m.copy
	for s := range c.subs {
		for _, e := range c.told {
			lost, fell := s.add(e)
			c.stats.Dropped += uint64(lost)
			if fell {
				c.stats.Overflows++
				m.note(slog.LevelWarn, "a subscriber fell behind and must read again", "limit", s.limit, "revision", e.Revision.String())
			}
		}
	}
	const kept = 64 // so that a large change does not hold on to memory for ever
	if clear(c.told); cap(c.told) > kept {
		c.told = nil
	}
	c.told = c.told[:0]
}

// tellBroken tells of a key, or of the value under one, that did not decode.
func (m *Map[K, V]) tellBroken(key *K, r Revision, err error) {
	e := Event[K, V]{Cause: CauseBroken, Revision: r, Err: err}
	where := "a key"
	if key != nil {
		e.Key, e.HasKey = *key, true
		where = m.quote(*key)
	}
	m.copy.stats.Undecoded++
	m.note(slog.LevelWarn, "an entry cannot be decoded", "key", where, "revision", r.String())
	m.tell(e)
}

// changed makes the event for one key.
func changed[K comparable, V any](cause Cause, r Revision, old, new *item[K, V]) Event[K, V] {
	e := Event[K, V]{Cause: cause, Revision: r}
	if old != nil {
		e.Key, e.HasKey = old.Key, true
		e.Old, e.HasOld = old.Value.value, old.Value.err == nil
	}
	if new != nil {
		e.Key, e.HasKey = new.Key, true
		e.New, e.HasNew = new.Value.value, true
	}
	return e
}

// String returns the event for logs: without values.
func (e Event[K, V]) String() string {
	return fmt.Sprintf("%v %v at %v", e.Cause, e.Key, e.Revision)
}
