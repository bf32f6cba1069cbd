package redisfeed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

var (
	// ErrDown: the subscription does not stand. What is wrapped with it says why.
	ErrDown = errors.New("subscription is down")
	// ErrClosed: the hub or the subscription has been closed.
	ErrClosed = errors.New("closed")
	// ErrTooMany: a limit of the hub is reached.
	ErrTooMany = errors.New("too many")
)

// Limits of one hub.
const (
	// MaxSubscriptions is how many subscriptions a hub keeps: all of them are asked for again after a break.
	MaxSubscriptions = 1 << 16
	// MaxPending is how many commands may wait for answers on the connection. It is half of what the client can queue
	// without blocking, so that the PING always has room.
	MaxPending = 512
	// subscribeBatch is how many channels are subscribed in one go: the PING behind them has to come back in time.
	subscribeBatch = 256
)

// Options of a hub. The zero value is what most want.
type Options struct {
	// Heartbeat is the time from one answered PING to the next; 0 is one second.
	Heartbeat time.Duration
	// Timeout is how long an answer may take, and any command over the connection; 0 is one second. A link that
	// went silent is noticed within Heartbeat + Timeout.
	Timeout time.Duration
	// MinBackoff and MaxBackoff bound the pause before a new connection. It begins with MinBackoff, doubles, and is
	// drawn at random below that each time; 0 is 50 ms and 2 s.
	MinBackoff, MaxBackoff time.Duration
	// Logger is told of connections and losses, with the address of the server, never of what is in a message; nil is
	// silent.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		of *time.Duration
		is time.Duration
	}{
		{&o.Heartbeat, time.Second}, {&o.Timeout, time.Second},
		{&o.MinBackoff, 50 * time.Millisecond}, {&o.MaxBackoff, 2 * time.Second},
	} {
		if *d.of <= 0 {
			*d.of = d.is
		}
	}
	o.MaxBackoff = max(o.MaxBackoff, o.MinBackoff)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Receiver is told what happens to one subscription. Its methods are called one at a time, must return soon (a
// connection whose messages are not taken is closed like one that is silent), and must not call Close or Do of the
// subscription, nor Close of the hub.
type Receiver interface {
	// Up says that everything published from here on is handed over, or Down is called.
	Up()
	// Message hands over what was published, in order.
	Message(text string)
	// Down says that messages may be missed from here until the next Up. It is also called, without an Up before,
	// when the server refuses the subscription; the hub goes on asking.
	Down(why error)
}

// A Hub subscribes channels of one Redis over one connection. All methods may be called from any goroutine.
type Hub struct {
	client rueidis.Client
	o      Options
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	poke   chan struct{}  // wakes the owner: something in dirty
	idle   sync.WaitGroup // the owner, and connections that are being closed

	mu       sync.Mutex // guards what follows; never held while a receiver or the server is waited for
	started  bool
	closed   bool
	channels map[string][]*Subscription // each slice is replaced, never changed
	count    int
	dirty    map[string]struct{} // channels that are not subscribed as they should be
	link     *link               // nil between connections
	why      error               // why there is no connection
	stats    Stats
}

// New returns a hub over the client, which stays the caller's: it must outlive the hub. The connection is made for the
// first subscription.
func New(client rueidis.Client, o Options) *Hub {
	o = o.withDefaults()
	o.Logger = o.Logger.With("address", strings.Join(slices.Sorted(maps.Keys(client.Nodes())), ", "))
	ctx, cancel := context.WithCancel(context.Background())
	return &Hub{
		client: client, o: o, ctx: ctx, cancel: cancel, poke: make(chan struct{}, 1),
		channels: make(map[string][]*Subscription), dirty: make(map[string]struct{}),
		why: errors.New("not connected yet"),
	}
}

// Subscribe has r told what is published on the channel, from its Up on. It returns at once. The same channel may be
// subscribed any number of times.
func (h *Hub) Subscribe(channel string, r Receiver) (*Subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return nil, fmt.Errorf("redisfeed: subscribe %q: hub is %w", channel, ErrClosed)
	case h.count >= MaxSubscriptions:
		return nil, fmt.Errorf("redisfeed: subscribe %q: %w subscriptions: the limit is %d", channel, ErrTooMany, MaxSubscriptions)
	}
	s := &Subscription{hub: h, channel: channel, to: r}
	h.channels[channel] = append(slices.Clip(h.channels[channel]), s)
	h.count++
	h.touch(channel)
	if !h.started {
		h.started = true
		h.idle.Add(1)
		go h.own()
	}
	return s, nil
}

// touch has the owner look at a channel. The mutex is held.
func (h *Hub) touch(channel string) {
	h.dirty[channel] = struct{}{}
	select {
	case h.poke <- struct{}{}:
	default:
	}
}

// forget takes a subscription out. The last of a channel unsubscribes it.
func (h *Hub) forget(s *Subscription) {
	h.mu.Lock()
	defer h.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(h.channels[s.channel]), func(other *Subscription) bool { return other == s })
	if len(left) == len(h.channels[s.channel]) {
		return
	}
	h.count--
	h.channels[s.channel] = left
	if len(left) == 0 {
		delete(h.channels, s.channel)
		h.touch(s.channel)
	}
}

// of returns who is subscribed to a channel.
func (h *Hub) of(channel string) []*Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.channels[channel]
}

// all returns every subscription.
func (h *Hub) all() []*Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]*Subscription, 0, h.count)
	for _, subs := range h.channels {
		out = append(out, subs...)
	}
	return out
}

// Close ends the connection and all subscriptions. No receiver is called when it has returned, nor told that it is down.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.why = ErrClosed
	h.mu.Unlock()
	h.cancel()
	for _, s := range h.all() {
		s.end()
	}
	h.idle.Wait()
}
