package leaseremote

import (
	"testing"

	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leasetest"
)

// The contract holds over a connection as it does in process. Closing this
// service is a goodbye, which releases, so what a restart keeps is tested in
// restart_test.go.
func TestContract(t *testing.T) {
	leasetest.Run(t, func(t *testing.T) leasetest.Harness {
		b := newBroker(t, leaselocal.Options{})
		return leasetest.Harness{Service: b.connect()}
	})
}
