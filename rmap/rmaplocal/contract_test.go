package rmaplocal_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
	"github.com/latchkey-go/latchkey/rmap/rmaptest"
)

func subject() rmaptest.Subject {
	return rmaptest.Subject{
		Open: func(t *testing.T) (first, second rmap.Store) {
			s := rmaplocal.New(rmaplocal.Options{})
			t.Cleanup(s.Close)
			return s, s
		},
		Bubble:    true,
		Remembers: 1024,
	}
}

func TestContract(t *testing.T) { rmaptest.Run(t, subject()) }

// The same on the real clock, where deadlines pass while others write.
func TestContractOnTheRealClock(t *testing.T) {
	s := subject()
	s.Bubble = false
	rmaptest.Run(t, s)
}
