package rmap_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// A server is what the maps of a simulation share: one map with the semantics of a store, which differs from
// rmaplocal's in what can be done to it: it goes back, loses everything, refuses, and its clock is set.
// The lines to it, which can fail, are those of [link].
type server struct {
	mu      sync.Mutex // guards what follows; taken before that of a line, never after
	at      *state
	skew    int64          // its clock, less the bubble's, in milliseconds
	most    int64          // the most that this ever was
	ahead   int64          // the latest that its clock would have shown by now, had it never been set back
	life    *rmap.Lifetime // what those who write at the server say
	refusal error          // what all calls fail with: the data is of a newer format, or foreign
	lines   []*line
	reached []moment                 // where it stood, in order
	states  map[rmap.Revision]*state // all that it was ever in
}

// A state is one state of the map. It is never changed.
type state struct {
	rev     rmap.Revision
	tomb    bool
	cleared uint64
	life    rmap.Lifetime
	expires int64
	entries map[string]rmap.Entry
	log     []rmap.Change
	before  *state // what the change was made to; nil for the first of a generation
}

// A moment is when a server came to a state.
type moment struct {
	from time.Time
	at   *state
}

func newServer() *server {
	s := &server{states: map[rmap.Revision]*state{}}
	s.become(&state{})
	return s
}

// become moves to a state, of the past or new. The mutex is held, here and below.
func (s *server) become(st *state) {
	s.at = st
	s.states[st.rev] = st
	s.reached = append(s.reached, moment{time.Now(), st})
}

func (s *server) now() int64 {
	now := time.Now().UnixMilli() + s.skew
	s.ahead = max(s.ahead, time.Now().UnixMilli()+s.most)
	return now
}

// settle ends the map if its time has come.
func (s *server) settle() {
	if s.at.expires != 0 && s.at.expires <= s.now() {
		s.become(&state{})
	}
}

func (s *server) head() rmap.Head {
	s.settle()
	return rmap.Head{Revision: s.at.rev, Cleared: s.at.cleared, Lifetime: s.at.life, Expires: s.at.expires, Now: s.now()}
}

// since returns what followed a revision, as far as it is known.
func (s *server) since(r rmap.Revision) []rmap.Change {
	s.settle()
	for i, ch := range s.at.log {
		if ch.Revision.Generation == r.Generation && ch.Revision.Number == r.Number+1 && ch.Prev == r.Nonce {
			return slices.Clone(s.at.log[i:])
		}
	}
	return nil
}

// write does a write and hands the change to all lines.
func (s *server) write(w rmap.Write) (rmap.Result, error) {
	s.settle()
	old := s.at
	if l := w.Lifetime; l != nil && !old.rev.IsZero() && !old.tomb && *l != old.life {
		return rmap.Result{}, rmap.ErrLifetime
	}
	d := &draft{now: s.now(), tomb: old.tomb, rev: old.rev, entries: maps.Clone(old.entries)}
	if d.rev.IsZero() {
		d.rev.Generation = rand.Uint64() | 1
	}
	if d.entries == nil {
		d.entries = map[string]rmap.Entry{}
	}
	d.rev.Number++
	d.rev.Nonce = rand.Uint64() | 1
	d.purge()
	var r rmap.Result
	if r.Conflict = d.conflict(w.If); r.Conflict > 0 {
		if e, ok := d.entry(w.If[r.Conflict-1].Key); ok {
			r.Current = &e
		}
	} else if err := d.apply(w, &r); err != nil {
		return rmap.Result{}, err
	}
	if r.Changed = len(d.steps) > 0; r.Changed {
		s.commit(d, w)
	}
	r.Revision = s.at.rev
	return r, nil
}

func (s *server) commit(d *draft, w rmap.Write) {
	const kept = 32 // changes in the log
	old := s.at
	st := &state{rev: d.rev, tomb: d.tomb, cleared: old.cleared, life: old.life, expires: old.expires, entries: d.entries, before: old}
	if d.cleared {
		st.cleared = d.rev.Number
	}
	switch born := old.rev.IsZero() || old.tomb; {
	case d.tomb:
		st.life, st.expires = rmap.Lifetime{}, d.now+rmap.TombstoneTTL.Milliseconds()
	case born:
		st.life, st.expires = rmap.Lifetime{}, 0
		if w.Lifetime != nil {
			st.life = *w.Lifetime
		}
		fallthrough
	case st.life.Sliding:
		if st.life.TTL > 0 {
			st.expires = d.now + st.life.TTL.Milliseconds()
		}
	}
	ch := rmap.Change{Revision: d.rev, Prev: old.rev.Nonce, Now: d.now, Expires: st.expires, Steps: d.steps}
	if old.rev.IsZero() {
		ch.Prev = 0
	}
	st.log = append(slices.Clone(old.log[max(0, len(old.log)-kept+1):]), ch)
	s.become(st)
	for _, l := range s.lines {
		l.broadcast(ch)
	}
}

// A draft is a change in the making.
type draft struct {
	now     int64
	rev     rmap.Revision
	entries map[string]rmap.Entry
	steps   []rmap.Step
	cleared bool
	tomb    bool
}

func (d *draft) purge() {
	var due []rmap.Entry
	for _, e := range d.entries {
		if e.Deadline != 0 && e.Deadline <= d.now {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b rmap.Entry) int {
		return cmp.Or(cmp.Compare(a.Deadline, b.Deadline), strings.Compare(a.Key, b.Key))
	})
	for _, e := range due[:min(len(due), rmap.PurgeBatch)] {
		d.remove(rmap.DoExpire, e.Key)
	}
}

