//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestElection(t *testing.T) {
	out := exampletest.Run(t)
	for _, want := range []string{"it is killed", "killed and started again", "never two leaders"} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not print %q", want)
		}
	}
}
