//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/examples/internal/exampletest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestCatalog(t *testing.T) {
	exampletest.Need(t, "redis-server", "redis-server")
	out := exampletest.Run(t, "DATABASE_URL="+pgtest.Start(t).URL())
	for _, want := range []string{"was killed between", "all shops show its price", "no page showed a price older"} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not print %q", want)
		}
	}
}