func (d *draft) entry(key string) (rmap.Entry, bool) {
	e, ok := d.entries[key]
	return e, ok && (e.Deadline == 0 || e.Deadline > d.now)
}

// conflict returns 1 + the index of the first condition that does not hold, 0 for none.
func (d *draft) conflict(conditions []rmap.Condition) int {
	for i, c := range conditions {
		e, ok := d.entry(c.Key)
		if ok != (c.Test != rmap.IsAbsent) || c.Test == rmap.HasValue && e.Value != c.Value ||
			c.Test == rmap.HasNonce && e.Nonce != c.Nonce {
			return i + 1
		}
	}
	return 0
}

func (d *draft) apply(w rmap.Write, r *rmap.Result) error {
	for _, op := range w.Ops {
		if _, ok := d.entries[op.Key]; ok {
			if _, ok := d.entry(op.Key); !ok {
				d.remove(rmap.DoExpire, op.Key)
			}
		}
		old, existed := d.entry(op.Key)
		if w.WantOld {
			r.Old = append(r.Old, nil)
			if existed {
				r.Old[len(r.Old)-1] = &old
			}
		}
		switch op.Do {
		case rmap.DoSet:
			d.set(op, old, op.Value)
		case rmap.DoAdd:
			n := int64(0)
			if existed {
				var err error
				if n, err = strconv.ParseInt(old.Value.Data, 10, 64); err != nil || old.Value.Kind != rmap.Integer {
					return rmap.ErrKind
				}
			}
			d.set(op, old, rmap.Value{Kind: rmap.Integer, Data: strconv.FormatInt(n+op.Delta, 10)})
		case rmap.DoDelete:
			if existed {
				d.remove(rmap.DoDelete, op.Key)
			}
		case rmap.DoClear:
			if len(d.entries) > 0 {
				d.clear(rmap.DoClear)
			}
		case rmap.DoDestroy:
			if d.rev.Number > 1 && !d.tomb || len(d.steps) > 0 {
				d.clear(rmap.DoDestroy)
				d.tomb = true
			}
		case rmap.DoExpire: // it was done above
		default:
			return fmt.Errorf("%w: the simulation has no action %q", rmap.ErrInvalid, op.Do)
		}
	}
	return nil
}

func (d *draft) set(op rmap.Op, old rmap.Entry, v rmap.Value) {
	e := rmap.Entry{Key: op.Key, Value: v, Number: d.rev.Number, Nonce: d.rev.Nonce}
	switch {
	case op.KeepTTL && old.Key != "":
		e.Deadline = old.Deadline
	case op.TTL > 0:
		e.Deadline = d.now + op.TTL.Milliseconds()
	}
	d.tomb = false
	d.entries[op.Key] = e
	d.steps = append(d.steps, rmap.Step{Do: rmap.DoSet, Entry: e})
}

func (d *draft) remove(do rmap.Action, key string) {
	delete(d.entries, key)
	d.steps = append(d.steps, rmap.Step{Do: do, Entry: rmap.Entry{Key: key}})
}

func (d *draft) clear(do rmap.Action) {
	clear(d.entries)
	d.cleared = true
	d.steps = append(d.steps, rmap.Step{Do: do})
}

// What is done to a server from outside.

// mustWrite does a write at the server, past all lines.
func (s *server) mustWrite(ops ...rmap.Op) rmap.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.write(rmap.Write{Ops: ops, Lifetime: s.life})
	if err != nil {
		panic(err)
	}
	return r.Revision
}

// rollback takes the server back to an earlier state; the zero Revision is a loss of everything. All connections may
// be lost with it, as in a failover.
func (s *server) rollback(to rmap.Revision, cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.lines {
		if cut {
			n.cut()
		}
	}
	s.become(s.states[to])
	s.settle()
}

func (s *server) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = err
}

func (s *server) setClock(by int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += by
	s.most = max(s.most, s.skew)
}

func (s *server) revision() rmap.Revision {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	return s.at.rev
}

// follows tells whether the history of a revision has another one in it.
func (s *server) follows(r, earlier rmap.Revision) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.states[r].has(earlier)
}

// has tells whether the history of a state has a revision in it.
func (st *state) has(r rmap.Revision) bool {
	for st != nil && st.rev.Generation == r.Generation && st.rev.Number > r.Number {
		st = st.before
	}
	return st != nil && st.rev == r
}

// lasted returns the last moment at which the server stood at a revision, the zero time if it never did, and whether
// it went elsewhere then than to a change of it, or has gone back behind it since.
func (s *server) lasted(r rmap.Revision) (end time.Time, undone bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	end = time.Now()
	for i := len(s.reached) - 1; i >= 0; i-- {
		if s.reached[i].at.rev == r {
			return end, undone || !s.reached[len(s.reached)-1].at.has(r)
		}
		end, undone = s.reached[i].from, s.reached[i].at.before == nil || s.reached[i].at.before.rev != r
	}
	return time.Time{}, false
}

// undone tells whether the server went anywhere but forward since a time.
func (s *server) undone(since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.reached) - 1; i > 0 && !s.reached[i].from.Before(since); i-- {
		if before := s.reached[i].at.before; before == nil || before != s.reached[i-1].at {
			return true
		}
	}
	return false
}

func itoa(v int) string { return strconv.Itoa(v) }
