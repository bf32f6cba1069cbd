package rmapredis_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// live is a copy that serves reads only while it is known to be current, as long as nobody waits for the heartbeat.
func live() options {
	o := eager()
	o.MaxStale = rmap.LiveOnly
	return o
}

// refused fails the test unless every way to a map says why it is refused, and nothing there changes.
func (w *world) refused(r *replica, want error) {
	w.t.Helper()
	t, before := w.t, w.Do("HGETALL", w.hash())
	r.is(rmap.Refused)
	if lag := r.Lag(); !errors.Is(lag.Err, want) {
		t.Errorf("lag %+v, want %v", lag, want)
	}
	if err := r.Sync(t.Context()); !errors.Is(err, want) {
		t.Errorf("Sync: %v, want %v", err, want)
	}
	if _, err := r.Lookup("k"); !errors.Is(err, rmap.ErrStale) {
		t.Errorf("Lookup: %v, want ErrStale", err)
	}
	if _, err := r.Set(t.Context(), "k", "x"); !errors.Is(err, want) || rmap.OutcomeOf(err) != rmap.NotApplied {
		t.Errorf("Set: %v, want %v", err, want)
	}
	if _, err := r.Reset(t.Context()); !errors.Is(err, want) || rmap.OutcomeOf(err) != rmap.NotApplied {
		t.Errorf("Reset: %v, want %v", err, want)
	}
	if m, err := rmap.Join(t.Context(), r.store, w.name, options{}); !errors.Is(err, want) {
		if err == nil {
			m.Close()
		}
		t.Errorf("Join: %v, want %v", err, want)
	}
	if after := w.Do("HGETALL", w.hash()); len(after.([]any)) != len(before.([]any)) {
		t.Errorf("it was %q and is %q", before, after)
	}
}

// S16, S17: what is stored is not ours. It is refused, seen, and never mixed with ours, until somebody removes it.
func TestS16ForeignData(t *testing.T) {
	for _, foreign := range []struct {
		name     string
		commands func(w *world) [][]string
	}{
		{"a hash without a header", func(w *world) [][]string {
			return [][]string{{"DEL", w.hash()}, {"HSET", w.hash(), "=rev", "5", "=kind", "set", "k", "theirs"}}
		}},
		{"the header is gone", func(w *world) [][]string { return [][]string{{"HDEL", w.hash(), ""}} }},
		{"a header of something else", func(w *world) [][]string { return [][]string{{"HSET", w.hash(), "", "theirs"}} }},
		{"another type", func(w *world) [][]string {
			return [][]string{{"DEL", w.hash()}, {"SET", w.hash(), "theirs"}}
		}},
	} {
		t.Run(foreign.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.join(live())
			r.set("k", "v")
			w.Multi(foreign.commands(w)...)
			if foreign.name != "another type" {
				w.refused(r, rmap.ErrForeign)
			}
			r.is(rmap.Refused)
			if v, _ := r.Get("k"); v != "v" {
				t.Errorf("the copy has %q: it mixes the two", v)
			}
			w.Do("DEL", w.hash())
			r.sync()
			r.shows(nil)
			r.hearsResets(1)
			r.set("k", "w")
			w.settled(r)
			r.shows(map[string]string{"k": "w"})
		})
	}
}

// S16: foreign data that ends by its time.
func TestS16ForeignDataExpires(t *testing.T) {
	w := newWorld(t)
	r := w.join(live())
	r.set("k", "v")
	w.Multi([]string{"DEL", w.hash()}, []string{"HSET", w.hash(), "k", "theirs"})
	r.is(rmap.Refused)
	w.Do("PEXPIRE", w.hash(), "1")
	r.is(rmap.Live)
	r.shows(nil)
	r.hears("set k, reset")
}

// S19: somebody puts a field of another format among ours. It is not read as a value and not passed over in silence, it
// keeps nobody from the others, and it can be replaced.
func TestS19ForeignFieldAmongOurs(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "v")
	w.Do("HSET", w.hash(), "p:a=b", "raw")
	w.unannounced(r, "l", "v")
	w.Do("DEL", w.log())
	r.sync()
	r.shows(map[string]string{"k": "v", "l": "v"})
	if _, err := r.Lookup("p:a=b"); !errors.Is(err, rmap.ErrForeign) || !errors.Is(err, rmap.ErrDecode) {
		t.Errorf("Lookup: %v, want ErrForeign and ErrDecode", err)
	}
	for key, err := range r.Snapshot().Broken() {
		if key != "p:a=b" || !errors.Is(err, rmap.ErrForeign) {
			t.Errorf("broken: %q, %v", key, err)
		}
	}
	if _, err := r.CompareAndSet(t.Context(), "p:a=b", "raw", "w"); !errors.Is(err, rmap.ErrConflict) {
		t.Errorf("CompareAndSet: %v, want ErrConflict", err)
	}
	r.set("p:a=b", "ours")
	r.sync()
	r.shows(map[string]string{"k": "v", "l": "v", "p:a=b": "ours"})
	w.Do("HSET", w.hash(), "q", "raw")
	if _, err := r.Delete(t.Context(), "q"); err != nil {
		t.Errorf("Delete: %v", err)
	}
	if n := w.Int("HEXISTS", w.hash(), "q"); n != 0 {
		t.Error("the foreign field is still there after Delete")
	}
}

