package locked

import (
	"context"
	"fmt"
	"iter"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Peek returns the value of a key that was stored last, and whether there is one. It takes
// no lock and never waits, so it is allowed anywhere. An update in flight is not seen.
func (m *KeyMap[K, V]) Peek(key K) (v V, ok bool) {
	hash, p := m.at(key)
	if e := p.index.find(hash, key); e != nil {
		return e.cell.get()
	}
	return v, false
}

// Load returns the value of a key, and whether there is one. When an update of the key is
// in flight it waits for its end, so that the whole function of an update is one step for
// it. It panics with a [*NestedError] inside of an update, a section or a transaction; use
// [KeyMap.Peek] there.
func (m *KeyMap[K, V]) Load(key K) (v V, ok bool) {
	hash, p := m.enter("Load of a locked.KeyMap", key)
	e := p.index.find(hash, key)
	if e == nil {
		return v, false
	}
	if e.extra.taken() {
		_ = e.extra.settle(context.Background()) // cannot fail without a context
	}
	// Without a value the entry has left the map since it was found there, so that the key
	// was absent at an instant of this call.
	return e.cell.get()
}

// LoadContext is Load until the context ends, and returns a [*NestedError] where Load
// panics. When the context ends first the error matches ctx.Err() and context.Cause(ctx);
// where there is nothing to wait for the context does not matter.
func (m *KeyMap[K, V]) LoadContext(ctx context.Context, key K) (v V, ok bool, err error) {
	if ctx == nil {
		panic(noContext("LoadContext of a locked.KeyMap"))
	}
	if top := held.Who().Top(); refuses(top) {
		return v, false, refusal(keyCall("LoadContext of a locked.KeyMap"), top)
	}
	hash, p := m.at(key)
	e := p.index.find(hash, key)
	if e == nil {
		return v, false, nil
	}
	if e.extra.taken() {
		if err := e.extra.settle(ctx); err != nil {
			return v, false, err
		}
	}
	v, ok = e.cell.get()
	return v, ok, nil
}

// LoadOr is Load, but returns what the function makes when there is no value. The function
// runs with no lock held, and what it makes is not stored.
func (m *KeyMap[K, V]) LoadOr(key K, fn func() V) V {
	if fn == nil {
		panic(noFunction("LoadOr of a locked.KeyMap"))
	}
	if v, ok := m.Load(key); ok {
		return v
	}
	return fn()
}

// Contains reports whether a key has a value. It never waits; see [KeyMap.Peek].
func (m *KeyMap[K, V]) Contains(key K) bool {
	hash, p := m.at(key)
	e := p.index.find(hash, key)
	return e != nil && e.cell.full()
}

// All yields keys with their values, in no order. It waits for no update, and its loop may
// do anything with the map. No key comes twice. A key that is there from the beginning to
// the end comes; one that is stored or deleted meanwhile may come or not. Each value is the
// one that was stored last when it is yielded, so that the values of two keys may never
// have been there together.
func (m *KeyMap[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		var found []*keyEntry[K, V]
		for i := range m.parts {
			found = m.parts[i].entries(found[:0])
			for _, e := range found {
				if v, ok := e.cell.get(); ok && !yield(e.key, v) {
					return
				}
			}
		}
	}
}

// entries appends the entries of a part at one instant. In a table that changes meanwhile
// a key may have more than one.
func (p *part[K, V]) entries(to []*keyEntry[K, V]) []*keyEntry[K, V] {
	if p.index.table.Load() == nil {
		return to
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for e := range p.index.all {
		to = append(to, e)
	}
	return to
}

// Keys returns the keys, as [KeyMap.All] yields them.
func (m *KeyMap[K, V]) Keys() []K {
	var keys []K
	for k := range m.All() {
		keys = append(keys, k)
	}
	return keys
}

// Copy returns a map of the keys and values, as [KeyMap.All] yields them: each value is one
// that the key had, but no two need to have been there at the same time.
func (m *KeyMap[K, V]) Copy() map[K]V {
	out := make(map[K]V)
	for k, v := range m.All() {
		out[k] = v
	}
	return out
}

// String formats the keys and values as fmt.Sprint formats a map. It waits for no update.
func (m *KeyMap[K, V]) String() string { return fmt.Sprint(m.Copy()) }
