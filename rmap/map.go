package rmap

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/rmap/internal/hamt"
)

// A Map is this process's copy of a map, and the way to change it for all. It is safe for use by several goroutines.
type Map[K comparable, V any] struct {
	name  string
	store Store
	opts  Options[K, V]
	keys  keyCodec[K]
	log   *slog.Logger
	feed  Feed

	shown  atomic.Pointer[view[K, V]] // what readers see; written under mu
	proved atomic.Int64               // when the last proof that the copy is current began, on the map's clock
	live   atomic.Bool                // whether the state is Live; written under mu

	mu   sync.Mutex // guards copy, and is never held over I/O
	copy replica[K, V]

	life context.Context // ends when Close begins, and with it what is under way at the store for the copy
	end  context.CancelFunc
	wake chan struct{} // tells the keeper that copy has something for it to do
	kept chan struct{} // closed when the keeper is gone
}

// Join returns the copy of a map in the store, complete and current. It waits for that until the context ends, or
// [Options.Timeout] when the context has no deadline. The map need not exist. Call [Map.Close] when done.
func Join[K comparable, V any](ctx context.Context, store Store, name string, opts Options[K, V]) (*Map[K, V], error) {
	m, err := newMap(store, name, opts)
	if err != nil {
		return nil, fmt.Errorf("rmap: join map %q: %w", name, err)
	}
	ctx, cancel := m.limit(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("rmap: join map %q: %w", name, err)
	}
	feed, err := store.Follow(name, follower[K, V]{m})
	if err != nil {
		return nil, fmt.Errorf("rmap: join map %q: %w", name, err)
	}
	m.feed = feed
	go m.keep()
	err = m.sync(ctx)
	if err == nil {
		err = m.agree()
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("rmap: join map %q: %w", name, err)
	}
	return m, nil
}

// agree compares the ttl of the options with that of the map.
func (m *Map[K, V]) agree() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	want, have := m.lifetime(), m.copy.lifetime
	if want == nil || m.copy.tree.Len() == 0 || *want == have {
		return nil
	}
	if have.TTL == 0 && m.copy.expires != 0 {
		return nil // it was begun after the head was read that said so, and the first write will be told
	}
	return fmt.Errorf("%w: it lives for %v (sliding: %t), the options say %v (sliding: %t)", ErrLifetime, have.TTL,
		have.Sliding, want.TTL, want.Sliding)
}

// lifetime returns what the options say about the ttl of the whole map, nil for nothing.
func (m *Map[K, V]) lifetime() *Lifetime {
	if m.opts.TTL == 0 {
		return nil
	}
	return &Lifetime{TTL: m.opts.TTL, Sliding: m.opts.Sliding}
}

func newMap[K comparable, V any](store Store, name string, opts Options[K, V]) (*Map[K, V], error) {
	if store == nil {
		return nil, fmt.Errorf("%w: the store is nil", ErrInvalid)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	keys, err := newKeyCodec(opts.Keys)
	if err != nil {
		return nil, err
	}
	m := &Map[K, V]{
		name: name, store: store, opts: opts, keys: keys, log: opts.Logger.With("map", name),
		wake: make(chan struct{}, 1), kept: make(chan struct{}),
	}
	m.life, m.end = context.WithCancel(context.Background())
	m.copy.init()
	m.shown.Store(&view[K, V]{tree: m.copy.tree})
	return m, nil
}

// limit gives a context without a deadline that of the options.
func (m *Map[K, V]) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, m.opts.Timeout)
}

// Name returns the map's name.
func (m *Map[K, V]) Name() string { return m.name }

// Get returns the value under a key in this process's copy, without a lock, a round trip or an allocation. How old the
// copy may be is what [Map.Lag] says; a closed map answers from its last copy.
func (m *Map[K, V]) Get(key K) (value V, ok bool) {
	if e := m.entry(key); e != nil && e.Value.err == nil {
		return e.Value.value, true
	}
	return value, false
}

// entry returns what is under a key now, nil for nothing. A reader does not wait until everything else that is past its
// deadline has been dropped.
func (m *Map[K, V]) entry(key K) *item[K, V] {
	v := m.shown.Load()
	e := v.tree.Get(key)
	if e == nil || v.ends == 0 {
		return e
	}
	if now := m.copy.clock.now(); now >= v.ends && v.past(e, now) {
		return nil
	}
	return e
}

