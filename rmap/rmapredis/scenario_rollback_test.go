package rmapredis_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// rolledBack writes up to number 8, sets the map back to 5, and writes three other values that bring it to 8 again: P8.
// It returns the revision 8 that is lost. between runs when the copies have it.
func (w *world) rolledBack(r *replica, between func(), announced bool) rmap.Revision {
	w.t.Helper()
	for i := range 5 {
		r.set("k"+strconv.Itoa(i), "first")
	}
	dump := w.Text("DUMP", w.hash())
	var lost rmap.Revision
	for range 3 {
		lost = r.set("lost", "second")
	}
	between()
	w.Do("RESTORE", w.hash(), "0", dump, "REPLACE")
	for i := range 3 {
		if !announced {
			w.unannounced(r, "other"+strconv.Itoa(i), "third")
			continue
		}
		w.Do(r.store.Command(w.name, "", put("other"+strconv.Itoa(i), "third"))...)
	}
	if _, at := w.stored(); at.Number != 8 || at.Generation != lost.Generation || at == lost {
		w.t.Fatalf("the map is at %v, and %v is lost: the provocation has failed", at, lost)
	}
	return lost
}

var afterRollback = map[string]string{"k0": "first", "k1": "first", "k2": "first", "k3": "first", "k4": "first",
	"other0": "third", "other1": "third", "other2": "third"}

// H1, P8: the store goes back to an older state, and other writes bring it to the same number again.
func TestH01RollbackToTheSameNumber(t *testing.T) {
	check := func(t *testing.T, r *replica, lost rmap.Revision) {
		t.Helper()
		r.shows(afterRollback)
		r.hearsResets(1)
		if r.reloads() != "rollback 1" {
			t.Errorf("reloads %q", r.reloads())
		}
		if err := r.WaitFor(t.Context(), lost); !errors.Is(err, rmap.ErrGone) {
			t.Errorf("WaitFor what is lost: %v, want ErrGone", err)
		}
	}
	t.Run("Sync", func(t *testing.T) {
		w := newWorld(t)
		r := w.join(deaf())
		lost := w.rolledBack(r, func() {}, false)
		r.sync()
		check(t, r, lost)
	})
	t.Run("heartbeat", func(t *testing.T) {
		w := newWorld(t)
		writer, r := w.join(deaf()), w.join(eager())
		w.rolledBack(writer, func() { w.settled(r) }, false)
		w.settled(r) // it may have looked in the middle, and read the map more than once
		r.shows(afterRollback)
	})
	t.Run("the next change", func(t *testing.T) {
		w := newWorld(t)
		writer, r := w.join(deaf()), w.join(deaf())
		w.rolledBack(writer, func() { w.settled(r) }, false)
		w.Do(writer.store.Command(w.name, "", put("k0", "first"))...)
		w.settled(r, writer)
		r.shows(afterRollback)
		// The store is past the number of the copy, so it looks like a gap.
		until(t, "it is told", func() bool { return strings.HasSuffix(r.news(), "set lost, reload") })
		if r.reloads() != "gap 1" {
			t.Errorf("reloads %q", r.reloads())
		}
	})
	t.Run("announced", func(t *testing.T) {
		w := newWorld(t)
		writer, r := w.join(deaf()), w.join(deaf())
		w.rolledBack(writer, func() { w.settled(r) }, true)
		w.settled(r, writer)
		r.shows(afterRollback)
	})
	t.Run("while cut off", func(t *testing.T) {
		w := newWorld(t)
		relay := redistest.NewRelay(t, w.Addr())
		writer, r := w.join(deaf()), w.joinOver(relay.Addr(), rmapredis.Options{}, deaf())
		lost := w.rolledBack(writer, func() { w.settled(r); relay.Cut(); r.is(rmap.CutOff) }, true)
		relay.Restore()
		w.settled(r)
		check(t, r, lost)
	})
}

// H1, P8: the store goes back to a number below that of the copy, and stays there.
func TestH01RollbackToALowerNumber(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	first := r.set("k", "first")
	dump := w.Text("DUMP", w.hash())
	lost := r.set("k", "second")
	w.Do("RESTORE", w.hash(), "0", dump, "REPLACE")
	r.sync()
	r.shows(map[string]string{"k": "first"})
	r.hears("set k, set k, reset")
	if err := r.WaitFor(t.Context(), first); err != nil {
		t.Error(err)
	}
	if err := r.WaitFor(t.Context(), lost); !errors.Is(err, rmap.ErrGone) {
		t.Errorf("WaitFor what is lost: %v, want ErrGone", err)
	}
	if _, err := r.SetAtRevision(t.Context(), "k", lost, "third"); !errors.Is(err, rmap.ErrConflict) {
		t.Errorf("a write on the condition of what is lost: %v", err)
	}
}

// H1: the log has changes that the store went back from. A process that was away before them is not led there.
func TestH01LogOfTheLostBranch(t *testing.T) {
	w := newWorld(t)
	relay := redistest.NewRelay(t, w.Addr())
	writer, r := w.join(deaf()), w.joinOver(relay.Addr(), rmapredis.Options{}, deaf())
	writer.set("k", "first")
	w.settled(r)
	relay.Cut()
	r.is(rmap.CutOff)
	writer.set("k", "second")
	dump := w.Text("DUMP", w.hash())
	writer.set("lost", "third")
	writer.set("lost", "fourth")
	w.Do("RESTORE", w.hash(), "0", dump, "REPLACE")
	relay.Restore()
	w.settled(r)
	r.shows(map[string]string{"k": "second"})
	writer.sync()
	writer.set("k", "other")
	w.settled(r, writer)
	r.shows(map[string]string{"k": "other"})
}
