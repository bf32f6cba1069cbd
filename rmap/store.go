package rmap

import (
	"context"
	"time"
)

// A Store keeps maps for all processes that use it: [rmaplocal] for those of one process, [rmapredis] for many. Its
// methods may be called at any time from any goroutine. It knows bytes; types, copies and subscriptions are the
// business of [Map], and written once.
//
// Every implementation passes the suite in package rmaptest.
type Store interface {
	// Write checks all conditions of w, and if they hold does all of its operations, in one atomic step that makes at
	// most one change with one revision and broadcasts it. A condition that does not hold is no error: see
	// [Result.Conflict].
	//
	// An error wraps [ErrUnknown] when the write may have been applied. Any other error means that it was not.
	Write(ctx context.Context, name string, w Write) (Result, error)

	// Scan hands over the entries of a map in chunks, while it goes on changing: what was there from beginning to end
	// is handed over at least once, what came or went meanwhile may or may not be. Entries past their deadline may be
	// among them. A chunk is the store's again when yield returns. An error of yield ends the scan and is returned.
	Scan(ctx context.Context, name string, yield func([]Entry) error) error

	// Since returns the changes that followed a revision, in order and without a gap, as far as they are known, or none
	// when the store no longer has them all or never had that revision. A revision with a generation and nothing else
	// is the beginning of that generation: what follows it is its first change.
	Since(ctx context.Context, name string, r Revision) ([]Change, error)

	// Follow subscribes f to the changes of a map, until the feed is closed. It returns at once: f is told when the
	// subscription stands, and the store goes on trying until it does.
	Follow(name string, f Follower) (Feed, error)
}

// A Feed is one live subscription.
type Feed interface {
	// Head returns where the map stands in the store, read in the order of the feed: every change that was broadcast
	// before has been handed to the follower when Head returns. It fails while the subscription does not stand, with an
	// error that wraps [ErrUnavailable], and never waits longer than the store's own time limit.
	Head(ctx context.Context) (Head, error)

	// Close ends the subscription. When it has returned, the follower is not called any more.
	Close()
}

// A Follower receives the changes of a map. Its methods are called one at a time, must not block, and must not call
// the feed.
type Follower interface {
	// Up says that the subscription stands: all changes from here on are handed over, or Down is called.
	Up()
	// Changed hands over one change, in the order in which the store made them.
	Changed(Change)
	// Unreadable says that something was broadcast that this store does not understand. The error wraps [ErrFormat]
	// when it is of a newer version.
	Unreadable(error)
	// Down says that changes may be missed from here until the next Up.
	Down(error)
}

// A Kind says what operations a value in the store understands. Set replaces any kind by any other.
type Kind byte

const (
	// Plain is a value that the store does not look into.
	Plain Kind = 'p'
	// Integer is a decimal number in the range of an int64, for [Inc].
	Integer Kind = 'i'
	// List is a sequence of items, for [Append] and the like: see [EncodeList].
	List Kind = 'l'
)

// A Value is a value as the store sees it. One without a kind was written by something else, past the store; no codec
// is asked about it.
type Value struct {
	Kind Kind
	Data string
}

// An Entry is a key with its value, as the store keeps it.
type Entry struct {
	Key   string
	Value Value
	// Number and Nonce are those of the change that wrote the value.
	Number, Nonce uint64
	// Deadline is when the entry ends, in milliseconds of Unix time by the store's clock; 0 is never.
	Deadline int64
}

// A Head is where a map stands in the store.
type Head struct {
	Revision Revision
	// Cleared is the number of the last change of this generation that removed all entries at once; 0 is none.
	Cleared uint64
	// Lifetime is the ttl that the map was created with.
	Lifetime Lifetime
	// Expires is when the whole map ends, in milliseconds of Unix time by the store's clock; 0 is never.
	Expires int64
	// Now is the store's clock when it read this, in milliseconds of Unix time.
	Now int64
}

