package hotcacheredis

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redisfeed"
	"github.com/latchkey-go/latchkey/internal/redistext"
)

// Follow implements [hotcache.Node]. The listener is called by the goroutine that reads the connection, for all members
// of the node: it has to be quick.
func (n *Node) Follow(as hotcache.Member, l hotcache.Listener) (hotcache.Feed, error) {
	switch {
	case n.closed.Load():
		return nil, fmt.Errorf("hotcacheredis: follow: %w", hotcache.ErrClosed)
	case l == nil:
		return nil, fmt.Errorf("hotcacheredis: follow: %w: nobody to tell: the listener is nil", hotcache.ErrInvalid)
	}
	if err := checkMember(as); err != nil {
		return nil, fmt.Errorf("hotcacheredis: follow: %w", err)
	}
	f := &feed{node: n, as: as, to: l}
	var err error
	if f.own, err = n.hub.Subscribe(n.keys.to(as), &channel{feed: f, mine: true}); err == nil {
		f.all, err = n.hub.Subscribe(n.keys.feed(), &channel{feed: f})
	}
	if err != nil {
		f.end()
		return nil, fmt.Errorf("hotcacheredis: follow: %w", translated(err))
	}
	return f, nil
}

// A feed is one member's connection: to the channel of all and to its own.
type feed struct {
	node *Node
	as   hotcache.Member
	to   hotcache.Listener
	all  *redisfeed.Subscription
	own  *redisfeed.Subscription

	lives  atomic.Uint64 // of the subscription
	known  atomic.Uint64 // the life in which the server was looked at
	member atomic.Bool   // whether it was ever on the list of those who trust their memory

	mu     sync.Mutex // guards what follows, and is held while the listener is called: one call at a time
	stands [2]bool
	up     bool
}

// A channel is a receiver of one of the two.
type channel struct {
	feed *feed
	mine bool
}

func (c *channel) index() int {
	if c.mine {
		return 1
	}
	return 0
}

// Up implements [redisfeed.Receiver]. The listener is told when both channels stand, which are on one connection.
func (c *channel) Up() {
	f := c.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stands[c.index()] = true
	if f.stands == [2]bool{true, true} && !f.up {
		f.up = true
		f.lives.Add(1)
		f.to.Up()
	}
}

// Down implements [redisfeed.Receiver].
func (c *channel) Down(why error) {
	f := c.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	tell := f.up || !f.stands[c.index()] // both end together, which is told once; or the server refuses one
	f.stands[c.index()], f.up = false, false
	if tell {
		f.to.Down(fmt.Errorf("hotcacheredis: %w: %w", ErrUnavailable, why))
	}
}

// Message implements [redisfeed.Receiver].
func (c *channel) Message(text string) {
	f := c.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.up {
		return
	}
	m, err := parseMessage(text, f.node.o.version)
	switch {
	case err != nil && c.mine: // it was nothing that must be heard
	case err != nil:
		// It may have been an invalidation. The subscription stands; what it stands for has to be proved anew.
		f.to.Down(fmt.Errorf("hotcacheredis: what was published cannot be read: %w", err))
		f.to.Up()
	case m.kind == 't':
		f.to.Told(m.text)
	case c.mine:
	case m.kind == 'i':
		f.to.Invalidated(m.inv, m.by)
	case m.kind == 'w':
		f.to.Woken(m.text)
	}
}

// Beat implements [hotcache.Feed]. It asks over the connection that invalidations come on, so that those before have
// been heard.
func (f *feed) Beat(ctx context.Context, trust time.Duration) (hotcache.Position, error) {
	p, err := f.beat(ctx, trust)
	if err != nil {
		return hotcache.Position{}, fmt.Errorf("hotcacheredis: beat: %w", translated(err))
	}
	return p, nil
}

func (f *feed) beat(ctx context.Context, trust time.Duration) (hotcache.Position, error) {
	n := f.node
	if err := n.open(ctx); err != nil {
		return hotcache.Position{}, err
	}
	ctx, cancel := redistext.Limited(ctx, n.o.Timeout)
	defer cancel()
	if err := n.meet(ctx); err != nil {
		return hotcache.Position{}, err
	}
	n.trusts(trust)
	// A connection was lost and made again: the server may be another one, with its scripts, and older data.
	if life := f.lives.Load(); f.known.Load() < life {
		if _, err := f.do(ctx, n.call(n.scripts.adopt, trust, "", "").whole(f.all.B())); err != nil {
			return hotcache.Position{}, err
		}
		f.known.Store(life)
	}
	f.member.Store(true)
	c := n.call(n.scripts.beat, trust, "", "", string(f.as), strconv.Itoa(MaxMembers))
	m, err := n.loaded(ctx, func() (rueidis.RedisMessage, error) { return f.do(ctx, c.command(f.all.B())) })
	if err != nil {
		return hotcache.Position{}, err
	}
	text, err := m.ToString()
	if err != nil {
		return hotcache.Position{}, err
	}
	return parseHeader(text, n.o.version)
}

// trusts notes for how long a member trusts its memory.
func (n *Node) trusts(d time.Duration) {
	for {
		old := n.trust.Load()
		if int64(d) <= old || n.trust.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// do sends one command over the feed's own connection.
func (f *feed) do(ctx context.Context, command rueidis.Completed) (rueidis.RedisMessage, error) {
	answers, err := f.all.Do(ctx, command)
	if err != nil {
		return rueidis.RedisMessage{}, err
	}
	return answers[0].ToMessage()
}

// Tell implements [hotcache.Feed].
func (f *feed) Tell(ctx context.Context, to hotcache.Member, text string) error {
	if err := f.tell(ctx, to, text); err != nil {
		return fmt.Errorf("hotcacheredis: tell: %w", translated(err))
	}
	return nil
}

func (f *feed) tell(ctx context.Context, to hotcache.Member, text string) error {
	n := f.node
	if err := n.open(ctx); err != nil {
		return err
	}
	if len(text) > MaxTell {
		return fmt.Errorf("%w: the text has %d bytes, at most %d", hotcache.ErrTooLarge, len(text), MaxTell)
	}
	channel := n.keys.feed()
	if to != hotcache.Everybody {
		if err := checkMember(to); err != nil {
			return err
		}
		channel = n.keys.to(to)
	}
	ctx, cancel := redistext.Limited(ctx, n.o.Timeout)
	defer cancel()
	message := strconv.Itoa(n.o.version) + " t\n" + text
	return n.client.Do(ctx, n.client.B().Publish().Channel(channel).Message(message).Build()).Error()
}

// farewell is how long Close waits for the server. A member that it does not take off the list is off it when its trust
// has passed.
const farewell = 250 * time.Millisecond

// Close implements [hotcache.Feed].
func (f *feed) Close() {
	f.end()
	n := f.node
	if n.closed.Load() || !f.member.Swap(false) {
		return
	}
	ctx, cancel := context.WithTimeout(n.life, farewell)
	defer cancel()
	err := n.client.Do(ctx, n.client.B().Zrem().Key(n.keys.members()).Member(string(f.as)).Build()).Error()
	if err != nil {
		n.o.Logger.Debug("a member was not taken off the list", "error", err)
	}
}

func (f *feed) end() {
	for _, s := range []*redisfeed.Subscription{f.own, f.all} {
		if s != nil {
			s.Close()
		}
	}
}
