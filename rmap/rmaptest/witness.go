package rmaptest

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/rmap"
)

// A witness follows a map, judges every change by itself, and keeps a copy that is made of the changes alone.
type witness struct {
	name string
	feed rmap.Feed
	busy atomic.Bool // one call at a time is the promise, so that nothing else of it needs a lock against itself

	mu      sync.Mutex // guards what follows against the test
	up      int
	closed  bool
	partial bool // it came late: its copy does not have what was before it
	changes []rmap.Change
	clock   int64 // the store's, as far as changes told
	nonces  map[uint64]bool
	entries map[string]rmap.Entry
	broken  []string
}

// follow makes a witness, and waits until it is up.
func (e *env) follow(s rmap.Store, name string) *witness {
	e.Helper()
	w := &witness{name: name, nonces: make(map[uint64]bool), entries: make(map[string]rmap.Entry)}
	feed, err := s.Follow(name, w)
	if err != nil {
		e.Fatalf("follow %q: %v", name, err)
	}
	w.feed = feed
	e.all = append(e.all, w)
	e.until("the subscription stands", func() bool { return w.isUp() })
	h := e.headOf(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.partial = w.partial || len(w.changes) == 0 && !h.Revision.IsZero()
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

// Up implements [rmap.Follower].
func (w *witness) Up() {
	defer w.enter("Up")()
	w.up++
	if w.up > 1 {
		w.complain("it was told %d times that it is up", w.up)
	}
}

// Down implements [rmap.Follower]. No link breaks in this suite.
func (w *witness) Down(err error) {
	defer w.enter("Down")()
	w.complain("it was told that it is down: %v", err)
}

// Unreadable implements [rmap.Follower].
func (w *witness) Unreadable(err error) {
	defer w.enter("Unreadable")()
	w.complain("it was told that something is unreadable: %v", err)
}

// Changed implements [rmap.Follower].
func (w *witness) Changed(c rmap.Change) {
	defer w.enter("Changed")()
	if w.up != 1 {
		w.complain("it was told %v before it was up", c.Revision)
	}
	w.place(c)
	w.changes = append(w.changes, c)
	if len(c.Steps) == 0 {
		w.complain("%v has no steps", c.Revision)
	}
	if c.Now != 0 && c.Now < w.clock {
		w.complain("%v is %d ms before a change before it", c.Revision, w.clock-c.Now)
	}
	w.clock = max(w.clock, c.Now)
	if c.Now == 0 && ends(&c) {
		w.complain("%v has something that ends, and does not say what time it is", c.Revision)
	}
	if c.Expires != 0 && c.Expires <= c.Now {
		w.complain("%v is at %d and says that the map ended at %d", c.Revision, c.Now, c.Expires)
	}
	for _, s := range c.Steps {
		w.step(&c, s)
	}
}

// ends tells whether there is a deadline in a change.
func ends(c *rmap.Change) bool {
	return c.Expires != 0 || slices.ContainsFunc(c.Steps, func(s rmap.Step) bool { return s.Entry.Deadline != 0 })
}

// place checks that a change follows the one before.
func (w *witness) place(c rmap.Change) {
	r := c.Revision
	if r.Generation == 0 || r.Number == 0 || r.Nonce == 0 {
		w.complain("%v has a zero in it", r)
	}
	if w.nonces[r.Nonce] {
		w.complain("the nonce of %v has been there before", r)
	}
	w.nonces[r.Nonce] = true
	if len(w.changes) == 0 {
		w.partial = r.Number != 1
		if !w.partial && c.Prev != 0 {
			w.complain("%v begins a generation, and says that %x was before it", r, c.Prev)
		}
		return
	}
	last := w.changes[len(w.changes)-1]
	if r.Generation != last.Revision.Generation {
		w.partial = false
		w.entries = make(map[string]rmap.Entry)
		if r.Number != 1 || c.Prev != 0 {
			w.complain("%v begins a generation, after %x", r, c.Prev)
		}
		return
	}
	if r.Number != last.Revision.Number+1 || c.Prev != last.Revision.Nonce {
		w.complain("%v, after %x, was told after %v", r, c.Prev, last.Revision)
	}
}

// step does a step to the copy, and checks that it is what a step should be.
func (w *witness) step(c *rmap.Change, s rmap.Step) {
	key := s.Entry.Key
	old, present := w.entries[key]
	switch s.Do {
	case rmap.DoSet:
		if s.Entry.Number != c.Revision.Number || s.Entry.Nonce != c.Revision.Nonce {
			w.complain("%v set an entry of number %d and nonce %x", c.Revision, s.Entry.Number, s.Entry.Nonce)
		}
		if s.Entry.Deadline != 0 && s.Entry.Deadline <= c.Now {
			w.complain("%v is at %d and set an entry that ended at %d", c.Revision, c.Now, s.Entry.Deadline)
		}
		w.entries[key] = s.Entry
	case rmap.DoDelete, rmap.DoExpire:
		if !present && !w.partial {
			w.complain("%v removed what was not there", c.Revision)
		}
		if s.Entry != (rmap.Entry{Key: key}) {
			w.complain("%v removed a key and told more than the key", c.Revision)
		}
		if s.Do == rmap.DoExpire && present && (old.Deadline == 0 || old.Deadline > c.Now) {
			w.complain("%v is at %d and expired an entry that ends at %d", c.Revision, c.Now, old.Deadline)
		}
		delete(w.entries, key)
	case rmap.DoClear, rmap.DoDestroy:
		if s.Entry != (rmap.Entry{}) {
			w.complain("%v cleared the map and told an entry", c.Revision)
		}
		if s.Do == rmap.DoClear && len(w.entries) == 0 && !w.partial {
			w.complain("%v cleared what was empty", c.Revision)
		}
		w.partial = false
		clear(w.entries)
	default:
		w.complain("%v has a step %q", c.Revision, s.Do)
	}
}

// complain keeps the first few problems: one leads to many.
func (w *witness) complain(format string, args ...any) {
	if len(w.broken) < 5 {
		w.broken = append(w.broken, fmt.Sprintf(format, args...))
	}
}

func (w *witness) problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.broken)
}

func (w *witness) isUp() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.up > 0
}

func (w *witness) isClosed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

func (w *witness) isPartial() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.partial
}

// close ends the subscription. Any call from here on is a broken promise.
func (w *witness) close() {
	w.feed.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}

// last returns the change that was told last.
func (w *witness) last() rmap.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.changes) == 0 {
		return rmap.Change{}
	}
	return w.changes[len(w.changes)-1]
}

// number returns the revision of the change that was told nth, from 1; none is that of the 0th.
func (w *witness) number(n uint64) rmap.Revision {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n == 0 || n > uint64(len(w.changes)) {
		return rmap.Revision{}
	}
	return w.changes[n-1].Revision
}

// told returns all changes so far.
func (w *witness) told() []rmap.Change {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.changes)
}

// copyAt returns what the changes come to, for a head that was read just now.
func (w *witness) copyAt(h rmap.Head) map[string]rmap.Entry {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Revision.IsZero() {
		return nil
	}
	return alive(maps.Clone(w.entries), h.Now)
}