// S18: Reset and Destroy keep the generation, and the number goes on.
func TestS18ResetAndDestroy(t *testing.T) {
	w := newWorld(t)
	r, other := w.join(deaf()), w.join(deaf())
	at := r.set("k", "v")
	for _, clear := range []struct {
		name string
		do   func() (rmap.Revision, error)
	}{
		{"Reset", func() (rmap.Revision, error) { return r.Reset(t.Context()) }},
		{"Destroy", func() (rmap.Revision, error) { return r.Destroy(t.Context()) }},
	} {
		r.sync()
		other.sync()
		r.forget()
		other.forget()
		rev, err := clear.do()
		if err != nil || rev.Generation != at.Generation || rev.Number != at.Number+1 {
			t.Fatalf("%s: %v, %v, after %v", clear.name, rev, err, at)
		}
		for _, r := range []*replica{r, other} {
			if err := r.WaitFor(t.Context(), rev); err != nil {
				t.Fatal(err)
			}
			r.shows(nil)
			r.hears("reset")
		}
		if at = r.set("k", "w"); at.Generation != rev.Generation || at.Number != rev.Number+1 {
			t.Fatalf("after %s: %v, want the change after %v", clear.name, at, rev)
		}
	}
	w.settled(r, other)
	if s := other.Stats(); other.reloads() != "" || s.Strange > 1 {
		t.Errorf("reloads %q, stats %+v", other.reloads(), s)
	}
}

// S24: messages that cannot be read, of an older format or noise, are counted and do no harm.
func TestS24OlderMessages(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "v")
	ours := w.messages()[0]
	for i, m := range []string{"0" + ours[1:], "set:old", "", "1", "1 x", ours[:len(ours)-1], ours + "s", strings.Replace(ours, "s1:k", "s0:", 1)} {
		w.announce(m, r)
		if s := r.Stats(); s.Unreadable != uint64(i+1) {
			t.Errorf("%q: %d unreadable messages, want %d", m, s.Unreadable, i+1)
		}
		r.is(rmap.Live) // the message may have come while Sync asked, and then it is looked into once more
		r.shows(map[string]string{"k": "v"})
	}
	r.hears("set k")
}

// S24: a newer message by itself is seen at once; the store says that it was a stray.
func TestS24NewerMessage(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "v")
	w.announce("2"+w.messages()[0][1:], r)
	if s := r.Stats(); s.Unreadable != 1 {
		t.Errorf("stats %+v", s)
	}
	r.is(rmap.Live)
}

// S24: processes of two versions share a map: the newer one reads what the older one wrote, and once it has written
// the older one refuses, says so, and neither reads nor writes nor clears what it would misread. Backwards the way is
// to stop the newer ones and to remove the map.
func TestS24TwoVersions(t *testing.T) {
	w := newWorld(t)
	older := w.join(live())
	older.set("k", "v")

	// Forward: the newer process finds the older one's data, and until it writes all goes on.
	newer := w.joinOver(w.Addr(), rmapredis.Options{}.WithVersion(2), live())
	newer.shows(map[string]string{"k": "v"})
	older.set("k", "w")
	w.settled(older, newer)

	// Mixed: from its first write on, the older ones are out.
	rev := newer.set("k", "newer")
	w.refused(older, rmap.ErrFormat)
	if v, _ := older.Get("k"); v != "w" {
		t.Errorf("the older copy has %q", v)
	}
	if older.Stats().Unreadable == 0 {
		t.Error("it was not counted")
	}
	if err := older.WaitFor(t.Context(), rev); !errors.Is(err, rmap.ErrFormat) {
		t.Errorf("WaitFor: %v", err)
	}
	if err := newer.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := maps.Collect(newer.All()); !maps.Equal(got, map[string]string{"k": "newer"}) {
		t.Errorf("the newer copy is %q", got)
	}
	// What the newer one has cleared is still its own.
	if _, err := newer.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.refused(older, rmap.ErrFormat)

	// Back.
	newer.Close()
	w.Do("DEL", w.hash())
	older.is(rmap.Live)
	older.shows(nil)
	older.set("k", "back")
	w.settled(older)

	// And forward again.
	again := w.joinOver(w.Addr(), rmapredis.Options{}.WithVersion(2), live())
	again.shows(map[string]string{"k": "back"})
	again.set("k", "again")
	w.refused(older, rmap.ErrFormat)
}
