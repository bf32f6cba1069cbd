package held

import (
	"context"
	"errors"
	"fmt"
)

// Over is the error of a context that has ended: its own, and its cause if that is
// another. A context of somebody else's making that ended before its parent has no
// cause. It has nothing to do with nesting; it is here because the packages that
// share it share nothing else.
func Over(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
