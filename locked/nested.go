package locked

import (
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// NestedError refuses a call that may wait, made by a goroutine that is inside of an
// update, a section or a transaction. Its text names both, and what to use instead.
type NestedError = held.NestedError

// ErrNested is matched by every NestedError.
var ErrNested = held.ErrNested

// call is a call that may wait.
type call struct {
	name string // as the user calls it
	kind held.Kind
	of   unsafe.Pointer // what would be waited for, nil when that is one key of a map
}

// refuses reports whether a call that may wait is refused inside of a frame. Inside of
// a message of an actor it may wait: no lock waits for an actor.
func refuses(inside held.Frame) bool {
	return inside.Kind != 0 && inside.Kind != held.Actor
}

// refusal makes the error of a call that is refused inside of a frame.
func refusal(c call, inside held.Frame) *NestedError {
	return &NestedError{Wanted: c.name, Inside: inside.Kind, Advice: advice(c, inside)}
}

func advice(c call, inside held.Frame) string {
	switch {
	case inside.Kind == held.Transaction:
		return "a transaction may run more than once; do it in its Tx.AfterCommit, or make both stm.Vars"
	case inside.Kind == held.Var && inside.Of == c.of:
		return "the function was given the value; use that, and return the new one"
	case inside.Kind == held.KeyMap && c.kind == held.KeyMap:
		return "the function was given the value of its key; keys that change together belong into one locked.Map, and one that is only looked at may be read with Peek"
	case inside.Kind == held.Map && c.kind == held.Map:
		return "what changes together belongs into one locked.Map, or into stm.Vars"
	case inside.Kind == held.Map:
		return "what changes together with the map belongs into it, or all of it into stm.Vars; what is only looked at may be read with Peek"
	case c.kind == held.Map:
		return "values that change together belong into stm.Vars, or into one locked.Map; read one that is only looked at before"
	default:
		return "values that change together belong into stm.Vars, or into one locked.Map; one that is only looked at may be read with Peek"
	}
}
