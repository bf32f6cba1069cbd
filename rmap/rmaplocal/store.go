// Package rmaplocal keeps replicated maps in the memory of this process: the [rmap.Store] that needs no server.
//
// Use it in tests, in programs that are one process, and as the beginning of one that will be several: only what opens
// the store changes then. Its maps are gone with the process.
//
//	store := rmaplocal.New(rmaplocal.Options{})
//	defer store.Close()
//
// Whoever is to share maps shares the *Store. All its methods may be called from any goroutine. Followers are called
// inside of the write that they are told about, and so in order and before the write returns; they must not call the
// store, nor wait for somebody who does. A follower is told that it is up inside of Follow.
//
// There is no goroutine and no timer: an entry past its deadline is removed by the next write to its map, and a map
// past its own when it is next asked for, or when room is made for others. Time is that of package time, so that
// programs under testing/synctest see deadlines pass in no time.
package rmaplocal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// Defaults of the limits in [Options].
const (
	// DefaultMaxMaps is how many maps a store has at most.
	DefaultMaxMaps = 10_000
	// DefaultMaxFollowers is how many follow one map at most: each is called in every write.
	DefaultMaxFollowers = 10_000
)

// Options are the limits of a store. The zero Options are the defaults.
type Options struct {
	// MaxMaps is how many maps there may be. What would be one more is refused with [rmap.ErrTooLarge].
	MaxMaps int
	// MaxFollowers is how many may follow one map.
	MaxFollowers int
}

// A Store has maps in memory. It implements [rmap.Store]; [New] makes one.
type Store struct {
	maxMaps, maxFollowers int
	begin                 time.Time // where its clock starts

	mu     sync.Mutex // guards what follows; taken before that of a book, never after
	closed bool
	books  map[string]*book
}

// New makes a store without maps.
func New(o Options) *Store {
	s := &Store{maxMaps: o.MaxMaps, maxFollowers: o.MaxFollowers, begin: time.Now(), books: make(map[string]*book)}
	if s.maxMaps <= 0 {
		s.maxMaps = DefaultMaxMaps
	}
	if s.maxFollowers <= 0 {
		s.maxFollowers = DefaultMaxFollowers
	}
	return s
}

// Close ends the store: followers are told that it is down, and every call after that fails with [rmap.ErrClosed].
// The maps are gone. A second Close is harmless.
func (s *Store) Close() {
	s.mu.Lock()
	books := s.books
	s.books, s.closed = nil, true
	s.mu.Unlock()
	for _, b := range books {
		b.shut()
	}
}

// now is the store's clock in milliseconds of Unix time. It runs by the monotonic clock, so that a wall clock that is
// set back neither keeps entries alive nor ends them early.
func (s *Store) now() int64 { return s.begin.Add(time.Since(s.begin)).UnixMilli() }

// Write implements [rmap.Store].
func (s *Store) Write(ctx context.Context, name string, w rmap.Write) (rmap.Result, error) {
	if err := ready(ctx, name); err != nil {
		return rmap.Result{}, err
	}
	if err := w.Check(); err != nil {
		return rmap.Result{}, fmt.Errorf("rmaplocal: write to map %q: %w", name, err)
	}
	b, err := s.lock(name, true)
	if err != nil {
		return rmap.Result{}, fmt.Errorf("rmaplocal: write to map %q: %w", name, err)
	}
	defer b.mu.Unlock()
	r, err := b.write(s.now(), &w)
	if err != nil {
		return rmap.Result{}, fmt.Errorf("rmaplocal: write to map %q: %w", name, err)
	}
	return r, nil
}

// scanChunk is how many entries Scan hands over at once.
const scanChunk = 512

// Scan implements [rmap.Store]. It hands over the entries as they all were at one moment.
func (s *Store) Scan(ctx context.Context, name string, yield func([]rmap.Entry) error) error {
	items, err := s.items(ctx, name)
	if err != nil {
		return err
	}
	for len(items) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("rmaplocal: scan of map %q: %w", name, err)
		}
		n := min(len(items), scanChunk)
		chunk := make([]rmap.Entry, n)
		for i, it := range items[:n] {
			chunk[i] = it.entry
		}
		if err := yield(chunk); err != nil {
			return err
		}
		items = items[n:]
	}
	return nil
}

