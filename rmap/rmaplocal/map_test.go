package rmaplocal_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/rmap/rmaptest"
)

// A map over this store keeps what it promises. In a bubble no goroutine can be left behind unseen.
func TestMap(t *testing.T) { rmaptest.RunMap(t, subject()) }

// The same on the real clock, where deadlines pass while others write.
func TestMapOnTheRealClock(t *testing.T) {
	s := subject()
	s.Bubble = false
	rmaptest.RunMap(t, s)
}
