package rmap

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Set stores a value under a key, for ever, and returns the revision of the change. Reads here and elsewhere see it a
// moment later: see [Map.SetAndWait]. The error is a [WriteError].
func (m *Map[K, V]) Set(ctx context.Context, key K, value V) (Revision, error) {
	return m.one(ctx, "Set", key, func(b *Batch[K, V]) { b.Set(key, value) })
}

// SetTTL is Set for a time: the entry is hidden everywhere, and removed, when it has been there for ttl, by the store's
// clock. The grain is a millisecond.
func (m *Map[K, V]) SetTTL(ctx context.Context, key K, value V, ttl time.Duration) (Revision, error) {
	return m.one(ctx, "SetTTL", key, func(b *Batch[K, V]) { b.SetTTL(key, value, ttl) })
}

// Swap is Set that returns the value that was there before, and whether there was one.
func (m *Map[K, V]) Swap(ctx context.Context, key K, value V) (old V, existed bool, r Revision, err error) {
	return m.exchange(ctx, "Swap", key, func(b *Batch[K, V]) { b.Set(key, value) })
}

// SetIfAbsent stores a value under a key that has none. If it has, the error wraps [ErrConflict].
func (m *Map[K, V]) SetIfAbsent(ctx context.Context, key K, value V) (Revision, error) {
	return m.one(ctx, "SetIfAbsent", key, func(b *Batch[K, V]) { b.IfAbsent(key).Set(key, value) })
}

// CompareAndSet replaces a value if it is old. Values are the same when their encodings are. If there is another value,
// or none, the error wraps [ErrConflict].
func (m *Map[K, V]) CompareAndSet(ctx context.Context, key K, old, value V) (Revision, error) {
	return m.one(ctx, "CompareAndSet", key, func(b *Batch[K, V]) { b.IfValue(key, old).Set(key, value) })
}

// SetAtRevision replaces the value that was written by a revision: see [Snapshot.RevisionOf]. The zero Revision stands
// for no value. If there is another one, even an equal one, the error wraps [ErrConflict].
func (m *Map[K, V]) SetAtRevision(ctx context.Context, key K, at Revision, value V) (Revision, error) {
	return m.one(ctx, "SetAtRevision", key, func(b *Batch[K, V]) { b.IfRevision(key, at).Set(key, value) })
}

// Delete removes a key. To remove what is not there is no change: it returns the revision at which it was not there.
func (m *Map[K, V]) Delete(ctx context.Context, key K) (Revision, error) {
	return m.one(ctx, "Delete", key, func(b *Batch[K, V]) { b.Delete(key) })
}

// Take is Delete that returns the value that was there, and whether there was one.
func (m *Map[K, V]) Take(ctx context.Context, key K) (old V, existed bool, r Revision, err error) {
	return m.exchange(ctx, "Take", key, func(b *Batch[K, V]) { b.Delete(key) })
}

// CompareAndDelete removes a key if its value is old. Otherwise the error wraps [ErrConflict].
func (m *Map[K, V]) CompareAndDelete(ctx context.Context, key K, old V) (Revision, error) {
	return m.one(ctx, "CompareAndDelete", key, func(b *Batch[K, V]) { b.IfValue(key, old).Delete(key) })
}

// DeleteAtRevision removes the value that was written by a revision. If there is another one, or none, the error wraps
// [ErrConflict]; the zero Revision wrote none, and is refused.
func (m *Map[K, V]) DeleteAtRevision(ctx context.Context, key K, at Revision) (Revision, error) {
	if at.IsZero() {
		return Revision{}, m.failed("DeleteAtRevision", m.quote(key), fmt.Errorf("%w: the zero Revision wrote no value", ErrInvalid))
	}
	return m.one(ctx, "DeleteAtRevision", key, func(b *Batch[K, V]) { b.IfRevision(key, at).Delete(key) })
}

// Reset removes all entries in one change. The generation, the numbers and the time to live of the map go on.
func (m *Map[K, V]) Reset(ctx context.Context) (Revision, error) {
	return m.whole(ctx, "Reset", m.Batch().Reset())
}

// TestAndReset is Reset on the condition that all the given keys have the given values; it takes at least one.
// Otherwise the error wraps [ErrConflict].
func (m *Map[K, V]) TestAndReset(ctx context.Context, want map[K]V) (Revision, error) {
	b := m.Batch()
	if len(want) == 0 {
		b.err = fmt.Errorf("%w: no key to test: use Reset", ErrInvalid)
	}
	for key, value := range want {
		b.IfValue(key, value)
	}
	return m.whole(ctx, "TestAndReset", b.Reset())
}

// Destroy removes the map from the store. Its generation and number are remembered for [TombstoneTTL], so that a process
// that was away meanwhile is not deceived, and then nothing is left. Writes begin it again, with the writer's TTL.
func (m *Map[K, V]) Destroy(ctx context.Context) (Revision, error) {
	b := m.Batch()
	b.w.Ops = append(b.w.Ops, Op{Do: DoDestroy})
	return m.whole(ctx, "Destroy", b)
}