// items returns all entries of a map. They are never changed once they are in a map, only replaced, so that they can
// be read without the lock.
func (s *Store) items(ctx context.Context, name string) ([]*item, error) {
	if err := ready(ctx, name); err != nil {
		return nil, err
	}
	b, err := s.lock(name, false)
	if err != nil || b == nil {
		return nil, wrapped(err, "scan of", name)
	}
	defer b.mu.Unlock()
	b.settle(s.now())
	items := make([]*item, 0, len(b.entries))
	for _, it := range b.entries {
		items = append(items, it)
	}
	return items, nil
}

// Since implements [rmap.Store].
func (s *Store) Since(ctx context.Context, name string, r rmap.Revision) ([]rmap.Change, error) {
	if err := ready(ctx, name); err != nil {
		return nil, err
	}
	b, err := s.lock(name, false)
	if err != nil || b == nil {
		return nil, wrapped(err, "changes of", name)
	}
	defer b.mu.Unlock()
	b.settle(s.now())
	return b.log.since(r), nil
}

// Follow implements [rmap.Store]. The follower is told that it is up before Follow returns.
func (s *Store) Follow(name string, f rmap.Follower) (rmap.Feed, error) {
	if err := ready(context.Background(), name); err != nil {
		return nil, err
	}
	if f == nil {
		return nil, fmt.Errorf("rmaplocal: follow map %q: %w: nobody to tell: the follower is nil", name, rmap.ErrInvalid)
	}
	b, err := s.lock(name, true)
	if err != nil {
		return nil, wrapped(err, "follow", name)
	}
	defer b.mu.Unlock()
	if len(b.feeds) >= s.maxFollowers {
		return nil, fmt.Errorf("rmaplocal: follow map %q: %w: it has %d followers (Options.MaxFollowers)", name,
			rmap.ErrTooLarge, len(b.feeds))
	}
	fd := &feed{store: s, book: b, follower: f}
	b.feeds = append(b.feeds, fd)
	f.Up()
	return fd, nil
}

// lock returns the book of a map, locked. If there is none it makes one, or returns nil.
func (s *Store) lock(name string, create bool) (*book, error) {
	for {
		s.mu.Lock()
		b, err := s.bookLocked(name, create)
		s.mu.Unlock()
		if err != nil || b == nil {
			return nil, err
		}
		b.mu.Lock()
		if !b.gone {
			return b, nil
		}
		b.mu.Unlock() // taken out of the store meanwhile: look again
	}
}

func (s *Store) bookLocked(name string, create bool) (*book, error) {
	if s.closed {
		return nil, rmap.ErrClosed
	}
	b := s.books[name]
	if b != nil || !create {
		return b, nil
	}
	// Two are looked at for each that comes, so that those that nobody asks for any more cannot pile up.
	s.sweepLocked(2)
	if len(s.books) >= s.maxMaps {
		s.sweepLocked(len(s.books))
	}
	if len(s.books) >= s.maxMaps {
		return nil, fmt.Errorf("%w: the store has %d maps (Options.MaxMaps)", rmap.ErrTooLarge, len(s.books))
	}
	b = &book{name: name}
	s.books[name] = b
	return b, nil
}

// sweepLocked looks at up to n maps, whichever come, and takes out those with nothing in them.
func (s *Store) sweepLocked(n int) {
	now := s.now()
	for name, b := range s.books {
		if n--; n < 0 {
			return
		}
		if !b.mu.TryLock() {
			continue // in use, so not to be forgotten; and waiting here would turn the order of locks around
		}
		b.settle(now)
		if b.gone = b.idle(); b.gone {
			delete(s.books, name)
		}
		b.mu.Unlock()
	}
}

func wrapped(err error, what, name string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("rmaplocal: %s map %q: %w", what, name, err)
}
