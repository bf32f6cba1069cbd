package rmap

import (
	"context"
	"fmt"
	"time"
)

// A Batch collects conditions and operations that are done in one atomic step, as one change with one revision: every
// process sees all of it at once. Its methods return the batch, so that they can be chained; what is wrong with one is
// returned by [Batch.Write]. A batch is for one goroutine and one Write.
type Batch[K comparable, V any] struct {
	m    *Map[K, V]
	w    Write
	size int
	done bool
	err  error
}

// Batch returns an empty batch, at most [MaxOps] operations and conditions and [MaxWrite] bytes.
func (m *Map[K, V]) Batch() *Batch[K, V] { return &Batch[K, V]{m: m} }

// IfAbsent demands that there is nothing under a key.
func (b *Batch[K, V]) IfAbsent(key K) *Batch[K, V] { return b.cond(key, Condition{Test: IsAbsent}) }

// IfPresent demands that there is a value under a key.
func (b *Batch[K, V]) IfPresent(key K) *Batch[K, V] { return b.cond(key, Condition{Test: IsPresent}) }

// IfValue demands that there is this value under a key: one that is encoded to the same bytes.
func (b *Batch[K, V]) IfValue(key K, value V) *Batch[K, V] {
	return b.cond(key, Condition{Test: HasValue, Value: b.encode(value)})
}

// IfRevision demands that the value under a key was written by this revision; the zero Revision demands that there is
// none.
func (b *Batch[K, V]) IfRevision(key K, r Revision) *Batch[K, V] {
	if r.IsZero() {
		return b.IfAbsent(key)
	}
	return b.cond(key, Condition{Test: HasNonce, Nonce: r.Nonce})
}

// Set stores a value under a key for ever, whatever time it had.
func (b *Batch[K, V]) Set(key K, value V) *Batch[K, V] {
	return b.op(key, Op{Do: DoSet, Value: b.encode(value)})
}

// SetTTL stores a value under a key for a time.
func (b *Batch[K, V]) SetTTL(key K, value V, ttl time.Duration) *Batch[K, V] {
	b.fail(checkTTL(ttl))
	return b.op(key, Op{Do: DoSet, Value: b.encode(value), TTL: ttl})
}

// SetKeepTTL stores a value under a key until the deadline that the key has, for ever if it has none.
func (b *Batch[K, V]) SetKeepTTL(key K, value V) *Batch[K, V] {
	return b.op(key, Op{Do: DoSet, Value: b.encode(value), KeepTTL: true})
}

// Delete removes a key.
func (b *Batch[K, V]) Delete(key K) *Batch[K, V] { return b.op(key, Op{Do: DoDelete}) }

// Reset removes all entries; operations after it apply to an empty map.
func (b *Batch[K, V]) Reset() *Batch[K, V] {
	b.w.Ops = append(b.w.Ops, Op{Do: DoClear})
	return b
}

// Write does the batch and returns the revision of its change. If a condition does not hold, nothing is done and the
// error wraps [ErrConflict]; see [ConflictError] for which.
func (b *Batch[K, V]) Write(ctx context.Context) (Revision, error) {
	res, err := b.m.do(ctx, "Batch", "", b)
	return res.Revision, err
}

func (b *Batch[K, V]) cond(key K, c Condition) *Batch[K, V] {
	c.Key = b.key(key)
	b.w.If = append(b.w.If, c)
	b.size += len(c.Key) + len(c.Value.Data)
	return b
}

func (b *Batch[K, V]) op(key K, op Op) *Batch[K, V] {
	op.Key = b.key(key)
	b.w.Ops = append(b.w.Ops, op)
	b.size += len(op.Key) + len(op.Value.Data)
	for _, item := range op.Items {
		b.size += len(item)
	}
	return b
}

func (b *Batch[K, V]) key(key K) string {
	data, err := b.m.keys.encode(key)
	b.fail(err)
	return data
}

func (b *Batch[K, V]) encode(value V) Value {
	v, err := b.m.opts.Values.Encode(value)
	if err != nil {
		b.fail(fmt.Errorf("%w: the value cannot be encoded: %w", ErrInvalid, err))
	} else if len(v.Data) > MaxValue {
		b.fail(fmt.Errorf("%w: the value has %d bytes, the limit is %d", ErrTooLarge, len(v.Data), MaxValue))
	}
	return v
}

// fail keeps the first thing that is wrong with the batch.
func (b *Batch[K, V]) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// first returns how the batch's first key is called in errors.
func (b *Batch[K, V]) first() string {
	for _, op := range b.w.Ops {
		if op.Key != "" {
			return quote(op.Key)
		}
	}
	return ""
}

// check says what is wrong with the batch as a whole.
func (b *Batch[K, V]) check() error {
	switch {
	case b.err != nil:
		return b.err
	case b.done:
		return fmt.Errorf("%w: the batch was written already", ErrInvalid)
	case len(b.w.Ops)+len(b.w.If) > MaxOps:
		return fmt.Errorf("%w: %d operations and conditions, the limit is %d", ErrTooLarge, len(b.w.Ops)+len(b.w.If), MaxOps)
	case b.size > MaxWrite:
		return fmt.Errorf("%w: the write has %d bytes, the limit is %d", ErrTooLarge, b.size, MaxWrite)
	}
	b.done = true
	return nil
}
