//go:build unix

// Package siege has everything go wrong at once for a fleet that reads through a cache: real processes, Redis and
// PostgreSQL, with memory, copies of hot keys, a replica behind, and relays for the invalidations. One ledger knows what
// every process was promised, and no process may read anything older.
package siege

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/latchkey-go/latchkey/internal/proctest"
)

func TestMain(m *testing.M) {
	proctest.Play(map[string]proctest.Part{"member": play})
	goleak.VerifyTestMain(m)
}
