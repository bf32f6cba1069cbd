package rmap_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// A judge watches one map of a simulation from outside: what it shows, what it says of its age, and what it tells.
type judge struct {
	t     *testing.T
	s     *server
	l     *link
	m     *rmap.Map[string, int]
	who   string
	beat  time.Duration // the map's heartbeat
	worst time.Duration // longest that a message is under way unless it is lost or the link is frozen
	began time.Time
	exact bool // the server's clock is never set, so that entries must be hidden on time

	mu     sync.Mutex // guards what follows
	replay map[string]int
	told   []string // the last events, and where they led on from, for the message of a failure
}

// toldKept is how many events a failure shows.
const toldKept = 24

// note keeps what was told last. The mutex is held.
func (j *judge) note(format string, args ...any) {
	if len(j.told) == toldKept {
		j.told = append(j.told[:0], j.told[1:]...)
	}
	j.told = append(j.told, fmt.Sprintf("%v ", time.Since(j.began))+fmt.Sprintf(format, args...))
}

// fail reports what must not be, once: what follows from it is noise.
func (j *judge) fail(format string, args ...any) {
	if !j.t.Failed() {
		j.t.Errorf(j.who+": "+format, args...)
	}
}

// look checks what a reader sees at this moment. The age is asked for first, so that what is shown can only be newer.
func (j *judge) look() {
	lag := j.m.Lag()
	shown := j.m.Snapshot()
	now := time.Now()
	j.isState(shown)
	if lag.Age < 0 {
		j.fail("the age is %v", lag.Age)
	}
	j.atLeast(shown, now.Add(-lag.Age), "by its age")
	if lag.State != rmap.Live {
		return
	}
	// The proof before may have been asked for just before the loss; the next one begins a heartbeat after its answer.
	bound := j.beat + 2*j.l.limit
	if lag.Age > bound+time.Millisecond {
		j.fail("live with an age of %v, more than %v", lag.Age, bound)
	}
	end, undone := j.s.lasted(shown.Revision())
	if undone {
		end = later(end, j.handed(shown.Revision()))
	}
	if now.Sub(end) > bound+j.worst && !j.over(shown) {
		j.fail("live at %v, which the store left %v ago for %v", shown.Revision(), now.Sub(end), j.s.revision())
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (j *judge) handed(r rmap.Revision) (at time.Time) {
	j.l.each(func(n *line) { at = later(at, n.handed(r)) })
	return at
}

// over tells whether a snapshot shows nothing because the time of the whole map is over.
func (j *judge) over(shown rmap.Snapshot[string, int]) bool {
	if shown.Len() > 0 {
		return false
	}
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	j.s.now()
	st := j.s.states[shown.Revision()]
	return st != nil && st.expires != 0 && st.expires <= j.s.ahead
}

// isState checks that a snapshot is one true state of the store, without what is past its deadline.
func (j *judge) isState(shown rmap.Snapshot[string, int]) {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	st := j.s.states[shown.Revision()]
	if st == nil {
		j.fail("it shows %v, which the store never had", shown.Revision())
		return
	}
	now := j.s.now()
	late := now - j.worst.Milliseconds() - 1
	for key, v := range shown.All() {
		e, ok := st.entries[key]
		held, _ := shown.Entry(key)
		var deadline int64
		if !held.Deadline.IsZero() {
			deadline = held.Deadline.UnixMilli()
		}
		switch {
		case !ok:
			j.fail("at %v it shows %q, which is not there", st.rev, key)
		case e.Value.Data != itoa(v) || e.Nonce != held.Revision.Nonce || e.Number != held.Revision.Number || e.Deadline != deadline:
			j.fail("at %v it shows %q as %d of %v until %d, and the store had %+v", st.rev, key, v, held.Revision, deadline, e)
		case j.exact && e.Deadline != 0 && e.Deadline < late:
			j.fail("it shows %q %d ms after its deadline", key, now-e.Deadline)
		case j.exact && st.expires != 0 && st.expires < late:
			j.fail("it shows %q %d ms after the deadline of the map", key, now-st.expires)
		}
	}
	for key, e := range st.entries {
		if _, ok := shown.Get(key); !ok && !j.past(st, e) {
			j.fail("at %v it does not show %+v at %d (the map ends at %d)", st.rev, e, j.s.ahead, st.expires)
		}
	}
}

// past tells whether an entry may be hidden. The server's mutex is held.
func (j *judge) past(st *state, e rmap.Entry) bool {
	j.s.now()
	return e.Deadline != 0 && e.Deadline <= j.s.ahead || st.expires != 0 && st.expires <= j.s.ahead
}

// atLeast checks that what is shown has all that was finished before a moment: it is a state in which the store was
// then or later. A change that the store undid can arrive after the question whose answer proves that moment; only the
// next question shows it.
func (j *judge) atLeast(shown rmap.Snapshot[string, int], since time.Time, why string) {
	r := shown.Revision()
	end, undone := j.s.lasted(r)
	if undone {
		end = later(end, j.handed(r))
	}
	if j.over(shown) { // which is as good as having seen that the store has nothing
		none, _ := j.s.lasted(rmap.Revision{})
		end = later(end, none)
	}
	if end.Before(since) {
		j.fail("%s it shows everything of %v ago, but it is at %v, which the store left %v ago", why, time.Since(since), r,
			time.Since(end))
	}
}

// sync calls Sync and checks its promise.
func (j *judge) sync(ctx context.Context) error {
	called := time.Now()
	err := j.m.Sync(ctx)
	if err == nil {
		j.atLeast(j.m.Snapshot(), called, "after Sync")
	} else if !errors.Is(err, rmap.ErrUnavailable) && !errors.Is(err, rmap.ErrClosed) && !errors.Is(err, rmap.ErrFormat) {
		j.fail("Sync: %v", err)
	}
	return err
}

// waited checks the promise of WaitFor and of SetAndWait, which were called at a time.
func (j *judge) waited(r rmap.Revision, called time.Time, err error) {
	shown := j.m.Snapshot().Revision()
	switch {
	case err == nil && !j.s.follows(shown, r):
		// It can have gone on since, to what the store became instead; and of what is older than its last whole reading
		// it does not know better.
		unknown := shown.Generation == r.Generation && shown.Number > r.Number && j.reloaded()
		if end, _ := j.s.lasted(shown); end.Before(called) && !unknown {
			j.fail("it waited for %v in vain: it shows %v", r, shown)
		}
	case errors.Is(err, rmap.ErrGone) && !j.s.undone(called) && j.s.follows(j.s.revision(), r):
		j.fail("%v is said to be gone, and the store is at %v", r, j.s.revision())
	}
}

func (j *judge) reloaded() bool {
	stats := j.m.Stats()
	return stats.Reloads != rmap.Stats{}.Reloads
}

// watch replays the events that lead on from a snapshot and checks that they come to what the store had at each revision.
// Whenever it is told to read again it begins anew.
func (j *judge) watch(ctx context.Context, events int) {
	for again := true; again; {
		again = false
		shown, sequence := j.m.Follow(ctx, rmap.WatchOptions{Events: events})
		at := shown.Revision()
		j.mu.Lock()
		j.replay = maps.Collect(shown.All())
		j.note("begins at %v with %v", at, j.replay)
		j.mu.Unlock()
		for e := range sequence {
			j.mu.Lock()
			j.note("%v of %v: %q is %d, was %d (%t)", e.Cause, e.Revision, e.Key, e.New, e.Old, e.HasOld)
			j.mu.Unlock()
			// A subscriber that fell behind may have lost the rest of a revision of which it was told the beginning.
			if e.Revision != at && e.Cause != rmap.CauseAgain {
				j.replayed(at)
				at = e.Revision
			}
			switch e.Cause {
			case rmap.CauseSet, rmap.CauseDelete, rmap.CauseExpire:
				j.apply(e)
				continue
			case rmap.CauseReset, rmap.CauseReload, rmap.CauseAgain:
				again = true
			default:
				j.fail("event %v: %v", e, e.Err)
			}
			break
		}
	}
}

func (j *judge) apply(e rmap.Event[string, int]) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if old, ok := j.replay[e.Key]; ok != e.HasOld || old != e.Old {
		j.fail("event %v: the old value is %d (%t), and by the events so far %d (%t)", e, e.Old, e.HasOld, old, ok)
	}
	delete(j.replay, e.Key)
	if e.Cause == rmap.CauseSet {
		j.replay[e.Key] = e.New
	}
}

// replayed checks what the events have come to at a revision.
func (j *judge) replayed(at rmap.Revision) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	st := j.s.states[at]
	if st == nil {
		j.fail("an event is of %v, which the store never had", at)
		return
	}
	for key, v := range j.replay {
		if e, ok := st.entries[key]; !ok || e.Value.Data != itoa(v) {
			j.fail("by the events at %v %q is %d, and the store had %+v\n%s", at, key, v, e, strings.Join(j.told, "\n"))
		}
	}
	for key, e := range st.entries {
		if _, ok := j.replay[key]; !ok && !j.past(st, e) {
			j.fail("by the events at %v there is no %q, and the store had %+v\n%s", at, key, e, strings.Join(j.told, "\n"))
		}
	}
}

// settled checks that the copy, and what was told of it, equal the store, when all has been quiet long enough.
func (j *judge) settled() {
	if lag := j.m.Lag(); lag.State != rmap.Live || lag.Revision != j.s.revision() {
		j.fail("after all was quiet it is %v at %v (%v), and the store is at %v", lag.State, lag.Revision, lag.Err, j.s.revision())
	}
	j.look()
	shown := maps.Collect(j.m.All())
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.replay != nil && !maps.Equal(j.replay, shown) {
		j.fail("after all was quiet it shows %v, and by the events %v", shown, j.replay)
	}
}
