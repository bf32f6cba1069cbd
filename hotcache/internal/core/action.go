package core

import (
	"time"
)

// A ReadID names one read of a process, chosen by the driver.
type ReadID uint64

// An OpID names something that a [Front] asked its driver to do and wants to hear the outcome of.
type OpID uint64

// A Do is what the driver is asked to do. It reports back by the method of Front that is named with it.
type Do uint8

const (
	// DoAsk asks the key's home: [Front.Answered].
	DoAsk Do = iota + 1
	// DoCopy asks Node for its copy of the key: [Front.Copied].
	DoCopy
	// DoPutCopy stores a copy of an item on Node. Nothing is reported.
	DoPutCopy
	// DoLoad calls the loader, under a context of its own: [Front.Loaded].
	DoLoad
	// DoFill stores what was loaded: [Front.Filled].
	DoFill
	// DoRenew makes a fill lease last longer: [Front.Renewed].
	DoRenew
	// DoFail ends a fill lease whose load failed. Nothing is reported.
	DoFail
	// DoServe answers Reads, with Item or Err.
	DoServe
	// DoKeep puts the item into this process's memory, if [Front.Holds] still says so when that is done.
	DoKeep
	// DoDrop takes the key out of it.
	DoDrop
	// DoDropNode takes out all keys whose home is Node.
	DoDropNode
)

// An Action is one thing to do, with what that needs.
type Action struct {
	Do    Do
	Op    OpID
	Node  int // index of the node; the key's home for DoAsk, DoFill, DoRenew, DoFail, DoKeep
	Key   string
	Ask   Ask
	Fill  Fill
	Copy  Copy
	Token Token         // for DoRenew and DoFail
	Min   Version       // for DoLoad
	Why   string        // for DoFail
	Pause time.Duration // for DoFail

	Reads   []ReadID // for DoServe
	Outcome Outcome  // for DoServe
	Item    Item     // for DoServe without Err, and DoKeep
	Times   Times    // with Item
	Stamp   Stamp    // for DoKeep: see Front.Holds
	Err     error    // for DoServe
}

// An Outcome says where the answer to a read came from.
type Outcome uint8

const (
	FromMemory     Outcome = iota + 1 // this process's own copy
	FromCopy                          // a hot key's copy on another node
	FromHome                          // the key's home
	FromLoad                          // the loader
	Stale                             // the home, past its hard time, while somebody loads
	StaleOnError                      // the home, past its hard time, since the load failed
	FailedLoad                        // no answer: the load failed
	FailedShared                      // no answer: somebody else's load failed a moment ago
	FailedOutdated                    // no answer: the loader returned older rows than it was asked for
	Shed                              // no answer: too many loads are under way, and wait
	Outcomes                          // how many there are
)

// String returns the outcome as it appears in metrics.
func (o Outcome) String() string {
	return [...]string{"none", "memory", "copy", "home", "load", "stale", "stale_on_error", "failed_load", "failed_shared",
		"failed_outdated", "shed", "unknown"}[min(o, Outcomes)]
}

// A Copy is an item of a hot key on a node that is not its home. It carries the home's stamp: whether it may still be
// used is decided by who reads it, from what that process has heard of the home. So deleting copies is never needed.
type Copy struct {
	Item  Item
	Times Times
	Stamp Stamp
}

// Replaces tells whether a copy is to be stored where there is another one. One with an older stamp of the same generation
// is late; of two generations it is not known which is the newer, and readers judge.
func (c Copy) Replaces(old Copy) bool {
	return old.Stamp.Generation != c.Stamp.Generation || old.Stamp.Number <= c.Stamp.Number
}
