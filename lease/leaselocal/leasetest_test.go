package leaselocal_test

import (
	"testing"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leasetest"
)

func open(t *testing.T, o leaselocal.Options) *leaselocal.Service {
	t.Helper()
	s, err := leaselocal.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The service in memory keeps the contract.
func TestContractInMemory(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Harness {
		return leasetest.Harness{Service: open(t, leaselocal.Options{})}
	})
}

// The service with a directory keeps the contract, and what it promises across a
// restart, under every policy.
func TestContractDurable(t *testing.T) {
	for name, policy := range map[string]leaselocal.Fsync{
		"always": leaselocal.Always, "interval": leaselocal.Interval, "never": leaselocal.Never,
	} {
		t.Run(name, func(t *testing.T) {
			leasetest.Run(t, func(t *testing.T) leasetest.Harness {
				o := leaselocal.Options{Dir: t.TempDir(), Fsync: policy}
				return leasetest.Harness{
					Service: open(t, o),
					Restart: func(t *testing.T) lease.Service { return open(t, o) },
				}
			})
		})
	}
}
