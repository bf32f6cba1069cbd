package stm

import "github.com/latchkey-go/latchkey/internal/held"

// Detecting reports whether this process can tell what a goroutine is inside of, and
// so refuse what would wait for itself. It cannot where the runtime's goroutine ids are
// not found, which is logged once: on processors other than amd64 and arm64.
func Detecting() bool { return held.Detecting() }
