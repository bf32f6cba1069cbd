package trial

import (
	"errors"
	"runtime"
	"testing"
	"time"
)

// Soon fails the test when the function does not return, instead of hanging.
func Soon(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s: hangs", what)
	}
}

// End ends a function in one of the ways 0 to 5 in which it fails; any other is a
// return without an error.
func End(way int) error {
	switch way {
	case 0:
		panic(nil)
	case 1:
		var p *int
		*p = 1
	case 2:
		runtime.Goexit()
	case 3:
		return errors.New("an error")
	case 4:
		defer runtime.Goexit()
		panic("and then it exits")
	case 5:
		defer func() { panic("again") }()
		panic("first")
	}
	return nil
}
