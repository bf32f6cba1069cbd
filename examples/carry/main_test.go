package main

import (
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestCarry(t *testing.T) {
	exampletest.Need(t, "redis-server", "redis-server")
	if out := exampletest.Run(t); !strings.Contains(out, "none of 25 requests was shown the past, without it some were") {
		t.Error("it did not say that no request with the revision was shown the past")
	}
}
