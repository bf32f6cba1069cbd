package asleep

import (
	"syscall"
	"time"
	"unsafe"
)

// The numbers of the clocks in clock_gettime(2).
const (
	clockMonotonic = 1
	clockBoottime  = 7
)

// Reading one clock between two readings of the other bounds the error by the
// time between these. Under load a thread may be interrupted there: then once more.
const (
	near  = 200 * time.Microsecond
	tries = 5
)

// between reads until the bounds are near, and returns the nearest.
func between() (least, most time.Duration) {
	for i := range tries {
		before := read(clockMonotonic)
		boot := read(clockBoottime)
		after := read(clockMonotonic)
		if i == 0 || after-before < most-least {
			least, most = boot-after, boot-before
		}
		if most-least <= near {
			break
		}
	}
	return least, most
}

func most() time.Duration {
	before := read(clockMonotonic)
	return read(clockBoottime) - before
}

// read asks the kernel, since Go's own way to its clocks does not lead to this
// one. The call does not wait, so that the scheduler need not know of it. It
// cannot fail: both clocks are older than the kernels that Go runs on, and a
// filter that forbids one forbids the other.
func read(clock uintptr) time.Duration {
	var ts syscall.Timespec
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		return 0
	}
	return time.Duration(ts.Nano())
}
