package stm

import (
	"fmt"
	"unsafe"
)

// Var is a transactional variable. The zero Var holds the zero T and is ready for
// use. It must not be copied after first use.
//
// Values are shared between all who read them: replace a value, never change what it
// refers to.
type Var[T any] struct {
	core core
}

// NewVar returns a variable that holds x. It is 64 bytes, a cache line of its own, so
// that goroutines that change different variables do not slow one another down; a Var
// in a struct or a slice of yours is 32.
func NewVar[T any](x T) *Var[T] {
	v := new(struct {
		Var[T]
		_ [32]byte
	})
	v.core.head = unsafe.Pointer(&x)
	return &v.Var
}

func value[T any](p unsafe.Pointer) T {
	if p == nil {
		var zero T
		return zero
	}
	return *(*T)(p)
}

// Load returns the value as it stands. It takes no lock, never waits and costs a
// pointer load. Two calls may see a commit of both variables halfway: values that
// must agree are read in one transaction. Inside of a transaction, Load does not see
// what that has set, and what it returns is not checked at the commit; use Get.
func (v *Var[T]) Load() T { return value[T](v.core.load()) }

// Get returns the value as the transaction sees it: what it has set itself, or what
// the variable held at the moment that all its reads are of.
func (v *Var[T]) Get(tx Tx) T { return value[T](tx.run().get(&v.core)) }

// Set gives the variable a value when the transaction commits. It allocates one
// value, whose memory a later Set of the same transaction uses again. It panics in a
// [View].
func (v *Var[T]) Set(tx Tx, x T) {
	r := tx.run()
	i, p := r.pending(&v.core)
	if p != nil {
		*(*T)(p) = x
		return
	}
	y := x // on the heap, and only on this path
	r.set(&v.core, i, unsafe.Pointer(&y))
}

// String shows the value as it stands, and never waits.
func (v *Var[T]) String() string { return fmt.Sprint(v.Load()) }
