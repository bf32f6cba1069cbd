package engine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// state is what must survive: who holds what, with which token, ttl and fate.
func state(e *Engine) map[string]string {
	m := map[string]string{}
	for r := range e.ids.all {
		if r.wait != nil {
			continue
		}
		for i := range r.holds {
			if h := &r.holds[i]; h.live() {
				m[fmt.Sprintf("%s#%d", h.key.name, h.token)] = fmt.Sprintf("%s/%s %s %d ttl %v detached %v label %q",
					r.sess.id, r.id, r.mode, r.limit, r.ttl, r.flags&detached != 0, r.label())
			}
		}
	}
	for k := range e.keys.all {
		if k.delayed() != nil {
			m[k.name] = "in lock-delay"
		}
	}
	return m
}

// doses is how many seeds to run: few in a test, many when soaking.
func doses(few, many uint64) uint64 {
	if os.Getenv("LATCHKEY_SOAK") != "" {
		return many
	}
	return few
}

// churn runs random commands and time.
func churn(w *world, rng *rand.Rand, sessions []*Session, steps int) []*Session {
	ids := map[string]*Session{}
	any := func() (string, *Session) {
		if len(ids) == 0 {
			return "", nil
		}
		id := slices.Sorted(maps.Keys(ids))[rng.IntN(len(ids))]
		return id, ids[id]
	}
	for range steps {
		s := sessions[rng.IntN(len(sessions))]
		switch rng.IntN(12) {
		case 0, 1, 2, 3, 4:
			r := lease.Request{
				ID: fmt.Sprintf("r%d", rng.Uint32()), Keys: []string{fmt.Sprint("k", rng.IntN(6))},
				TTL: time.Duration(1+rng.IntN(5000)) * time.Millisecond, Mode: lease.Mode(rng.IntN(3)),
				Detach: rng.IntN(5) == 0, Try: rng.IntN(2) == 0,
			}
			if rng.IntN(3) == 0 {
				r.Keys = append(r.Keys, fmt.Sprint("m", rng.IntN(4)))
			}
			if r.Mode == lease.Counted {
				r.Limit = 1 + rng.IntN(4)
			}
			if rng.IntN(8) == 0 {
				r.Label, r.LockDelay = "label", time.Duration(1+rng.IntN(1000))*time.Millisecond
			}
			if rng.IntN(10) == 0 {
				r.TTL = lease.Forever
			}
			w.acquire(s, r)
			ids[r.ID] = s
		case 5, 6:
			if id, s := any(); s != nil {
				w.do(s, lease.Command{Verb: lease.Release, ID: id})
				delete(ids, id)
			}
		case 7:
			if id, s := any(); s != nil {
				w.do(s, lease.Command{Verb: lease.Renew, ID: id, TTL: time.Duration(1+rng.IntN(5000)) * time.Millisecond})
			}
		case 8:
			if id, s := any(); s != nil {
				w.do(s, lease.Command{Verb: lease.Detach, ID: id})
			}
		case 9:
			w.e.Force(lease.ForceRequest{Key: fmt.Sprint("k", rng.IntN(6))})
			w.carry()
		case 10:
			w.pass(time.Duration(rng.IntN(800)) * time.Millisecond)
		case 11:
			if rng.IntN(4) == 0 {
				i := rng.IntN(len(sessions))
				w.e.CloseSession(sessions[i], sessions[i].epoch)
				w.carry()
				sessions[i] = w.session(fmt.Sprintf("s%d", rng.Uint32()))
			}
		}
	}
	return sessions
}

// Replaying the records gives the state back; so does a snapshot, taken in
// pieces while the engine goes on, followed by the records written since it
// began. (lockd gaps 3 and 5: every
// record names its token, so an old end cannot touch a later hold of the key.)
func TestReplayAndFuzzySnapshot(t *testing.T) {
	for seed := range doses(60, 5000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		w := newWorld(t, Config{Durable: true})
		sessions := []*Session{w.session("a"), w.session("b"), w.session("c")}
		sessions = churn(w, rng, sessions, 150)
		before := w.log

		// The snapshot begins here: records from now on go behind it.
		w.log = nil
		var snap [][]byte
		walk := w.e.Snapshot()
		for walk.Next(1+rng.IntN(3), func(rec []byte) { snap = append(snap, rec) }) {
			sessions = churn(w, rng, sessions, rng.IntN(12))
		}
		churn(w, rng, sessions, 60)
		after := w.log
		want := state(w.e)

		check := func(how string, logs ...[][]byte) {
			t.Helper()
			e := New(Config{Durable: true})
			rs := e.Restore()
			for _, l := range logs {
				for _, rec := range l {
					if err := rs.Apply(rec); err != nil {
						t.Fatalf("seed %d, %s: %v", seed, how, err)
					}
				}
			}
			rs.Start(true, 0)
			if err := e.check(); err != nil {
				t.Fatalf("seed %d, %s: %v", seed, how, err)
			}
			if got := state(e); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d, %s:\n got %v\nwant %v", seed, how, got, want)
			}
			if e.token < w.e.token {
				t.Fatalf("seed %d, %s: the token fell from %d to %d", seed, how, w.e.token, e.token)
			}
		}
		check("records alone", before, after)
		check("snapshot and records", snap, after)
	}
}

