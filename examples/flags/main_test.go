package main

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestFlags(t *testing.T) {
	exampletest.Need(t, "redis-server", "redis-server")
	out := exampletest.Run(t)
	for _, want := range []string{"checkout for 100 %\n", "old-checkout for 100 %\n", "the last one as a whole"} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not print %q", want)
		}
	}
}
