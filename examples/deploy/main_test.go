//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestDeploy(t *testing.T) {
	out := exampletest.Run(t)
	for _, want := range []string{"release freeze", "one at a time and in order"} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not print %q", want)
		}
	}
}