// A Lifetime is the ttl of a whole map. It is fixed by the write that begins a generation.
type Lifetime struct {
	// TTL is how long the map lives, with a grain of a millisecond. 0 is for ever.
	TTL time.Duration
	// Sliding makes every change begin the time anew. Otherwise it runs from the beginning of the generation, and
	// neither a write nor a Reset changes it.
	Sliding bool
}

// A Test is what a [Condition] asks of a key.
type Test byte

const (
	IsAbsent  Test = iota + 1 // there is no entry
	IsPresent                 // there is an entry
	HasValue                  // there is an entry with this value, byte for byte and of the same kind
	HasNonce                  // there is an entry, written by the change with this nonce
)

// A Condition must hold for a [Write] to be done. An entry past its deadline is absent.
type Condition struct {
	Key   string
	Test  Test
	Value Value  // for HasValue
	Nonce uint64 // for HasNonce
}

// An Action is what an [Op] does.
type Action byte

const (
	DoSet          Action = 's' // replace the value
	DoDelete       Action = 'd' // remove the entry
	DoAdd          Action = 'n' // add Delta to an Integer; absent counts as 0
	DoAppend       Action = 'a' // add Items at the end of a List; absent counts as empty
	DoAppendUnique Action = 'u' // the same, without those that are in the list already
	DoRemove       Action = 'r' // remove all occurrences of Items from a List; an empty list is removed with its key
	DoClear        Action = 'c' // remove all entries; the generation goes on
	DoDestroy      Action = 'y' // as DoClear, and what remains of the map is forgotten after [TombstoneTTL]
	DoExpire       Action = 'x' // remove the entry if its deadline has passed
)

// An Op is one operation of a [Write].
type Op struct {
	Do    Action
	Key   string
	Value Value    // for DoSet
	Delta int64    // for DoAdd
	Items []string // for DoAppend, DoAppendUnique and DoRemove: encoded items
	// TTL is how long the entry lives from now, for DoSet, DoAdd, DoAppend and DoAppendUnique. 0 is for ever.
	TTL time.Duration
	// KeepTTL leaves the deadline of an entry that is there as it is; TTL is for one that is new.
	KeepTTL bool
}

// A Write is what [Store.Write] does in one step.
type Write struct {
	If  []Condition
	Ops []Op
	// Lifetime, when it is not nil, is what the writer says the map's lifetime is. It begins a generation with it, and
	// is refused with [ErrLifetime] when the map was created with another. A nil Lifetime goes along with any, and
	// begins a generation that lives for ever.
	Lifetime *Lifetime
	// MaxEntries refuses, with [ErrTooLarge], a write after which the map would have more entries. 0 is no limit.
	MaxEntries int
	// WantOld asks for [Result.Old].
	WantOld bool
}

// A Result is what became of a [Write].
type Result struct {
	// Revision is that of the change, or the one at which the map was found when nothing changed.
	Revision Revision
	// Changed tells whether there was a change. A write that changes nothing, such as the deletion of what is not
	// there, makes none. One whose condition failed can make one: entries past their deadline are removed on the way.
	Changed bool
	// Conflict is 1 + the index of the first condition that did not hold, in which case no operation was done.
	Conflict int
	// Current is, after a conflict, the entry under the key of that condition; nil is absent.
	Current *Entry
	// Old has for each operation the entry that was there before it, nil for none, if it was asked for.
	Old []*Entry
}

// A Change is one change of a map, as it is broadcast.
type Change struct {
	Revision Revision
	Prev     uint64 // nonce of the change before; 0 for the first of a generation
	Now      int64  // the store's clock at the change, in milliseconds of Unix time; 0 says nothing, where nothing in it ends
	Expires  int64  // as in Head
	Steps    []Step // in order
}

// A Step is one part of a [Change]: what the operation came to.
type Step struct {
	// Do is DoSet, DoDelete, DoClear, DoDestroy or DoExpire.
	Do Action
	// Entry is the whole entry after a DoSet. After a DoDelete or DoExpire only its key is given.
	Entry Entry
}
