package locked

import (
	"context"
	"hash/maphash"
	"sync"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// shards is the number of parts of a KeyMap that can gain and lose keys independently.
// Only that takes a part's mutex, for an instant; what happens to the value of a key
// takes the key's own lock.
const (
	shardBits = 6
	shards    = 1 << shardBits
)

// KeyMap is a map with a lock for each key: what happens to one key never waits for
// another. It is made by [NewKeyMap] and must not be copied.
//
// Nothing is atomic across keys; where two keys must agree, use a [Map] or stm. A key
// that is deleted leaves nothing behind.
//
// Keys are compared with ==. A key of an interface type whose value cannot be compared
// panics, as with Go's own maps, before anything is locked. Go cannot freeze values:
// replace what was stored, and do not modify it.
type KeyMap[K comparable, V any] struct {
	seed  maphash.Seed
	parts [shards]part[K, V]
}

// part has the keys of a share of the hashes.
type part[K comparable, V any] struct {
	mu    sync.Mutex // taken by who puts entries in or takes them out; no other lock is taken inside
	index index[K, V, keyLock]
	_     [64 - 24]byte // a cache line each
}

// keyLock is what an entry of a KeyMap has besides.
type keyLock struct {
	lock
	dead bool // the entry was taken out; who waited for the lock must look again
}

type keyEntry[K comparable, V any] = entry[K, V, keyLock]

// NewKeyMap returns a map with a copy of the entries of initial, which may be nil.
func NewKeyMap[K comparable, V any](initial map[K]V) *KeyMap[K, V] {
	m := &KeyMap[K, V]{seed: maphash.MakeSeed()}
	for k, v := range initial {
		m.Store(k, v)
	}
	return m
}

// at returns the hash of a key and the part that it belongs to.
func (m *KeyMap[K, V]) at(key K) (uint64, *part[K, V]) {
	hash := hashOf(m.seed, key, "KeyMap")
	return hash, &m.parts[hash>>(64-shardBits)]
}

// hashOf says what is wrong with a map that was not made.
func hashOf[K comparable](seed maphash.Seed, key K, kind string) uint64 {
	if seed == (maphash.Seed{}) {
		panic("locked: this " + kind + " was not made by New" + kind)
	}
	return maphash.Comparable(seed, key)
}

// claim returns the entry of a key, and whether it is a new one. A new entry has no
// value and is locked.
func (p *part[K, V]) claim(hash uint64, key K) (e *keyEntry[K, V], fresh bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.index.find(hash, key); e != nil {
		return e, false
	}
	e = &keyEntry[K, V]{key: key}
	e.extra.word.Store(taken)
	p.index.insert(hash, e)
	return e, true
}

// take locks the entry of a key, which it makes if there is none.
func (p *part[K, V]) take(ctx context.Context, hash uint64, key K) (*keyEntry[K, V], error) {
	for {
		e := p.index.find(hash, key)
		if e == nil {
			var fresh bool
			if e, fresh = p.claim(hash, key); fresh {
				return e, nil
			}
		}
		if ok, err := lockEntry(ctx, e); ok || err != nil {
			return e, err
		}
	}
}

// lockEntry reports false when the entry was taken out of the map meanwhile.
func lockEntry[K comparable, V any](ctx context.Context, e *keyEntry[K, V]) (bool, error) {
	if err := e.extra.lock.lock(ctx); err != nil {
		return false, err
	}
	if e.extra.dead {
		e.extra.unlock()
		return false, nil
	}
	return true, nil
}

// give unlocks an entry, and takes it out of the map when it has no value.
func (p *part[K, V]) give(hash uint64, e *keyEntry[K, V]) {
	if !e.cell.full() {
		e.extra.dead = true
		p.mu.Lock()
		p.index.remove(hash, e)
		p.mu.Unlock()
	}
	e.extra.unlock()
}

// Update replaces the value of a key by what the function makes of it, and returns that.
// The function is told the present value and whether there is one. It runs exactly once,
// while nobody else changes or loads the value of this key: keep it short. When it
// returns an error nothing is stored, a key that was not there is still not there, and Update
// returns the zero value and that error. The same is true, but for what is returned, when it
// panics or calls runtime.Goexit.
//
// Inside of another update (of another key of this map, too), a section or a transaction
// Update fails with a [*NestedError], and the function does not run.
func (m *KeyMap[K, V]) Update(key K, fn func(old V, ok bool) (V, error)) (V, error) {
	return m.update(context.Background(), "Update of a locked.KeyMap", key, fn)
}

// UpdateContext is Update, but gives up when the context ends before the function has
// started, and returns an error that matches ctx.Err() and context.Cause(ctx).
func (m *KeyMap[K, V]) UpdateContext(ctx context.Context, key K, fn func(old V, ok bool) (V, error)) (V, error) {
	return m.update(ctx, "UpdateContext of a locked.KeyMap", key, fn)
}

func (m *KeyMap[K, V]) update(ctx context.Context, name string, key K, fn func(V, bool) (V, error)) (zero V, err error) {
	if fn == nil {
		panic(noFunction(name))
	}
	if ctx == nil {
		panic(noContext(name))
	}
	me := held.Who()
	if top := me.Top(); refuses(top) {
		return zero, refusal(keyCall(name), top)
	}
	hash, p := m.at(key)
	if ctx.Err() != nil {
		return zero, over(ctx)
	}
	e, err := p.take(ctx, hash, key)
	if err != nil {
		return zero, err
	}
	me = me.Enter(held.Frame{Kind: held.KeyMap, Of: unsafe.Pointer(e)})
	defer p.leave(me, hash, e)
	old, ok := e.cell.get()
	v, err := fn(old, ok)
	if err != nil {
		return zero, err
	}
	e.cell.put(v)
	return v, nil
}

func (p *part[K, V]) leave(me held.Me, hash uint64, e *keyEntry[K, V]) {
	me.Leave()
	p.give(hash, e)
}

// GetOrCreate returns the value of a key. When there is none it runs the function and
// stores its value; however many ask for a key meanwhile wait for that, and the function
// of one of them alone runs. This is the one function that may take long: all who wait
// for it would have done the same work themselves.
//
// An error of the function is returned to its caller, a panic goes to its caller, and
// nothing is stored; the next who waits then runs its own. Inside of an update, a section
// or a transaction GetOrCreate fails with a [*NestedError].
func (m *KeyMap[K, V]) GetOrCreate(key K, fn func() (V, error)) (V, error) {
	return m.getOrCreate(context.Background(), "GetOrCreate of a locked.KeyMap", key, fn)
}

// GetOrCreateContext is GetOrCreate, but gives up when the context ends before there is
// a value or its own function has started, and returns an error that matches ctx.Err() and
// context.Cause(ctx).
func (m *KeyMap[K, V]) GetOrCreateContext(ctx context.Context, key K, fn func() (V, error)) (V, error) {
	return m.getOrCreate(ctx, "GetOrCreateContext of a locked.KeyMap", key, fn)
}

func (m *KeyMap[K, V]) getOrCreate(ctx context.Context, name string, key K, fn func() (V, error)) (zero V, err error) {
	if fn == nil {
		panic(noFunction(name))
	}
	if ctx == nil {
		panic(noContext(name))
	}
	me := held.Who()
	if top := me.Top(); refuses(top) {
		return zero, refusal(keyCall(name), top)
	}
	hash, p := m.at(key)
	if e := p.index.find(hash, key); e != nil {
		if e.extra.taken() { // let all who wait go on at once when there is a value
			if err := e.extra.settle(ctx); err != nil {
				return zero, err
			}
		}
		if v, ok := e.cell.get(); ok {
			return v, nil
		}
	}
	if ctx.Err() != nil {
		return zero, over(ctx)
	}
	e, err := p.take(ctx, hash, key)
	if err != nil {
		return zero, err
	}
	me = me.Enter(held.Frame{Kind: held.KeyMap, Of: unsafe.Pointer(e)})
	defer p.leave(me, hash, e)
	if v, ok := e.cell.get(); ok {
		return v, nil
	}
	v, err := fn()
	if err != nil {
		return zero, err
	}
	e.cell.put(v)
	return v, nil
}

// Store sets the value of a key. It waits for an update of that key in flight, and panics
// with a [*NestedError] inside of an update, a section or a transaction.
func (m *KeyMap[K, V]) Store(key K, v V) {
	hash, p := m.enter("Store to a locked.KeyMap", key)
	e, _ := p.take(context.Background(), hash, key)
	e.cell.put(v)
	e.extra.unlock()
}

// Delete takes a key out and returns the value that it had, and whether there was one.
// It waits for an update of that key in flight, and panics with a [*NestedError] inside of
// an update, a section or a transaction.
func (m *KeyMap[K, V]) Delete(key K) (V, bool) {
	hash, p := m.enter("Delete from a locked.KeyMap", key)
	for {
		e := p.index.find(hash, key)
		if e == nil {
			var none V
			return none, false
		}
		if ok, _ := lockEntry(context.Background(), e); ok {
			v, _ := e.cell.get()
			e.cell.p.Store(nil)
			p.give(hash, e)
			return v, true
		}
	}
}

// DeleteIf takes a key out if the function says so, and returns the value that it had, and
// whether it was taken out. Where there is a value the function is given it and runs exactly
// once, while nobody else changes or loads it: keep it short. Where there is none it does not
// run. When it panics or calls runtime.Goexit the key stays.
//
// DeleteIf waits for an update of that key in flight, and panics with a [*NestedError] inside
// of an update, a section or a transaction. In the loop of [KeyMap.All] it is a sweep.
func (m *KeyMap[K, V]) DeleteIf(key K, fn func(v V) bool) (v V, gone bool) {
	if fn == nil {
		panic(noFunction("DeleteIf of a locked.KeyMap"))
	}
	me := held.Who()
	if top := me.Top(); refuses(top) {
		panic(refusal(keyCall("DeleteIf of a locked.KeyMap"), top))
	}
	hash, p := m.at(key)
	for {
		e := p.index.find(hash, key)
		if e == nil {
			return v, false
		}
		if ok, _ := lockEntry(context.Background(), e); ok {
			return p.deleteIf(me, hash, e, fn)
		}
	}
}

// deleteIf asks about an entry that is locked, and so has a value.
func (p *part[K, V]) deleteIf(me held.Me, hash uint64, e *keyEntry[K, V], fn func(V) bool) (none V, gone bool) {
	me = me.Enter(held.Frame{Kind: held.KeyMap, Of: unsafe.Pointer(e)})
	defer p.leave(me, hash, e)
	v, _ := e.cell.get()
	if !fn(v) {
		return none, false
	}
	e.cell.p.Store(nil)
	return v, true
}

// AddTo adds n to the value of a key, which counts as zero when there is none, and returns
// the sum. It is an Update that allocates nothing but a new key. It panics with a
// [*NestedError] inside of an update, a section or a transaction.
func AddTo[K comparable, V Number](m *KeyMap[K, V], key K, n V) V {
	hash, p := m.enter("AddTo a locked.KeyMap", key)
	e, _ := p.take(context.Background(), hash, key)
	old, _ := e.cell.get()
	e.cell.putNumber(old + n)
	e.extra.unlock()
	return old + n
}

// enter refuses a call that cannot return an error where it may not wait.
func (m *KeyMap[K, V]) enter(name string, key K) (uint64, *part[K, V]) {
	if top := held.Who().Top(); refuses(top) {
		panic(refusal(keyCall(name), top))
	}
	return m.at(key)
}

func keyCall(name string) call { return call{name: name, kind: held.KeyMap} }
