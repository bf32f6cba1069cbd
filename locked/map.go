package locked

import (
	"context"
	"fmt"
	"hash/maphash"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Map is a map behind one lock: whatever one section changes, in as many keys as it
// likes, others see all of it or none of it. It is made by [NewMap] and must not be copied.
//
// Reading is allowed anywhere but inside of other updates, sections and transactions, and
// waits for a section in flight. Writing is allowed inside of [Map.Synchronize] alone.
// Inside of a section of a map all methods of that map work on the state of the section.
//
// Keys are compared with ==. A key of an interface type whose value cannot be compared
// panics, as with Go's own maps. Go cannot freeze values: replace what was stored, and do
// not modify it.
type Map[K comparable, V any] struct {
	seed  maphash.Seed
	lock  lock
	index index[K, V, stamp]

	// What follows belongs to who has the lock.
	undo   []was[K, V]
	number uint64 // of the innermost section, or of what follows an inner one; never used twice
	size   int    // keys with a value
	clears int    // how often the table was replaced by an empty one, or put back
}

// stamp is the number of the section that wrote to an entry last, and its hash.
type stamp struct {
	section uint64
	hash    uint64
}

type mapEntry[K comparable, V any] = entry[K, V, stamp]

// NewMap returns a map with a copy of the entries of initial, which may be nil.
func NewMap[K comparable, V any](initial map[K]V) *Map[K, V] {
	m := &Map[K, V]{seed: maphash.MakeSeed()}
	for k, v := range initial {
		m.store(k, v)
	}
	m.commit()
	return m
}

// Load returns the value of a key, and whether there is one. It waits for a section in
// flight. It panics with a [*NestedError] inside of an update, a section of another map or a
// transaction.
func (m *Map[K, V]) Load(key K) (v V, ok bool) {
	hash := hashOf(m.seed, key, "Map")
	if top := held.Who().Top(); refuses(top) {
		m.allow("Load of a locked.Map", top)
		return m.look(hash, key)
	}
	if before := m.lock.word.Load(); before&taken == 0 {
		if v, ok = m.look(hash, key); m.unchanged(before) {
			return v, ok
		}
	}
	v, ok, _ = m.loadSlow(context.Background(), hash, key) // cannot fail without a context
	return v, ok
}

// LoadContext is Load until the context ends, and returns a [*NestedError] where Load
// panics. When the context ends first the error matches ctx.Err() and context.Cause(ctx);
// where there is nothing to wait for the context does not matter.
func (m *Map[K, V]) LoadContext(ctx context.Context, key K) (v V, ok bool, err error) {
	if ctx == nil {
		panic(noContext("LoadContext of a locked.Map"))
	}
	hash := hashOf(m.seed, key, "Map")
	if top := held.Who().Top(); m.inside(top) {
		v, ok = m.look(hash, key)
		return v, ok, nil
	} else if refuses(top) {
		return v, false, refusal(m.call("LoadContext of a locked.Map"), top)
	}
	return m.loadSlow(ctx, hash, key)
}

// LoadOr is Load, but returns what the function makes when there is no value. The function
// runs with no lock held but those that the caller is inside of, and what it makes is not stored.
func (m *Map[K, V]) LoadOr(key K, fn func() V) V {
	if fn == nil {
		panic(noFunction("LoadOr of a locked.Map"))
	}
	if v, ok := m.Load(key); ok {
		return v
	}
	return fn()
}

// Contains reports whether a key has a value. It waits as Load does.
func (m *Map[K, V]) Contains(key K) bool {
	_, ok := m.Load(key)
	return ok
}

// loadSlow reads without the lock while that goes well, and else takes its turn.
func (m *Map[K, V]) loadSlow(ctx context.Context, hash uint64, key K) (v V, ok bool, err error) {
	for range glances {
		before := m.lock.word.Load()
		if before&taken != 0 {
			break
		}
		if v, ok = m.look(hash, key); m.unchanged(before) {
			return v, ok, nil
		}
	}
	if err := m.lock.lock(ctx); err != nil {
		var none V
		return none, false, err
	}
	v, ok = m.look(hash, key)
	m.lock.unlock()
	return v, ok, nil
}

// allow lets a goroutine that is inside of something go on if that is a section of this map,
// and panics otherwise.
func (m *Map[K, V]) allow(name string, top held.Frame) {
	if !m.inside(top) {
		panic(refusal(m.call(name), top))
	}
}

// glances is how often a reader tries without the lock.
const glances = 3

// unchanged reports whether nobody has had the lock since its word was read, when it was
// free. Then what was read meanwhile was there all the time.
func (m *Map[K, V]) unchanged(before uint64) bool {
	now := m.lock.word.Load()
	return now&taken == 0 && now/release == before/release
}

// look returns the value of a key as it is now.
func (m *Map[K, V]) look(hash uint64, key K) (v V, ok bool) {
	if e := m.index.find(hash, key); e != nil {
		if p := e.cell.p.Load(); p != nil { // a Map adds to no number, so there is no other place
			return *p, true
		}
	}
	return v, false
}

// Copy returns a map of the keys and values as they were at one instant. It waits as Load
// does. Its price grows with the map.
func (m *Map[K, V]) Copy() map[K]V {
	out := make(map[K]V)
	m.snapshot("Copy of a locked.Map", func() { clear(out) }, func(k K, v V) { out[k] = v })
	return out
}

// Keys returns the keys as they were at one instant, in no order. It waits as Load does.
func (m *Map[K, V]) Keys() []K {
	var keys []K
	m.snapshot("Keys of a locked.Map", func() { keys = keys[:0] }, func(k K, _ V) { keys = append(keys, k) })
	return keys
}

// snapshot adds all that is there at one instant, beginning anew when that has passed.
func (m *Map[K, V]) snapshot(name string, begin func(), add func(K, V)) {
	if top := held.Who().Top(); refuses(top) {
		m.allow(name, top)
		m.each(add)
		return
	}
	if m.glance(begin, add) {
		return
	}
	m.lock.lock(context.Background())
	begin()
	m.each(add)
	m.lock.unlock()
}

// glance is a snapshot without the lock, which others may need meanwhile. It reports false
// when that failed.
func (m *Map[K, V]) glance(begin func(), add func(K, V)) bool {
	for range glances {
		before := m.lock.word.Load()
		if before&taken != 0 {
			return false
		}
		begin()
		m.each(add)
		if m.unchanged(before) {
			return true
		}
	}
	return false
}

func (m *Map[K, V]) each(add func(K, V)) {
	for e := range m.index.all {
		if v, ok := e.cell.get(); ok {
			add(e.key, v)
		}
	}
}

// String formats the keys and values as they were at one instant, as fmt.Sprint formats a
// map. It never waits: while a section of another goroutine is in flight it says that instead.
func (m *Map[K, V]) String() string {
	out := make(map[K]V)
	add := func(k K, v V) { out[k] = v }
	if m.inside(held.Who().Top()) {
		m.each(add)
	} else if !m.glance(func() { clear(out) }, add) {
		return "a locked.Map in a section"
	}
	return fmt.Sprint(out)
}

// inside reports whether a frame is a section of this map.
func (m *Map[K, V]) inside(top held.Frame) bool {
	return top.Kind == held.Map && top.Of == unsafe.Pointer(m)
}

func (m *Map[K, V]) call(name string) call {
	return call{name: name, kind: held.Map, of: unsafe.Pointer(m)}
}
