//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/examples/internal/exampletest"
	"github.com/latchkey-go/latchkey/internal/pgtest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestFencing(t *testing.T) {
	out := exampletest.Run(t, "DATABASE_URL="+pgtest.Start(t).URL())
	for _, want := range []string{"is frozen", "the balance is 200, by next", "it was refused"} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not print %q", want)
		}
	}
}
