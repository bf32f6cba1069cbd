package stm

import (
	"context"
	"unsafe"
)

// Number is what can be added up.
type Number interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr | ~float32 | ~float64
}

// Add adds n to a variable in a transaction, and returns what it is then.
func Add[N Number](tx Tx, v *Var[N], n N) N {
	x := v.Get(tx) + n
	v.Set(tx, x)
	return x
}

// AddNow adds n to a variable, and returns what it is then. It does what Atomically
// with Add does, for less: outside of a transaction it is one of its own, and inside
// of one it is a part of it. It waits for a transaction behind the gate that has read
// the variable, and nothing ends that wait; where it matters, use Atomically, which
// has a context.
func AddNow[N Number](v *Var[N], n N) N {
	c := &v.core
	if !single() || !c.seize() {
		return addSlow(v, n)
	}
	x := value[N](c.load()) + n
	c.yield(unsafe.Pointer(&x))
	return x
}

func addSlow[N Number](v *Var[N], n N) (x N) {
	// The background never ends, and nothing here fails.
	_ = Atomically(context.Background(), func(tx Tx) error {
		x = Add(tx, v, n)
		return nil
	})
	return x
}