// Lookup is Get for those who must know why there is no value: [ErrAbsent], [ErrDecode] with the reason, or
// [ErrStale] when the copy is older than [Options.MaxStale] allows.
func (m *Map[K, V]) Lookup(key K) (V, error) {
	var zero V
	if err := m.Fresh(); err != nil {
		return zero, err
	}
	e := m.entry(key)
	if e == nil {
		return zero, m.about(key, ErrAbsent)
	}
	if e.Value.err != nil {
		return zero, m.about(key, e.Value.err)
	}
	return e.Value.value, nil
}

func (m *Map[K, V]) about(key K, err error) error {
	return fmt.Errorf("rmap: key %s of map %q: %w", m.quote(key), m.name, err)
}

// Len returns the number of entries in the copy.
func (m *Map[K, V]) Len() int { return m.Snapshot().Len() }

// All yields the entries of the copy as it is now, in no particular order. Changes made while it runs do not show.
func (m *Map[K, V]) All() iter.Seq2[K, V] { return m.Snapshot().All() }

// Snapshot returns the copy as it is now, at one revision. It costs the same at any size.
func (m *Map[K, V]) Snapshot() Snapshot[K, V] { return Snapshot[K, V]{m.current()} }

// current returns what a reader may see now: nothing in it is past its deadline.
func (m *Map[K, V]) current() *view[K, V] {
	v := m.shown.Load()
	if v.ends != 0 {
		v = m.inTime(v)
	}
	return v
}

// inTime returns v, or what is left of it at this moment.
func (m *Map[K, V]) inTime(v *view[K, V]) *view[K, V] {
	if m.copy.clock.now() < v.ends {
		return v
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expire(math.MaxInt)
	return m.shown.Load()
}

// Close ends the subscription and whatever waits for the map. Reads go on from the last copy, which still hides
// entries at their deadline; writes fail with [ErrClosed]. Further calls do nothing.
func (m *Map[K, V]) Close() {
	m.mu.Lock()
	already := m.copy.state == Closed
	if !already {
		m.setState(Closed, nil)
		m.end()
		m.endSubscribers()
	}
	m.mu.Unlock()
	<-m.kept
	if !already {
		m.feed.Close()
	}
}

// closedError is what callers get who were waiting when the map was closed, or came later.
func (m *Map[K, V]) closedError() error { return fmt.Errorf("map %q: %w", m.name, ErrClosed) }

// encodeKey is for keys that came from the store, in goroutines that are not a caller's: as with decode, a codec that
// panics must not end the process.
func (m *Map[K, V]) encodeKey(key K) (data string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the codec of the keys panicked", ErrInvalid)
		}
	}()
	return m.keys.encode(key)
}

// quote returns a key as it may appear in errors and logs.
func (m *Map[K, V]) quote(key K) string {
	data, err := m.encodeKey(key)
	if err != nil {
		return "that cannot be encoded"
	}
	return quote(data)
}

func quote(data string) string {
	const most = 64
	if len(data) > most {
		return fmt.Sprintf("%q and %d bytes more", data[:most], len(data)-most)
	}
	return fmt.Sprintf("%q", data)
}

// decode reads an entry's value. It fails, rather than ends the process, when the codec panics: the bytes come from
// elsewhere, and the goroutine is not the caller's.
func (m *Map[K, V]) decode(v Value) (value V, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the codec panicked", ErrDecode)
		}
	}()
	if v.Kind == 0 {
		return value, fmt.Errorf("%w: %w", ErrDecode, ErrForeign)
	}
	value, err = m.opts.Values.Decode(v)
	if err != nil && !errors.Is(err, ErrDecode) {
		err = fmt.Errorf("%w: %w", ErrDecode, err)
	}
	return value, err
}

func (m *Map[K, V]) decodeKey(data string) (key K, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: the key %s: the codec of the keys panicked", ErrDecode, quote(data))
		}
	}()
	key, err = m.keys.decode(data)
	if err != nil && errors.Is(err, ErrDecode) {
		err = fmt.Errorf("the key %s: %w", quote(data), err)
	} else if err != nil {
		err = fmt.Errorf("%w: the key %s: %w", ErrDecode, quote(data), err)
	}
	return key, err
}

// newItem decodes an entry. The error is one of the key; one of the value is part of the item.
func (m *Map[K, V]) newItem(e Entry) (*item[K, V], error) {
	key, err := m.decodeKey(e.Key)
	if err != nil {
		return nil, err
	}
	it := &item[K, V]{Key: key, Value: cell[V]{number: e.Number, nonce: e.Nonce, deadline: e.Deadline}}
	if it.Value.value, err = m.decode(e.Value); err != nil {
		it.Value.err = &flaw{err}
	}
	return it, nil
}

func emptyTree[K comparable, V any]() tree[K, V] { return hamt.New[K, cell[V]]() }
