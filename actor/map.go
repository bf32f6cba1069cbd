package actor

import (
	"context"
	"maps"
	"runtime"
)

// Map is a map that only one goroutine, its owner, touches. Make it with NewMap; it may
// be used from any goroutine. Like an Object it is passed on as a pointer.
//
// Reads are questions that wait for their answer; Set, Add and Delete are tells, which do
// not.
// What depends on an earlier answer belongs into one message: Do, Tell, or Ask and Send
// with a function that is given the map.
type Map[K comparable, V any] struct {
	_ noCopy
	c *core[map[K]V]
}

// NewMap starts the owner of a copy of initial, which may be nil. It is refused inside
// a transaction, and for bad options.
func NewMap[K comparable, V any](initial map[K]V, o Options) (*Map[K, V], error) {
	c, err := newCore[map[K]V](o)
	if err != nil {
		return nil, err
	}
	if _, err := door("to make", &c.node, false); err != nil {
		return nil, err
	}
	c.state = make(map[K]V, len(initial))
	maps.Copy(c.state, initial)
	c.start()
	m := &Map[K, V]{c: c}
	runtime.AddCleanup(m, func(c *core[map[K]V]) { c.shut() }, c)
	return m, nil
}

func (m *Map[K, V]) owner() *core[map[K]V] {
	if m == nil || m.c == nil {
		panic("actor: this Map is nil or zero, as it was not made by NewMap: use what actor.NewMap returns")
	}
	return m.c
}

// Get returns the value of a key, and whether there is one. The value is not copied: a
// message must not change what is behind a pointer, slice or map that Get gave away.
func (m *Map[K, V]) Get(ctx context.Context, key K) (V, bool, error) {
	type found struct {
		v  V
		ok bool
	}
	f, err := Ask(ctx, m, func(s map[K]V) (found, error) {
		v, ok := s[key]
		return found{v, ok}, nil
	})
	return f.v, f.ok, err
}

// Contains reports whether the map has a key.
func (m *Map[K, V]) Contains(ctx context.Context, key K) (bool, error) {
	return Ask(ctx, m, func(s map[K]V) (bool, error) {
		_, ok := s[key]
		return ok, nil
	})
}

// Keys returns the keys of one moment, in no order. The slice is the caller's.
func (m *Map[K, V]) Keys(ctx context.Context) ([]K, error) {
	return Ask(ctx, m, func(s map[K]V) ([]K, error) {
		keys := make([]K, 0, len(s))
		for k := range s {
			keys = append(keys, k)
		}
		return keys, nil
	})
}

// Copy returns the entries of one moment. The map is the caller's, the values are
// those of Get.
func (m *Map[K, V]) Copy(ctx context.Context) (map[K]V, error) {
	return Ask(ctx, m, func(s map[K]V) (map[K]V, error) { return maps.Clone(s), nil })
}

// Set tells the owner to store a value.
func (m *Map[K, V]) Set(ctx context.Context, key K, value V) error {
	return m.Tell(ctx, func(s map[K]V) error {
		s[key] = value
		return nil
	})
}

// Delete tells the owner to take a key out. Whoever needs to know what was there asks
// for it: Ask with a function that deletes and returns.
func (m *Map[K, V]) Delete(ctx context.Context, key K) error {
	return m.Tell(ctx, func(s map[K]V) error {
		delete(s, key)
		return nil
	})
}

// Number is what Add can add.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64
}

// Add tells the owner to add n to the value of a key, which counts as 0 when missing.
// Whoever needs the sum asks for it: Ask with a function that adds and returns.
func Add[K comparable, V Number](ctx context.Context, m *Map[K, V], key K, n V) error {
	return m.Tell(ctx, func(s map[K]V) error {
		s[key] += n
		return nil
	})
}

// Tell sends a message and waits only until it is in the mailbox; see Object.Tell.
func (m *Map[K, V]) Tell(ctx context.Context, fn func(map[K]V) error) error {
	needFunc(fn == nil)
	err := m.owner().send(ctx, entry[map[K]V]{tell: fn})
	runtime.KeepAlive(m)
	return err
}

// TryTell is Tell that does not wait: it returns ErrFull when there is no room. It is
// allowed inside a lock.
func (m *Map[K, V]) TryTell(fn func(map[K]V) error) error {
	needFunc(fn == nil)
	err := m.owner().trySend(entry[map[K]V]{tell: fn})
	runtime.KeepAlive(m)
	return err
}

// Do runs a function on the owner, with the map itself, and waits for it; see Ask.
func (m *Map[K, V]) Do(ctx context.Context, fn func(map[K]V) error) error { return do(ctx, m, fn) }

// Close ends the owner after the messages in its mailbox; see Object.Close. The values
// are not closed.
func (m *Map[K, V]) Close(ctx context.Context) error {
	err := m.owner().end(ctx)
	runtime.KeepAlive(m)
	return err
}
