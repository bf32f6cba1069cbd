package rmaplocal

import (
	"context"
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/rmap"
)

// A feed is one subscription.
type feed struct {
	store    *Store
	book     *book
	follower rmap.Follower
	closed   bool // guarded by book.mu
}

// Head implements [rmap.Feed]. Followers are called inside of the write, so that whatever was written is handed over.
func (f *feed) Head(ctx context.Context) (rmap.Head, error) {
	if err := ended(ctx); err != nil {
		return rmap.Head{}, wrapped(err, "head of", f.book.name)
	}
	b := f.book
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case f.closed:
		return rmap.Head{}, fmt.Errorf("rmaplocal: head of map %q: %w: the feed is closed", b.name, rmap.ErrClosed)
	case b.gone:
		return rmap.Head{}, fmt.Errorf("rmaplocal: head of map %q: %w: %w", b.name, rmap.ErrUnavailable, rmap.ErrClosed)
	}
	now := f.store.now()
	b.settle(now)
	return rmap.Head{Revision: b.at, Cleared: b.cleared, Lifetime: b.life, Expires: b.expires, Now: now}, nil
}

// Close implements [rmap.Feed].
func (f *feed) Close() {
	b := f.book
	b.mu.Lock()
	defer b.mu.Unlock()
	f.closed = true
	b.feeds = slices.DeleteFunc(b.feeds, func(other *feed) bool { return other == f })
}
