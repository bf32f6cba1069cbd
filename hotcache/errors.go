package hotcache

import (
	"errors"
	"fmt"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// What can go wrong, to be matched with [errors.Is].
var (
	// ErrNotFound is what a loader returns, wrapped or not, when there is no such row; it is remembered like a value.
	ErrNotFound = errors.New("not found")
	// ErrClosed: the cache has been closed.
	ErrClosed = errors.New("hotcache: closed")
	// ErrOutdated: the loader keeps returning rows older than it was asked for: it reads a replica though it was given a
	// least version, or somebody invalidated before the commit.
	ErrOutdated = core.ErrOutdated
	// ErrOverloaded: so many loads are under way, and wait, that another would endanger the database: see [Options.MaxLoads];
	// or so many loaders do not return, though their time is over.
	ErrOverloaded = core.ErrOverloaded
	// ErrLoadFailed: somebody else's load of the key failed a moment ago; the text says why.
	ErrLoadFailed = core.ErrLoadFailed
	// ErrTooLarge: a key or a value exceeds a limit.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: an argument or an option is not valid.
	ErrInvalid = errors.New("invalid")
	// ErrDecode: a value does not decode, though it was loaded anew; or it does not for [Cache.Peek], which loads nothing.
	ErrDecode = errors.New("undecodable value")
	// ErrPanic: the loader panicked.
	ErrPanic = errors.New("loader panicked")
)

// A NotInvalidatedError says that the row was changed, but that the cache could not be told, or not surely: until that
// is done again, old values may be served for as long as their time lasts. Version is what was written.
type NotInvalidatedError struct {
	Key     string // as people read it, such as: key 7
	Version Version
	Err     error
}

// Error implements error.
func (e *NotInvalidatedError) Error() string {
	return fmt.Sprintf("hotcache: %s was written at version %d, but the cache was not told: %v", e.Key, e.Version, e.Err)
}

// Unwrap returns the reason.
func (e *NotInvalidatedError) Unwrap() error { return e.Err }
