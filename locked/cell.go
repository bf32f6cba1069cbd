package locked

import (
	"sync/atomic"
	"unsafe"
)

// cell holds a value, or none. Who writes to it has the lock that it belongs to;
// anybody may read it at any time.
//
// A value is kept behind a pointer and is never written to again: a change puts a new
// one there. Numbers that are added to are the exception. From the first addition on
// they live in the word, and the pointer points there: adding then allocates nothing.
// The pointer goes there only once, so that a reader that was slow between the two
// cannot see an older value than another reader before it.
type cell[T any] struct {
	p    atomic.Pointer[T]
	word atomic.Uint64
}

// get returns the value, and whether there is one.
func (c *cell[T]) get() (v T, ok bool) {
	p := c.p.Load()
	if p == nil {
		return v, false
	}
	if unsafe.Pointer(p) == unsafe.Pointer(&c.word) {
		return c.number(), true
	}
	return *p, true
}

// number returns the value that is in the word. T is a number then.
func (c *cell[T]) number() T {
	w := c.word.Load()
	return *(*T)(unsafe.Pointer(&w))
}

// full reports whether there is a value.
func (c *cell[T]) full() bool { return c.p.Load() != nil }

// put stores a value.
func (c *cell[T]) put(v T) {
	if unsafe.Pointer(c.p.Load()) == unsafe.Pointer(&c.word) {
		c.word.Store(wordOf(v))
		return
	}
	c.p.Store(&v)
}

// putNumber stores a value, which must be a number, without an allocation.
func (c *cell[T]) putNumber(v T) {
	c.word.Store(wordOf(v))
	if p := (*T)(unsafe.Pointer(&c.word)); c.p.Load() != p {
		c.p.Store(p)
	}
}

// wordOf returns a number as it is kept in a word.
func wordOf[T any](v T) (w uint64) {
	*(*T)(unsafe.Pointer(&w)) = v
	return w
}

// Number is what can be added to.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 |
		~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr |
		~float32 | ~float64
}
