package rmaptest

import (
	"context"
	"fmt"
	"sync"

	"github.com/latchkey-go/latchkey/rmap"
)

// A link is the way of one process to a store, which a test can cut for what comes from the store: changes are lost
// and heads cannot be had. Writes still arrive, so that a test can show what is applied but not seen.
type link struct {
	rmap.Store

	mu    sync.Mutex // guards all below, and makes the calls of each follower one at a time
	away  bool
	lines []*wireEnd
}

// A wireEnd is one subscription over a link.
type wireEnd struct {
	rmap.Feed
	link     *link
	follower rmap.Follower
	closed   bool
	up       bool // the store said so
}

func newLink(s rmap.Store) *link { return &link{Store: s} }

// cut takes the link away, and says so.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = true
	for _, x := range l.lines {
		if x.up && !x.closed {
			x.follower.Down(errAway)
		}
	}
}

// mend brings it back.
func (l *link) mend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = false
	for _, x := range l.lines {
		if x.up && !x.closed {
			x.follower.Up()
		}
	}
}

var errAway = fmt.Errorf("%w: the link is cut", rmap.ErrUnavailable)

// Follow implements [rmap.Store].
func (l *link) Follow(name string, f rmap.Follower) (rmap.Feed, error) {
	x := &wireEnd{link: l, follower: f}
	feed, err := l.Store.Follow(name, x)
	l.mu.Lock()
	defer l.mu.Unlock()
	x.Feed = feed
	l.lines = append(l.lines, x)
	return x, err
}

func (x *wireEnd) isAway() bool {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	return x.link.away
}

// Head implements [rmap.Feed].
func (x *wireEnd) Head(ctx context.Context) (rmap.Head, error) {
	if x.isAway() {
		return rmap.Head{}, errAway
	}
	h, err := x.Feed.Head(ctx)
	if x.isAway() {
		return rmap.Head{}, errAway // its changes may not have arrived
	}
	return h, err
}

// Close implements [rmap.Feed].
func (x *wireEnd) Close() {
	x.Feed.Close()
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	x.closed = true
}

func (x *wireEnd) hand(do func()) {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	if !x.link.away {
		do()
	}
}

// Up implements [rmap.Follower].
func (x *wireEnd) Up() {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	x.up = true
	if !x.link.away {
		x.follower.Up()
	}
}

// Changed implements [rmap.Follower].
func (x *wireEnd) Changed(c rmap.Change) { x.hand(func() { x.follower.Changed(c) }) }

// Unreadable implements [rmap.Follower].
func (x *wireEnd) Unreadable(err error) { x.hand(func() { x.follower.Unreadable(err) }) }

// Down implements [rmap.Follower].
func (x *wireEnd) Down(err error) {
	x.link.mu.Lock()
	defer x.link.mu.Unlock()
	x.up = false
	if !x.link.away {
		x.follower.Down(err)
	}
}
