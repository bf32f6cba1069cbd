package stm

import (
	"context"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// SetNow gives a variable a value, whatever it held: it does what Atomically with Set
// does, for less. Outside of a transaction it is one of its own, and inside of one it is
// a part of it. What depends on the old value belongs into Atomically, or into [AddNow].
// It waits as AddNow does.
func SetNow[T any](v *Var[T], x T) {
	c := &v.core
	if !single() || !c.seize() {
		// The background never ends, and nothing here fails.
		_ = Atomically(context.Background(), func(tx Tx) error {
			v.Set(tx, x)
			return nil
		})
		return
	}
	y := x // on the heap, and only on this path
	c.yield(unsafe.Pointer(&y))
}

// single reports whether a change is a transaction of its own.
func single() bool { return held.Who().Top().Kind != held.Transaction }

// seize locks a variable that is to be published alone. It reports false for one that a
// run behind the gate keeps: that takes a transaction.
func (c *core) seize() bool { return c.lock.CompareAndSwap(0, publishing) || c.seizeSlow() }

func (c *core) seizeSlow() bool {
	for spins := 0; !c.lock.CompareAndSwap(0, publishing); spins++ {
		if kept(c.lock.Load()) {
			return false
		}
		pause(spins)
	}
	return true
}

// yield publishes a variable that was seized, and gives it back.
func (c *core) yield(p unsafe.Pointer) {
	c.publish(p, tick())
	c.lock.Store(0)
	c.wake()
}
