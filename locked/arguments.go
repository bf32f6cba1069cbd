package locked

import (
	"context"
	"fmt"
)

// gaveUp is the error of a wait during which the context has ended.
func gaveUp(ctx context.Context) error { return ends(ctx, "gave up waiting for an update in flight") }

// over is the error of a call whose context had ended before there was anything to wait for.
func over(ctx context.Context) error { return ends(ctx, "the context was over before the call") }

func ends(ctx context.Context, what string) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err { // a context of somebody else's making may have none
		return fmt.Errorf("locked: %s: %w", what, err)
	}
	return fmt.Errorf("locked: %s: %w: %w", what, err, cause)
}

// noFunction is what a call without a function panics with. It does so before anything is
// locked, and whether or not the function would have run.
func noFunction(name string) string { return "locked: " + name + ": the function is nil" }

// noContext is what a call without a context panics with.
func noContext(name string) string {
	return "locked: " + name + ": the context is nil; use context.Background, or the method without a context"
}
