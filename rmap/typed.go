package rmap

import (
	"context"
	"errors"
	"fmt"
	"reflect"
)

// Inc adds delta to the integer under a key, in the store, and returns the sum; a key without a value counts as 0. The
// entry keeps its deadline. The error wraps [ErrKind] when something else is stored there, and [ErrRange] when the sum
// leaves the range of an int64; nothing is written then. A sum that does not fit into V is written, but the error says
// so. The map's values must be those of [Ints], the default; those of another codec are no integers for the store.
func Inc[K comparable, V Signed](ctx context.Context, m *Map[K, V], key K, delta V) (V, Revision, error) {
	if v, err := m.opts.Values.Encode(delta); err != nil || v.Kind != Integer {
		err = fmt.Errorf("%w: the map's codec is %T, Inc needs Ints", ErrKind, m.opts.Values)
		return 0, Revision{}, m.failed("Inc", m.quote(key), err)
	}
	b := m.Batch()
	b.w.WantOld = true
	b.op(key, Op{Do: DoAdd, Delta: int64(delta), KeepTTL: true})
	res, err := m.do(ctx, "Inc", b.first(), b)
	if err != nil {
		return 0, Revision{}, err
	}
	sum := int64(delta)
	if len(res.Old) > 0 && res.Old[0] != nil {
		old, err := decodeInt[int64](res.Old[0].Value.Data)
		if err != nil {
			return 0, res.Revision, m.seen("Inc", key, res.Revision, err)
		}
		sum += old // the store has refused what leaves the range
	}
	if int64(V(sum)) != sum {
		err = fmt.Errorf("%w: %d does not fit into %v", ErrRange, sum, reflect.TypeFor[V]())
		return 0, res.Revision, m.seen("Inc", key, res.Revision, err)
	}
	return V(sum), res.Revision, nil
}

// Append adds items at the end of the list under a key, in the store, and returns the list that results. A key without
// a value counts as an empty list, and one whose value is no list is left alone: the error wraps [ErrKind]. The entry
// keeps its deadline. The map's values must be those of [Lists]; no items, no change.
func Append[K comparable, E any](ctx context.Context, m *Map[K, []E], key K, items ...E) ([]E, Revision, error) {
	return list(ctx, m, "Append", DoAppend, key, items)
}

// AppendUnique is [Append] without the items that are in the list already.
func AppendUnique[K comparable, E any](ctx context.Context, m *Map[K, []E], key K, items ...E) ([]E, Revision, error) {
	return list(ctx, m, "AppendUnique", DoAppendUnique, key, items)
}

// Remove takes items out of the list under a key, in the store, all that are encoded to the same bytes, and returns the
// list that is left. An empty list is removed with its key. Otherwise it is like [Append].
func Remove[K comparable, E any](ctx context.Context, m *Map[K, []E], key K, items ...E) ([]E, Revision, error) {
	return list(ctx, m, "Remove", DoRemove, key, items)
}

func list[K comparable, E any](ctx context.Context, m *Map[K, []E], op string, do Action, key K, items []E) ([]E, Revision, error) {
	codec, ok := m.opts.Values.(listCodec[E])
	if !ok {
		err := fmt.Errorf("%w: the map's codec is %T, lists need Lists", ErrKind, m.opts.Values)
		return nil, Revision{}, m.failed(op, m.quote(key), err)
	}
	data, err := codec.encodeItems(items)
	if err != nil {
		return nil, Revision{}, m.failed(op, m.quote(key), fmt.Errorf("%w: %w", ErrInvalid, err))
	}
	b := m.Batch()
	b.w.WantOld = true
	b.op(key, Op{Do: do, Items: data, KeepTTL: true})
	res, err := m.do(ctx, op, b.first(), b)
	if err != nil {
		return nil, Revision{}, err
	}
	var old []string
	if len(res.Old) > 0 && res.Old[0] != nil {
		old, err = DecodeList(res.Old[0].Value.Data)
	}
	var out []E
	if err == nil {
		out, err = codec.Decode(Value{List, EncodeList(ChangeList(do, old, data))})
	}
	if err != nil {
		return nil, res.Revision, m.seen(op, key, res.Revision, err)
	}
	return out, res.Revision, nil
}

// seen dresses an error about the result of a write that was applied.
func (m *Map[K, V]) seen(op string, key K, r Revision, err error) error {
	if !errors.Is(err, ErrDecode) && !errors.Is(err, ErrRange) {
		err = fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return &WriteError{Op: op, Map: m.name, Key: m.quote(key), Outcome: Applied, Revision: r, Err: err}
}