// Update replaces the value under a key by what fn makes of it, as often as it takes until nobody else changed it in
// between. fn gets the present value and whether there is one; it may run several times and must do nothing else. An
// error of fn ends Update, is returned as it is, and nothing is written. The entry keeps its deadline.
func (m *Map[K, V]) Update(ctx context.Context, key K, fn func(old V, ok bool) (V, error)) (V, Revision, error) {
	var zero V
	ctx, cancel := m.limit(ctx)
	defer cancel()
	s := m.Snapshot()
	at, _ := s.RevisionOf(key)
	old, ok := s.Get(key)
	if !ok && !at.IsZero() {
		_, err := m.undecoded(key)
		return zero, Revision{}, m.failed("Update", m.quote(key), err)
	}
	for {
		value, err := fn(old, ok)
		if err != nil {
			return zero, Revision{}, err
		}
		res, err := m.do(ctx, "Update", m.quote(key), m.Batch().IfRevision(key, at).SetKeepTTL(key, value))
		if !errors.Is(err, ErrConflict) {
			return value, res.Revision, err
		}
		// The store said what is there, so the next try does not depend on this copy.
		old, ok, at = zero, false, Revision{}
		if e := res.Current; e != nil {
			at = Revision{res.Revision.Generation, e.Number, e.Nonce}
			if old, err = m.decode(e.Value); err != nil {
				return zero, Revision{}, m.failed("Update", m.quote(key), err)
			}
			ok = true
		}
		if err := ctx.Err(); err != nil {
			return zero, Revision{}, m.failed("Update", m.quote(key), err)
		}
	}
}

// undecoded returns why a key that is there has no value.
func (m *Map[K, V]) undecoded(key K) (V, error) {
	var zero V
	if e := m.entry(key); e != nil && e.Value.err != nil {
		return zero, e.Value.err
	}
	return zero, ErrDecode
}

// one does a write of one key.
func (m *Map[K, V]) one(ctx context.Context, op string, key K, fill func(*Batch[K, V])) (Revision, error) {
	b := m.Batch()
	fill(b)
	res, err := m.do(ctx, op, b.first(), b)
	return res.Revision, err
}

func (m *Map[K, V]) whole(ctx context.Context, op string, b *Batch[K, V]) (Revision, error) {
	res, err := m.do(ctx, op, "", b)
	return res.Revision, err
}

// exchange does a write whose caller wants to know what was there.
func (m *Map[K, V]) exchange(ctx context.Context, op string, key K, fill func(*Batch[K, V])) (old V, existed bool, r Revision, err error) {
	b := m.Batch()
	b.w.WantOld = true
	fill(b)
	res, err := m.do(ctx, op, b.first(), b)
	if err != nil {
		return old, false, res.Revision, err
	}
	if len(res.Old) > 0 && res.Old[0] != nil {
		// It was replaced all the same, so a value that does not decode is not an error of the write.
		old, err = m.decode(res.Old[0].Value)
		if err != nil {
			err = &WriteError{Op: op, Map: m.name, Key: m.quote(key), Outcome: Applied, Revision: res.Revision, Err: err}
		}
		existed = true
	}
	return old, existed, res.Revision, err
}

// do sends a batch to the store and says what became of it. key is how it is called in errors. After a conflict the
// result is returned too.
func (m *Map[K, V]) do(ctx context.Context, op, key string, b *Batch[K, V]) (Result, error) {
	err := b.check()
	if err == nil && m.life.Err() != nil {
		err = ErrClosed
	}
	if err != nil {
		return Result{}, m.failed(op, key, err)
	}
	ctx, cancel := m.limit(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return Result{}, m.failed(op, key, err)
	}
	b.w.Lifetime, b.w.MaxEntries = m.lifetime(), m.opts.MaxEntries
	res, err := m.store.Write(ctx, m.name, b.w)
	if err != nil {
		return Result{}, m.failed(op, key, err)
	}
	if res.Conflict > 0 {
		return res, m.failed(op, key, conflict(b.w.If[res.Conflict-1].Key, res))
	}
	m.mu.Lock()
	m.copy.stats.Writes++
	m.mu.Unlock()
	return res, nil
}

func conflict(key string, res Result) *ConflictError {
	e := &ConflictError{Key: quote(key), Current: res.Revision}
	if res.Current != nil {
		e.Present = true
		e.Current = Revision{res.Revision.Generation, res.Current.Number, res.Current.Nonce}
	}
	return e
}

// failed counts and dresses the error of a write.
func (m *Map[K, V]) failed(op, key string, err error) error {
	e := &WriteError{Op: op, Map: m.name, Key: key, Outcome: NotApplied, Err: err}
	if errors.Is(err, ErrUnknown) {
		e.Outcome = Unknown
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &m.copy.stats
	switch {
	case errors.Is(err, ErrConflict):
		s.Conflicts++
	case e.Outcome == Unknown:
		s.Unknown++
		s.Failures++
	default:
		s.Failures++
	}
	return e
}
