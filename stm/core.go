package stm

import (
	"runtime"
	"sync/atomic"
	"unsafe"
)

// core is what a transaction sees of a variable, whatever its type. A value never
// changes once it is published, so whether a variable has changed is a comparison of
// pointers; and what a transaction has seen stays reachable through its log, so no
// new value can have the address of an old one.
type core struct {
	_       noCopy
	head    unsafe.Pointer // *T, nil for the zero value; atomic
	lock    atomic.Uintptr
	stamp   atomic.Uint64 // what the clock was moved to by the last commit that moved it
	waiters atomic.Pointer[waiters]
}

// noCopy makes vet complain about copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// The lock word of a variable is 0, or the address of the run that has it. The low
// bit is set while that run publishes: readers wait then, and only then. It is clear
// while a run behind the gate keeps the variable for itself: it may be read, but
// nobody else can commit to it. AddNow and SetNow have no run: their word is the low
// bit alone.
const publishing = 1

func (r *run) word() uintptr { return uintptr(unsafe.Pointer(r)) }

// kept reports whether a lock word is that of a variable kept by a run.
func kept(word uintptr) bool { return word != 0 && word&publishing == 0 }

func (c *core) load() unsafe.Pointer { return atomic.LoadPointer(&c.head) }

// settled returns the head of a variable, once nobody publishes it. That the lock is
// looked at first is what makes it safe: whoever had locked the variable before that
// look has published by then.
func (c *core) settled() unsafe.Pointer {
	for spins := 0; c.lock.Load()&publishing != 0; spins++ {
		pause(spins)
	}
	return c.load()
}

// publish stores a new value. The variable is locked.
func (c *core) publish(p unsafe.Pointer, stamp uint64) {
	if stamp != 0 {
		c.stamp.Store(stamp) // first: who sees the value must see the stamp
	}
	atomic.StorePointer(&c.head, p)
}

// pause lets somebody else finish: publishing takes some tens of nanoseconds, unless
// the one who does it was put off the processor.
func pause(spins int) {
	if spins > 20 {
		runtime.Gosched()
	}
}

// tryLock takes a variable to publish it. It gives up soon, because its caller has
// others locked.
func (c *core) tryLock(word uintptr) bool {
	for spins := range 30 {
		if c.lock.CompareAndSwap(0, word) {
			return true
		}
		if kept(c.lock.Load()) {
			return false
		}
		pause(spins)
	}
	return false
}

// keep takes a variable for a run behind the gate. Who has it publishes, and waits
// for nothing meanwhile, so this needs no context.
func (c *core) keep(word uintptr) {
	for spins := 0; !c.lock.CompareAndSwap(0, word); spins++ {
		pause(spins)
	}
}
