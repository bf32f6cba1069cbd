package hotcache

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/feed"
)

// What nodes and caches say to one another. These are the types of the pure core, in which all decisions are made.
type (
	Version      = core.Version      // of a row: rises with each write; 0 is none
	Item         = core.Item         // a row, encoded, or that there is none
	Times        = core.Times        // how long an item is good
	Stamp        = core.Stamp        // where in a node's feed an item was read
	Token        = core.Token        // name of a fill lease
	Ask          = core.Ask          // a read of a key at its home
	Answer       = core.Answer       // what the home says
	Fill         = core.Fill         // what a lease holder loaded
	Filled       = core.Filled       // whether it was stored
	Copy         = core.Copy         // of a hot key, on a node that is not its home
	Invalidation = core.Invalidation // one number of a node's feed
	Rules        = core.Rules        // what all processes of a fleet must agree on
	Position     = feed.Position     // of a node in its feed
)

// Fresh, as the least version that a loader is asked for, means the row as it is now: from the primary, never from
// a replica that may lag.
const Fresh = core.Fresh

// A Node is one place where items are kept, for all processes of a fleet: the home of the keys that the ring gives it.
// The embedded one is in this process; package hotcacheredis has one in a Redis. Its methods may be called from any
// goroutine. Every implementation passes the suite in package hotcachetest.
//
// An error means that it is not known whether the node did what it was asked for; everything that is asked of it can
// be done twice without harm.
type Node interface {
	// Ask reads a key, and grants the lease to fill it if there is nothing to read: see [Answer].
	Ask(ctx context.Context, q Ask) (Answer, error)
	// Fill stores what was loaded under a lease, unless the lease is gone or the floor is above it, and wakes those who
	// wait for the key.
	Fill(ctx context.Context, f Fill) (Filled, error)
	// Renew makes a lease last longer and tells whether it still holds.
	Renew(ctx context.Context, key string, t Token) (bool, error)
	// Fail ends a lease whose load failed, tells those who wait for the key why, and keeps everybody from loading it
	// for a pause.
	Fail(ctx context.Context, key string, t Token, why string, pause time.Duration) error
	// Invalidate raises the floor of a key, voids the lease for it, removes what is older, and broadcasts that as the
	// next number of the feed. It returns who has to be waited for: the members who may trust their memory, without
	// the one who asks. Those tell it, by Tell, when they have heard of it. A node that may have forgotten members names
	// one that nobody is, for as long as they may trust it.
	Invalidate(ctx context.Context, key string, v Version, by Member) (Invalidation, []Member, error)
	// Copies of hot keys, of which another node is the home. A copy replaces only one with an older stamp, or of
	// another generation.
	GetCopy(ctx context.Context, key string) (*Copy, error)
	PutCopy(ctx context.Context, key string, c Copy) error
	// Follow subscribes a member, until the feed is closed. It returns at once.
	Follow(as Member, l Listener) (Feed, error)
}

// A Member is the name of one process in the fleet, made at random when it starts.
type Member string

// Everybody is who [Feed.Tell] tells when it names nobody.
const Everybody Member = ""

// A Feed is the live connection of one member to one node.
type Feed interface {
	// Beat returns the node's position, in the order of the feed: every invalidation broadcast before has been handed
	// to the listener when it returns. It also keeps the member on the list of those who may trust their memory, for
	// the given time by the node's clock.
	Beat(ctx context.Context, trust time.Duration) (Position, error)
	// Tell sends a text to a member, or to everybody. It may be lost.
	Tell(ctx context.Context, to Member, text string) error
	// Close ends the subscription and takes the member off the list. When it has returned, the listener is not called
	// any more.
	Close()
}

// A Listener is told what happens at a node. Its methods are called one at a time, must not block, and must not call
// the feed.
type Listener interface {
	// Up says that the subscription stands: everything from here on is handed over, or Down is called.
	Up()
	// Invalidated hands over one invalidation, in order. by is who made it.
	Invalidated(inv Invalidation, by Member)
	// Woken says that a load which somebody waited for has ended.
	Woken(key string)
	// Told hands over what another member sent to this one, or to everybody.
	Told(text string)
	// Down says that invalidations may be missed from here until the next Up.
	Down(why error)
}
