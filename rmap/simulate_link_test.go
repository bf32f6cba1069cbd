package rmap_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// A link is one process's way to a server, and the [rmap.Store] that its maps see. What it does wrong is decided by
// its faults, which are called without a lock and may do whatever they like to the server meanwhile; those that are nil
// do no harm. A link without faults takes no time.
type link struct {
	s     *server
	limit time.Duration // of Head

	mu     sync.Mutex // guards what follows
	faults faults
	lines  []*line
	counts struct{ heads, scans, sinces, writes int }
}

type faults struct {
	// change returns after what times a change is handed over: once, never when it is lost, or twice.
	change func(rmap.Change) []time.Duration
	// head is called when the question is under way, and again with answered when the answer is. An error is what Head
	// returns then.
	head func(ctx context.Context, answered bool) error
	// chunk is called before the chunk i of a scan, and after the last.
	chunk func(ctx context.Context, i int) error
	// since may change what Since returns.
	since func(context.Context, []rmap.Change) ([]rmap.Change, error)
	// write is called before a write is done, and after.
	write func(ctx context.Context, done bool) error
}

func newLink(s *server) *link { return &link{s: s, limit: 100 * time.Millisecond} }

// set replaces the faults.
func (l *link) set(f faults) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = f
}

// count counts a call and returns the faults.
func (l *link) count(n *int) faults {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n++
	return l.faults
}

// unavailable is what a call comes to that did nothing.
func unavailable(why string) error { return fmt.Errorf("%w: %s", rmap.ErrUnavailable, why) }

// Write implements [rmap.Store].
func (l *link) Write(ctx context.Context, _ string, w rmap.Write) (rmap.Result, error) {
	f := l.count(&l.counts.writes)
	if err := ctx.Err(); err != nil {
		return rmap.Result{}, err
	}
	if f.write != nil {
		if err := f.write(ctx, false); err != nil {
			return rmap.Result{}, err
		}
	}
	l.s.mu.Lock()
	if err := l.s.refusal; err != nil {
		l.s.mu.Unlock()
		return rmap.Result{}, err
	}
	r, err := l.s.write(w)
	l.s.mu.Unlock()
	if err == nil && f.write != nil {
		err = f.write(ctx, true)
	}
	return r, err
}

// Scan implements [rmap.Store]. What it reads it reads when the chunk is handed over, and the first keys come again at
// the end, as they are then.
func (l *link) Scan(ctx context.Context, _ string, yield func([]rmap.Entry) error) error {
	const atOnce = 3
	f := l.count(&l.counts.scans)
	keys := l.keys()
	keys = append(keys, keys[:min(len(keys), atOnce)]...)
	for i := 0; ; i++ {
		if f.chunk != nil {
			if err := f.chunk(ctx, i); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(keys) == 0 {
			return nil
		}
		n := min(len(keys), atOnce)
		chunk, err := l.read(keys[:n])
		if err != nil {
			return err
		}
		if err := yield(chunk); err != nil {
			return err
		}
		keys = keys[n:]
	}
}

func (l *link) keys() []string {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.settle()
	var keys []string
	for key := range l.s.at.entries {
		keys = append(keys, key)
	}
	return keys
}

func (l *link) read(keys []string) ([]rmap.Entry, error) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.s.settle()
	var chunk []rmap.Entry
	for _, key := range keys {
		if e, ok := l.s.at.entries[key]; ok {
			chunk = append(chunk, e)
		}
	}
	return chunk, l.s.refusal
}

// Since implements [rmap.Store].
func (l *link) Since(ctx context.Context, _ string, r rmap.Revision) ([]rmap.Change, error) {
	f := l.count(&l.counts.sinces)
	l.s.mu.Lock()
	changes, err := l.s.since(r), l.s.refusal
	l.s.mu.Unlock()
	if err == nil && f.since != nil {
		return f.since(ctx, changes)
	}
	return changes, err
}

// Follow implements [rmap.Store].
func (l *link) Follow(_ string, f rmap.Follower) (rmap.Feed, error) {
	n := &line{l: l, f: f, wake: make(chan struct{}, 1), ended: make(chan struct{}), seen: map[rmap.Revision]time.Time{}}
	l.mu.Lock()
	l.lines = append(l.lines, n)
	l.mu.Unlock()
	go n.run()
	n.connect()
	return n, nil
}

// each calls a function for every line that is in use.
func (l *link) each(fn func(*line)) {
	l.mu.Lock()
	lines := slices.Clone(l.lines)
	l.mu.Unlock()
	for _, n := range lines {
		fn(n)
	}
}

func (l *link) cut()     { l.each((*line).cut) }
func (l *link) connect() { l.each((*line).connect) }

// freeze stops all deliveries until the link is thawed, and tells nobody.
func (l *link) freeze(frozen bool) {
	l.each(func(n *line) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.frozen = frozen
		n.nudge()
	})
}

// replay hands over a change that nobody made now.
func (l *link) replay(ch rmap.Change) {
	l.each(func(n *line) { n.push(n.changed(ch), time.Now()) })
}

// unreadable hands over what cannot be read.
func (l *link) unreadable(err error) {
	l.each(func(n *line) { n.push(func() { n.f.Unreadable(err) }, time.Now()) })
}

