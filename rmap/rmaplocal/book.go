package rmaplocal

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/latchkey-go/latchkey/rmap"
)

// A book is one map with its followers.
type book struct {
	name string

	mu    sync.Mutex // guards what follows
	gone  bool       // taken out of the store: whoever holds it asks the store again
	feeds []*feed    // in the order in which they came

	at      rmap.Revision // zero when there is nothing, in which case all of the following is zero too
	tomb    bool          // destroyed, and only its revision is remembered
	cleared uint64
	life    rmap.Lifetime
	expires int64
	entries map[string]*item
	due     deadlines
	log     changes
}

// settle ends the map if its time has come.
func (b *book) settle(now int64) {
	if b.expires == 0 || now < b.expires {
		return
	}
	b.at, b.tomb, b.cleared, b.life, b.expires = rmap.Revision{}, false, 0, rmap.Lifetime{}, 0
	b.entries, b.due, b.log = nil, nil, changes{}
}

// idle tells whether nothing would be lost without the book.
func (b *book) idle() bool { return b.at.IsZero() && len(b.feeds) == 0 }

// shut tells the followers that there is nothing more to come.
func (b *book) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone = true
	err := fmt.Errorf("rmaplocal: map %q: %w: %w", b.name, rmap.ErrUnavailable, rmap.ErrClosed)
	for _, f := range b.feeds {
		f.follower.Down(err)
	}
	b.feeds, b.entries, b.due, b.log = nil, nil, nil, changes{}
}

// write does all of a write, in which every return before commit leaves the book as it was.
func (b *book) write(now int64, w *rmap.Write) (rmap.Result, error) {
	b.settle(now)
	if l := w.Lifetime; l != nil && !b.at.IsZero() && !b.tomb && *l != b.life {
		return rmap.Result{}, fmt.Errorf("%w: it is %v (sliding %t), and the writer says %v (sliding %t)",
			rmap.ErrLifetime, b.life.TTL, b.life.Sliding, l.TTL, l.Sliding)
	}
	d := b.draft(now)
	d.purge()
	var r rmap.Result
	if i := d.conflict(w.If); i >= 0 {
		r.Conflict, r.Current = i+1, copied(d.entry(w.If[i].Key))
	} else if err := d.apply(w, &r); err != nil {
		return rmap.Result{}, err
	}
	if r.Changed = len(d.steps) > 0; r.Changed {
		b.commit(d, w)
	}
	r.Revision = b.at
	return r, nil
}

// commit makes a draft the state of the map, and tells it.
func (b *book) commit(d *draft, w *rmap.Write) {
	prev := b.at.Nonce
	b.at = d.at
	if d.cleared {
		b.cleared, b.entries, b.due = d.at.Number, nil, nil
	}
	if b.entries == nil {
		b.entries = make(map[string]*item)
	}
	for key, e := range d.over {
		b.put(key, e)
	}
	b.live(d, w)
	ch := rmap.Change{Revision: b.at, Prev: prev, Now: d.now, Expires: b.expires, Steps: d.steps}
	b.log.add(ch)
	for _, f := range b.feeds {
		f.follower.Changed(ch)
	}
}

// put replaces an entry, or removes it when e is nil.
func (b *book) put(key string, e *rmap.Entry) {
	if old := b.entries[key]; old != nil {
		b.due.remove(old)
		delete(b.entries, key)
	}
	if e != nil {
		it := &item{entry: *e}
		b.entries[key] = it
		b.due.add(it)
	}
}

// live sets when the map ends.
func (b *book) live(d *draft, w *rmap.Write) {
	b.tomb = d.tomb
	switch {
	case d.tomb:
		b.life, b.expires = rmap.Lifetime{}, d.now+rmap.TombstoneTTL.Milliseconds()
		return
	case d.born:
		b.life, b.expires = rmap.Lifetime{}, 0
		if w.Lifetime != nil {
			b.life = *w.Lifetime
		}
	case !b.life.Sliding:
		return // it ends when it was to end
	}
	if b.life.TTL > 0 {
		b.expires = d.now + b.life.TTL.Milliseconds()
	}
}

// nonce returns a random number that is not zero: zero stands for the absence of one.
func nonce() uint64 {
	for {
		if n := rand.Uint64(); n != 0 {
			return n
		}
	}
}

// copied returns a copy that is the caller's own.
func copied(e *rmap.Entry) *rmap.Entry {
	if e == nil {
		return nil
	}
	c := *e
	return &c
}
