package held

// Kind is what a goroutine is inside of.
type Kind uint8

// The kinds.
const (
	Var         Kind = iota + 1 // an update of a locked.Var
	Map                         // a section of a locked.Map
	KeyMap                      // an update of a key of a locked.KeyMap
	Transaction                 // a run of a function given to stm.Atomically
	Actor                       // a message of an actor, on its owner
)

// String names the kind as users know it.
func (k Kind) String() string {
	switch k {
	case Var:
		return "an update of a locked.Var"
	case Map:
		return "a section of a locked.Map"
	case KeyMap:
		return "an update of a locked.KeyMap"
	case Transaction:
		return "an stm transaction"
	case Actor:
		return "a message of an actor"
	}
	return "nothing"
}

// Lock reports whether the kind is one of package locked.
func (k Kind) Lock() bool { return k == Var || k == Map || k == KeyMap }