// A line is one subscription: a queue of what is under way, and a goroutine that hands it over in order.
type line struct {
	l     *link
	f     rmap.Follower
	wake  chan struct{}
	ended chan struct{}

	call sync.Mutex // held while the follower is called; taken before mu, never after

	mu     sync.Mutex // guards what follows
	queue  []message
	gone   chan struct{} // closed when the connection is; nil while there is none
	frozen bool
	closed bool
	seen   map[rmap.Revision]time.Time // when a change was handed over last
}

type message struct {
	at      time.Time
	deliver func()
}

func (n *line) nudge() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// run hands over what is in the queue. It is only called in a synctest bubble.
func (n *line) run() {
	defer close(n.ended)
	for {
		n.call.Lock()
		n.mu.Lock()
		if n.closed {
			n.mu.Unlock()
			n.call.Unlock()
			return
		}
		var deliver func()
		var later <-chan time.Time
		if len(n.queue) > 0 && !n.frozen {
			if wait := time.Until(n.queue[0].at); wait <= 0 {
				deliver = n.queue[0].deliver
				n.queue = n.queue[1:]
			} else {
				later = time.After(wait)
			}
		}
		n.mu.Unlock()
		if deliver != nil {
			deliver()
		}
		n.call.Unlock()
		if deliver != nil {
			continue
		}
		select {
		case <-n.wake:
		case <-later:
		}
	}
}

// push puts something into the queue, never in front of what is in it.
func (n *line) push(deliver func(), at time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone != nil {
		n.pushLocked(deliver, at)
	}
}

func (n *line) pushLocked(deliver func(), at time.Time) {
	if len(n.queue) > 0 && at.Before(n.queue[len(n.queue)-1].at) {
		at = n.queue[len(n.queue)-1].at
	}
	n.queue = append(n.queue, message{at, deliver})
	n.nudge()
}

func (n *line) changed(ch rmap.Change) func() {
	return func() {
		n.mu.Lock()
		n.seen[ch.Revision] = time.Now()
		n.mu.Unlock()
		n.f.Changed(ch)
	}
}

// broadcast puts a change on its way. The server's mutex is held, so the faults must not touch the server.
func (n *line) broadcast(ch rmap.Change) {
	n.l.mu.Lock()
	fate := n.l.faults.change
	n.l.mu.Unlock()
	delays := []time.Duration{0}
	if fate != nil {
		delays = fate(ch)
	}
	for _, d := range delays {
		n.push(n.changed(ch), time.Now().Add(d))
	}
}

// cut loses the connection with all that is in it.
func (n *line) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone == nil {
		return
	}
	close(n.gone)
	n.gone, n.queue = nil, nil
	n.pushLocked(func() { n.f.Down(unavailable("the connection was cut")) }, time.Now())
}

// connect makes a new connection.
func (n *line) connect() {
	n.l.s.mu.Lock()
	defer n.l.s.mu.Unlock()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone != nil || n.closed {
		return
	}
	n.gone = make(chan struct{})
	n.pushLocked(n.f.Up, time.Now())
	if !slices.Contains(n.l.s.lines, n) {
		n.l.s.lines = append(n.l.s.lines, n)
	}
}

// Head implements [rmap.Feed]: the answer comes on the line, in the order of the changes.
func (n *line) Head(ctx context.Context) (rmap.Head, error) {
	f := n.l.count(&n.l.counts.heads)
	ctx, cancel := context.WithTimeoutCause(ctx, n.l.limit, unavailable("no answer in time"))
	defer cancel()
	n.mu.Lock()
	gone := n.gone
	n.mu.Unlock()
	if gone == nil {
		return rmap.Head{}, unavailable("there is no connection")
	}
	if f.head != nil {
		if err := f.head(ctx, false); err != nil {
			return rmap.Head{}, err
		}
	}
	var head rmap.Head
	var refusal error
	answered := make(chan struct{})
	n.l.s.mu.Lock()
	n.mu.Lock()
	if n.gone == gone {
		head, refusal = n.l.s.head(), n.l.s.refusal
		n.pushLocked(func() { close(answered) }, time.Now())
	}
	n.mu.Unlock()
	n.l.s.mu.Unlock()
	select {
	case <-answered:
	case <-gone:
		return rmap.Head{}, unavailable("the connection was lost")
	case <-ctx.Done():
		return rmap.Head{}, context.Cause(ctx)
	}
	if f.head != nil {
		if err := f.head(ctx, true); err != nil {
			return rmap.Head{}, err
		}
	}
	return head, refusal
}

// Close implements [rmap.Feed].
func (n *line) Close() {
	n.l.s.mu.Lock()
	n.l.s.lines = slices.DeleteFunc(n.l.s.lines, func(o *line) bool { return o == n })
	n.l.s.mu.Unlock()
	n.l.mu.Lock()
	n.l.lines = slices.DeleteFunc(n.l.lines, func(o *line) bool { return o == n })
	n.l.mu.Unlock()
	n.call.Lock()
	n.mu.Lock()
	n.closed = true
	n.nudge()
	n.mu.Unlock()
	n.call.Unlock()
	<-n.ended
}

// handed returns when a change was handed over last.
func (n *line) handed(r rmap.Revision) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen[r]
}