// Thousands of leases that come and go while the walk is under way, so that the
// table it goes through grows and would shrink: none of those that stay is missed.
func TestSnapshotOfAMovingTable(t *testing.T) {
	for _, grows := range []bool{false, true} {
		w := newWorld(t, Config{Durable: true})
		w.unchecked = true
		s := w.session("s")
		n := 0
		hold := func() {
			r := lease.Request{ID: fmt.Sprint(n), Keys: []string{fmt.Sprint("k", n)}, TTL: time.Hour}
			n++
			w.e.Acquire(s, s.epoch, &r, &asker{})
		}
		for range 4000 {
			hold()
		}
		w.carry()
		w.log = nil
		var snap [][]byte
		gone := 0
		for walk := w.e.Snapshot(); walk.Next(100, func(rec []byte) { snap = append(snap, rec) }); {
			for range 200 {
				if grows {
					hold()
				} else if gone < 3900 {
					w.e.Do(s, s.epoch, lease.Command{Verb: lease.Release, ID: fmt.Sprint(gone * 1103 % 4000)}, nil)
					gone++
				}
			}
			w.carry()
		}
		e := New(Config{Durable: true})
		rs := e.Restore()
		for _, rec := range append(snap, w.log...) {
			if err := rs.Apply(rec); err != nil {
				t.Fatal(err)
			}
		}
		rs.Start(true, 0)
		if got, want := state(e), state(w.e); !reflect.DeepEqual(got, want) {
			t.Errorf("grows %v: %d leases came back, want %d", grows, len(got), len(want))
		}
		if err := errors.Join(w.e.check(), e.check()); err != nil {
			t.Error(err)
		}
	}
}

// The replay checker is no good if it passes a journal that lost or changed a
// record: drop each record of a run in turn and see that most are missed.
func TestReplayCheckerNotices(t *testing.T) {
	w := newWorld(t, Config{Durable: true})
	s := w.session("s")
	for i := range 3 {
		w.acquire(s, lease.Request{ID: fmt.Sprint(i), Keys: []string{fmt.Sprint(i)}})
	}
	w.do(s, lease.Command{Verb: lease.Release, ID: "1"})
	w.do(s, lease.Command{Verb: lease.Renew, ID: "2", TTL: time.Hour})
	w.do(s, lease.Command{Verb: lease.Detach, ID: "0"})
	want := state(w.e)
	for drop := range w.log {
		kind := recordKind(w.log[drop][0])
		e := New(Config{Durable: true})
		rs := e.Restore()
		var err error
		for i, rec := range w.log {
			if i != drop && err == nil {
				err = rs.Apply(rec)
			}
		}
		rs.Start(true, 0)
		same := err == nil && reflect.DeepEqual(state(e), want)
		if ended := kind == recGrant && bytes.Contains(w.log[drop], []byte("\x011")); !same != (kind != recMark && !ended) {
			t.Errorf("without record %d of kind %d: noticed %v, err %v", drop, kind, !same, err)
		}
	}
}

// Records that a program did not write are refused, and never panic.
func FuzzDecodeRecord(f *testing.F) {
	w := newWorld(f, Config{Durable: true})
	s := w.session("s")
	w.acquire(s, lease.Request{ID: "i", Keys: []string{"a", "b"}, Label: "l", LockDelay: time.Second, TTL: time.Second})
	w.do(s, lease.Command{Verb: lease.Renew, ID: "i", TTL: time.Minute})
	w.do(s, lease.Command{Verb: lease.Detach, ID: "i"})
	w.pass(2 * time.Minute)
	w.e.CloseSession(s, s.epoch)
	w.carry()
	for _, rec := range w.log {
		f.Add(rec)
	}
	f.Add([]byte{byte(recDelay), 1, 'k', 2})
	f.Add([]byte{byte(recQuiet), 2})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRecord(b)
		if err != nil {
			return
		}
		again, err := DecodeRecord(r.Append(nil))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v came back as %+v, %v", r, again, err)
		}
		New(Config{}).Restore().Apply(b)
	})
}
