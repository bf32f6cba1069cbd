package locked

import (
	"context"
	"iter"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Section is the way to read and write a [Map] inside of [Map.Synchronize]. It is of use
// to the goroutine that runs the function, and void after the function's end: its methods
// panic then.
type Section[K comparable, V any] struct {
	m      *Map[K, V]
	number uint64 // of m's sections, 0 when it has ended
}

// was is one step back: an entry had this value, or the map this table.
type was[K comparable, V any] struct {
	e      *mapEntry[K, V]
	value  *V             // nil for none
	full   *emptied[K, V] // what was emptied; there is no entry then
	undone bool
}

type emptied[K comparable, V any] struct {
	table      *table[K, V, stamp]
	live, size int
}

// keptUndo is how many steps back a map keeps room for between its sections.
const keptUndo = 64

// Synchronize runs the function while nobody else reads or writes the map: keep it short.
// It runs exactly once. Whatever it changes through its section becomes visible together
// when it returns nil. When it returns an error, panics or calls runtime.Goexit all of it is
// undone, and the error is returned.
//
// Inside of a section of the same map Synchronize is a part of that: what it changes stays
// when the outer one succeeds, and when it fails only what itself changed is undone. Inside
// of an update, a section of another map or a transaction Synchronize fails with a
// [*NestedError], and the function does not run.
func (m *Map[K, V]) Synchronize(fn func(s *Section[K, V]) error) error {
	return m.synchronize(context.Background(), "Synchronize of a locked.Map", fn)
}

// SynchronizeContext is Synchronize, but gives up when the context ends before the function
// has started, and returns an error that matches ctx.Err() and context.Cause(ctx).
func (m *Map[K, V]) SynchronizeContext(ctx context.Context, fn func(s *Section[K, V]) error) error {
	return m.synchronize(ctx, "SynchronizeContext of a locked.Map", fn)
}

func (m *Map[K, V]) synchronize(ctx context.Context, name string, fn func(*Section[K, V]) error) error {
	if fn == nil {
		panic(noFunction(name))
	}
	if ctx == nil {
		panic(noContext(name))
	}
	me := held.Who()
	if top := me.Top(); m.inside(top) {
		return m.inner(fn)
	} else if refuses(top) {
		return refusal(m.call(name), top)
	}
	if ctx.Err() != nil {
		return over(ctx)
	}
	if err := m.lock.lock(ctx); err != nil {
		return err
	}
	me = me.Enter(held.Frame{Kind: held.Map, Of: unsafe.Pointer(m)})
	s, done := m.begin(), false
	defer func() {
		m.end(s, 0, done)
		m.commit()
		me.Leave()
		m.lock.unlock()
	}()
	err := fn(s)
	done = err == nil
	return err
}

// inner runs a function as an inner section.
func (m *Map[K, V]) inner(fn func(*Section[K, V]) error) error {
	mark, done := len(m.undo), false
	s := m.begin()
	defer func() { m.end(s, mark, done) }()
	err := fn(s)
	done = err == nil
	return err
}

func (m *Map[K, V]) begin() *Section[K, V] {
	m.number++
	return &Section[K, V]{m: m, number: m.number}
}

// end ends a section, and undoes the steps since its mark unless it is done.
func (m *Map[K, V]) end(s *Section[K, V], mark int, done bool) {
	s.number = 0
	m.number++ // what follows is not a part of it, if only to be undone without it
	if !done {
		m.rollback(mark)
	}
}

// set gives an entry a value, or takes it away, and remembers what was.
func (m *Map[K, V]) set(e *mapEntry[K, V], value *V) {
	if e.extra.section != m.number {
		e.extra.section = m.number
		m.undo = append(m.undo, was[K, V]{e: e, value: e.cell.p.Load()})
	}
	m.replace(e, value)
}

func (m *Map[K, V]) replace(e *mapEntry[K, V], value *V) {
	switch had := e.cell.full(); {
	case had && value == nil:
		m.size--
	case !had && value != nil:
		m.size++
	}
	e.cell.p.Store(value)
}

// store sets the value of a key. The entry of a key that was deleted in this section is
// still there.
func (m *Map[K, V]) store(key K, v V) {
	hash := hashOf(m.seed, key, "Map")
	e := m.index.find(hash, key)
	if e == nil {
		e = &mapEntry[K, V]{key: key}
		e.extra.hash = hash
		m.index.insert(hash, e)
	}
	m.set(e, &v)
}

// empty replaces the table, so that clearing costs the same whatever the size.
func (m *Map[K, V]) empty() {
	m.undo = append(m.undo, was[K, V]{full: &emptied[K, V]{m.index.table.Load(), m.index.live, m.size}})
	m.index.table.Store(nil)
	m.index.live, m.size = 0, 0
	m.clears++
}

// rollback undoes the steps since a mark, the last one first. They stay for commit, which
// looks for entries without a value: an entry may have been taken away by an outer section
// that can still fail.
func (m *Map[K, V]) rollback(mark int) {
	for i := len(m.undo) - 1; i >= mark; i-- {
		w := &m.undo[i]
		switch {
		case w.undone:
		case w.e != nil:
			m.replace(w.e, w.value)
		default:
			m.index.table.Store(w.full.table)
			m.index.live, m.size = w.full.live, w.full.size
			m.clears++
		}
		w.undone = true
	}
}

// commit takes the entries out that have no value any more, and forgets the steps.
func (m *Map[K, V]) commit() {
	if len(m.undo) == 0 {
		return
	}
	for i := range m.undo {
		if e := m.undo[i].e; e != nil && !e.cell.full() {
			m.index.remove(e.extra.hash, e)
		}
	}
	if cap(m.undo) > keptUndo {
		m.undo = nil
		return
	}
	clear(m.undo)
	m.undo = m.undo[:0]
}

// Load returns the value of a key, and whether there is one.
func (s *Section[K, V]) Load(key K) (V, bool) {
	m := s.open()
	return m.look(hashOf(m.seed, key, "Map"), key)
}

// Contains reports whether a key has a value.
func (s *Section[K, V]) Contains(key K) bool {
	_, ok := s.Load(key)
	return ok
}

// Store sets the value of a key.
func (s *Section[K, V]) Store(key K, v V) { s.open().store(key, v) }

// Delete takes a key out and returns the value that it had, and whether there was one.
func (s *Section[K, V]) Delete(key K) (v V, ok bool) {
	m := s.open()
	e := m.index.find(hashOf(m.seed, key, "Map"), key)
	if e == nil {
		return v, false
	}
	if v, ok = e.cell.get(); ok {
		m.set(e, nil)
	}
	return v, ok
}

// Clear takes all keys out.
func (s *Section[K, V]) Clear() { s.open().empty() }

// Len returns how many keys there are. The map itself has no such method: there, the answer
// would be stale before it could be used.
func (s *Section[K, V]) Len() int { return s.open().size }

// All yields the keys with their values, in no order. Its loop may read and write through
// the section: no key comes twice, one that is taken out before its turn does not come, one
// that is new may come or not.
func (s *Section[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		m := s.open()
		clears := m.clears
		for e := range m.index.all {
			if clears != m.clears && !m.index.has(e.extra.hash, e) {
				continue
			}
			v, ok := e.cell.get()
			if ok && !yield(e.key, v) {
				return
			}
			s.open()
		}
	}
}

// open returns the map, if the section has not ended.
func (s *Section[K, V]) open() *Map[K, V] {
	if s.number == 0 {
		panic("locked: a Section was used after the function of its Synchronize had ended")
	}
	return s.m
}
