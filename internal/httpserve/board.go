package httpserve

import (
	"context"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

const (
	shownKeys   = 100              // keys on one page
	shownTop    = 5                // most contended keys
	liveEvery   = time.Second      // between two looks for a stream, when looking is cheap
	liveAtMost  = 30 * time.Second // and however costly it is
	lookShare   = 20               // a look may cost one part in so many of the time
	keepLook    = time.Minute      // an unused look is forgotten after that
	rateWindow  = 2 * time.Minute  // shown by the rate curves
	sampleEvery = 900 * time.Millisecond
)

// view is what somebody looks at: a part of the keys.
type view struct {
	prefix string
	after  string
	base   string // scheme and host that the viewer used, for the commands shown
}

// look is the state of a view at one moment. It is not changed after it was made.
type look struct {
	at      time.Time
	took    time.Duration
	stats   lease.Stats
	keys    lease.Listing
	top     lease.Listing
	samples []sample
	err     error
	parts   map[string][]byte // rendered parts of the page, by name; filled by who asked first
	used    time.Time
}

// sample is the state of the two counters whose rates are shown.
type sample struct {
	at      time.Time
	granted uint64
	expired uint64
}

// board looks at the service for all viewers together. Nobody looks when nobody
// watches; viewers of the same view share a look; and since a look at very many
// keys takes the service's time, the next one waits the longer the longer the
// last one took.
type board struct {
	svc lease.Service

	mu      sync.Mutex // guards the rest, and is held during a look, so that looks never overlap
	looks   map[view]*look
	samples []sample
}

func newBoard(svc lease.Service) *board {
	return &board{svc: svc, looks: make(map[view]*look)}
}

// see returns a look that is not older than maxAge, or than looking may cost.
// render is run once per look, under the board's mutex.
func (b *board) see(ctx context.Context, v view, maxAge time.Duration, render func(*look)) *look {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if l := b.looks[v]; l != nil && now.Sub(l.at) <= max(maxAge, b.rest(l)) {
		l.used = now
		return l
	}
	l := b.take(ctx, v, now)
	render(l)
	for other, o := range b.looks {
		if now.Sub(o.used) > keepLook {
			delete(b.looks, other)
		}
	}
	if l.err == nil {
		b.looks[v] = l
	}
	return l
}

// rest is how long to let the service alone after a look, so that all views
// together stay within the share.
func (b *board) rest(l *look) time.Duration {
	return min(l.took*lookShare*time.Duration(len(b.looks)), liveAtMost)
}

// next is how long a stream waits after a look.
func (b *board) next(l *look) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(liveEvery, b.rest(l))
}

func (b *board) take(ctx context.Context, v view, now time.Time) *look {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	l := &look{at: now, used: now, parts: make(map[string][]byte)}
	if l.stats, l.err = b.svc.Stats(ctx); l.err != nil {
		return l
	}
	q := lease.Query{Prefix: v.prefix, After: v.after, Limit: shownKeys}
	if l.keys, l.err = b.svc.List(ctx, q); l.err != nil {
		return l
	}
	if v.prefix == "" && v.after == "" && l.stats.ContendedKeys > 0 {
		if l.top, l.err = b.svc.List(ctx, lease.Query{Contended: true, Limit: shownTop}); l.err != nil {
			return l
		}
	}
	l.took = time.Since(now)
	b.sample(now, l.stats)
	l.samples = append([]sample(nil), b.samples...)
	return l
}

// sample remembers the counters for the rate curves, at most about once a second.
func (b *board) sample(now time.Time, st lease.Stats) {
	if n := len(b.samples); n > 0 {
		last := b.samples[n-1]
		if now.Sub(last.at) < sampleEvery {
			return
		}
		if st.Granted < last.granted || st.Expired < last.expired {
			b.samples = nil // the service behind was started again
		}
	}
	b.samples = append(b.samples, sample{now, st.Granted, st.Expired})
	old := 0
	for old < len(b.samples)-1 && now.Sub(b.samples[old].at) > rateWindow {
		old++
	}
	b.samples = b.samples[old:]
}
