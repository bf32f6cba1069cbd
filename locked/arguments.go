package locked

import (
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/internal/held"
)

// gaveUp is the error of a wait during which the context has ended.
func gaveUp(ctx context.Context) error {
	return fmt.Errorf("locked: gave up waiting for an update in flight: %w", held.Over(ctx))
}

// over is the error of a call whose context had ended before there was anything to wait for.
func over(ctx context.Context) error {
	return fmt.Errorf("locked: the context was over before the call: %w", held.Over(ctx))
}

// noFunction is what a call without a function panics with. It does so before anything is
// locked, and whether or not the function would have run.
func noFunction(name string) string { return "locked: " + name + ": the function is nil" }

// noContext is what a call without a context panics with.
func noContext(name string) string {
	return "locked: " + name + ": the context is nil; use context.Background, or the method without a context"
}
