package held

import "errors"

// ErrNested is matched by every NestedError.
var ErrNested = errors.New("it would wait for what this goroutine is inside of")

// NestedError refuses what would wait, directly or through others, for something
// that the same goroutine is inside of.
type NestedError struct {
	Wanted string // what was refused, as the user calls it
	Inside Kind   // what the goroutine is inside of
	Advice string // what to use instead
}

// Error says what was refused, where, and what to do instead.
func (e *NestedError) Error() string {
	return e.Wanted + " inside of " + e.Inside.String() + " is refused: " + e.Advice
}

// Is makes it match ErrNested.
func (e *NestedError) Is(target error) bool { return target == ErrNested }
