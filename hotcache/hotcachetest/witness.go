package hotcachetest

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/hotcache"
)

// A witness follows a node and judges everything that it is told by itself.
type witness struct {
	as   hotcache.Member
	feed hotcache.Feed
	busy atomic.Bool // one call at a time is the promise

	mu     sync.Mutex // guards what follows against the test
	up     int
	closed bool
	heard  []heard
	nonces map[uint64]bool
	woken  []string
	told   []string
	broken []string
}

// heard is one invalidation, and what there was before.
type heard struct {
	hotcache.Invalidation
	by    hotcache.Member
	woken int // how many wakes came before it
}

// follow makes a witness, and waits until it is up.
func (e *env) follow(n hotcache.Node, as hotcache.Member) *witness {
	e.Helper()
	w := &witness{as: as, nonces: map[uint64]bool{}}
	feed, err := n.Follow(as, w)
	if err != nil {
		e.Fatalf("follow as %q: %v", as, err)
	}
	w.feed = feed
	e.all = append(e.all, w)
	e.until("the subscription stands", func() bool { return w.look(func() bool { return w.up > 0 }) })
	return w
}

// enter notes what must not be: a second call at the same time, or one after Close.
func (w *witness) enter(what string) (leave func()) {
	alone := w.busy.CompareAndSwap(false, true)
	w.mu.Lock()
	if !alone {
		w.complain("%s was called during another call", what)
	}
	if w.closed {
		w.complain("%s was called after Close had returned", what)
	}
	return func() {
		w.mu.Unlock()
		if alone {
			w.busy.Store(false)
		}
	}
}

func (w *witness) complain(format string, args ...any) {
	if len(w.broken) < 5 {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

func (w *witness) Up() {
	defer w.enter("Up")()
	w.up++
}

func (w *witness) Down(why error) {
	defer w.enter("Down")()
	w.complain("it was told that the feed is down: %v", why)
}

func (w *witness) Woken(key string) {
	defer w.enter("Woken")()
	w.woken = append(w.woken, key)
}

func (w *witness) Told(text string) {
	defer w.enter("Told")()
	w.told = append(w.told, text)
}

func (w *witness) Invalidated(inv hotcache.Invalidation, by hotcache.Member) {
	defer w.enter("Invalidated")()
	if w.up == 0 {
		w.complain("number %d came before Up", inv.Number)
	}
	if n := len(w.heard); n > 0 {
		before := w.heard[n-1]
		next := inv.Generation == before.Generation && inv.Number == before.Number+1 && inv.Prev == before.Nonce
		begun := inv.Generation != before.Generation && inv.Number == 1
		if !next && !begun {
			w.complain("%+v does not follow %+v", inv.Change, before.Change)
		}
	}
	if w.nonces[inv.Nonce] {
		w.complain("the nonce of number %d came before", inv.Number)
	}
	w.nonces[inv.Nonce] = true
	if !inv.Exists() || inv.Nonce == 0 || inv.Prev == 0 {
		w.complain("%+v has no generation, no nonce, or nothing before it", inv.Change)
	}
	w.heard = append(w.heard, heard{inv, by, len(w.woken)})
}

func (w *witness) look(at func() bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return at()
}

// hears waits until the witness has heard an invalidation, and returns what it was told.
func (e *env) hears(w *witness, inv hotcache.Invalidation) heard {
	e.Helper()
	var found heard
	e.until("an invalidation is heard", func() bool {
		return w.look(func() bool {
			for _, h := range slices.Backward(w.heard) { // it is one of the latest
				if h.Position == inv.Position {
					found = h
					return true
				}
			}
			return false
		})
	})
	return found
}

// wakes returns for which keys the witness was woken up to now: an invalidation is broadcast behind them.
func (e *env) wakes(w *witness) []string {
	e.Helper()
	n := e.hears(w, e.invalidate("mark", 0)).woken
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.woken[:n])
}

func (w *witness) close() {
	w.mu.Lock()
	was := w.closed
	w.mu.Unlock()
	if was {
		return
	}
	w.feed.Close()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
}

func (w *witness) problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.broken)
}

// beat asks for the position, and keeps the witness on the list for a time.
func (e *env) beat(w *witness) hotcache.Position {
	e.Helper()
	p, err := w.feed.Beat(e.ctx, long)
	if err != nil {
		e.Fatalf("beat of %s: %v", w.as, err)
	}
	return p
}
