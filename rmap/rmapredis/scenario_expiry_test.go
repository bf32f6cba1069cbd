package rmapredis_test

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// endings are ways for a map to come to its end without a word (P1).
var endings = []struct {
	name string
	end  func(w *world)
}{
	{"DEL", func(w *world) { w.Do("DEL", w.hash()) }},
	{"FLUSHDB", func(w *world) { w.Do("FLUSHDB") }},
	{"PEXPIRE", func(w *world) { w.Do("PEXPIRE", w.hash(), "1"); w.gone() }},
}

// gone waits until the server has nothing under the map's key.
func (w *world) gone() {
	w.t.Helper()
	until(w.t, "the map is over", func() bool { return w.Int("EXISTS", w.hash()) == 0 })
}

// S1, P1: a life ends by its time, and one write begins the next.
func TestS01ExpiryThenOneWrite(t *testing.T) {
	t.Run("announced", func(t *testing.T) {
		w := newWorld(t)
		o := deaf()
		o.TTL = 150 * time.Millisecond
		replicas := w.joinMany(3, o)
		for i := range 5 {
			replicas[0].set("k", "old"+strconv.Itoa(i))
		}
		replicas[0].set("gone", "x")
		w.gone()
		for _, r := range replicas {
			until(t, "the copy is empty", func() bool { return r.Len() == 0 })
		}
		o.TTL = 0
		writer := w.join(o)
		writer.set("k", "NEW")
		w.settled(append(replicas, writer)...)
		for _, r := range replicas {
			r.sync()
			r.shows(map[string]string{"k": "NEW"})
			r.hearsResets(1)
		}
	})
	for _, how := range endings {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t)
			replicas := w.joinMany(3, deaf())
			for i := range 5 {
				replicas[0].set("k", "old"+strconv.Itoa(i))
			}
			replicas[0].set("gone", "x")
			var before []uint64 // the first change of a map that was not there is one, unless it was there when it came
			for _, r := range replicas {
				r.sync()
				r.forget()
				before = append(before, r.Stats().Strange)
			}
			how.end(w)
			// The write alone has to uncover it: these copies have no heartbeat.
			if _, err := replicas[1].Set(t.Context(), "k", "NEW"); err != nil {
				t.Fatal(err)
			}
			w.settled(replicas...)
			for i, r := range replicas {
				r.shows(map[string]string{"k": "NEW"})
				r.hearsResets(1) // what was before may be told after it was forgotten
				if r.reloads() != "generation 1" || r.Stats().Strange != before[i]+1 {
					t.Errorf("reloads: %q, strange changes: %d", r.reloads(), r.Stats().Strange)
				}
			}
		})
	}
}

// S2: the numbers of the next life pass those of the last. No reader sees a mixture of the two, at any moment.
func TestS02WritesPassTheOldNumbers(t *testing.T) {
	w := newWorld(t)
	replicas := w.joinMany(3, deaf())
	for i := range 5 {
		replicas[0].set("k"+strconv.Itoa(i), "old")
	}
	replicas[0].set("gone", "old")
	for _, r := range replicas {
		r.sync()
	}
	stop := make(chan struct{})
	mixtures := make([]string, len(replicas))
	var readers sync.WaitGroup
	for i, r := range replicas {
		readers.Go(func() {
			for {
				if s := maps.Collect(r.All()); s["gone"] == "old" == (s["new"] != "") {
					mixtures[i] = fmt.Sprint(s)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	w.Do("DEL", w.hash())
	for i := range 9 {
		b := replicas[i%3].Batch().Set("new", strconv.Itoa(i)).Set("k"+strconv.Itoa(i), "new")
		if _, err := b.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.settled(replicas...)
	close(stop)
	readers.Wait()
	for i, r := range replicas {
		if mixtures[i] != "" {
			t.Errorf("a reader saw %s", mixtures[i])
		}
		if r.Len() != 10 || r.Lag().Revision.Number != 9 {
			t.Errorf("the copy has %d entries at %v", r.Len(), r.Lag().Revision)
		}
		r.hearsResets(1)
	}
}

// S3: an ending, then Sync and no write.
func TestS03ExpiryThenSync(t *testing.T) {
	for _, how := range endings {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.join(deaf())
			r.set("k", "old")
			r.hears("set k")
			how.end(w)
			r.sync()
			r.shows(nil)
			r.hears("set k, reset")
			if lag := r.Lag(); lag.State != rmap.Live || !lag.Revision.IsZero() {
				t.Errorf("lag %+v", lag)
			}
		})
	}
}

// S4: SetAndWait after an ending, with a number below the one that the copy holds.
func TestS04SetAndWaitAfterExpiry(t *testing.T) {
	for _, how := range endings {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t)
			r, other := w.join(deaf()), w.join(deaf())
			for i := range 6 {
				r.set("k", strconv.Itoa(i))
			}
			how.end(w)
			if rev := r.set("k", "NEW"); rev.Number != 1 {
				t.Errorf("the first change of a life is %v", rev)
			}
			r.shows(map[string]string{"k": "NEW"})
			other.sync()
			other.shows(map[string]string{"k": "NEW"})
		})
	}
}

// H3: an ending without a following write or Sync is noticed: by its deadline when it has one, and by the heartbeat
// when it was not announced.
func TestH03ExpiryWithoutAWrite(t *testing.T) {
	t.Run("by the deadline", func(t *testing.T) {
		w := newWorld(t)
		o := deaf()
		o.TTL = 100 * time.Millisecond
		r, other := w.join(o), w.join(deaf())
		r.set("k", "v")
		for _, r := range []*replica{r, other} {
			r.hears("set k, reset")
			r.shows(nil)
		}
	})
	t.Run("of one key", func(t *testing.T) {
		w := newWorld(t)
		r, other := w.join(deaf()), w.join(deaf())
		r.set("stays", "v")
		if _, err := other.SetTTL(t.Context(), "k", "v", 60*time.Millisecond); err != nil {
			t.Fatal(err)
		}
		for _, r := range []*replica{r, other} {
			r.hears("set stays, set k, expire k")
			r.shows(map[string]string{"stays": "v"})
		}
		// Not only hidden: removed by a numbered change, once.
		until(t, "the store has it no more", func() bool { _, at := w.stored(); return at.Number == 3 })
		w.settled(r, other)
		if got := r.news(); got != "set stays, set k, expire k" {
			t.Errorf("told %q", got)
		}
	})
	for _, how := range endings {
		t.Run(how.name, func(t *testing.T) {
			w := newWorld(t)
			r := w.join(eager())
			r.set("k", "v")
			how.end(w)
			r.hears("set k, reset")
			r.shows(nil)
			if lag := r.Lag(); lag.State != rmap.Live {
				t.Errorf("lag %+v", lag)
			}
		})
	}
}

// H6: the time of a map is part of the step that writes, to the millisecond, and what is fixed at its beginning.
func TestH06TimeToLiveIsPartOfTheWrite(t *testing.T) {
	w := newWorld(t)
	o := deaf()
	o.TTL = 1500 * time.Millisecond
	left := func() int64 { return w.Int("PTTL", w.hash()) }
	absolute := w.join(o)
	absolute.set("k", "v")
	if got := left(); got > 1500 || got < 1 {
		t.Fatalf("%d ms left, want up to 1500", got)
	}
	ends := w.Int("PEXPIRETIME", w.hash())
	if _, err := absolute.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	absolute.set("k", "w")
	if _, err := absolute.CompareAndSet(t.Context(), "k", "else", "x"); err == nil {
		t.Fatal("the condition holds")
	}
	if got := w.Int("PEXPIRETIME", w.hash()); got != ends {
		t.Errorf("the end moved by %d ms", got-ends)
	}
	// Another process that says another time is refused, and changes nothing.
	o.TTL = time.Hour
	if m, err := rmap.Join(t.Context(), absolute.store, w.name, o); err == nil {
		m.Close()
		t.Error("a process with another ttl joined")
	}
	if got := w.Int("PEXPIRETIME", w.hash()); got != ends {
		t.Errorf("the end moved by %d ms", got-ends)
	}

	w.name = "sliding"
	o.TTL, o.Sliding = 5*time.Second, true
	sliding := w.join(o)
	sliding.set("k", "v")
	ends = w.Int("PEXPIRETIME", w.hash())
	until(t, "time has passed", func() bool { return left() < 4990 })
	if _, err := sliding.CompareAndSet(t.Context(), "k", "else", "x"); err == nil {
		t.Fatal("the condition holds")
	}
	if got := w.Int("PEXPIRETIME", w.hash()); got != ends {
		t.Error("a write that was not done gave the map more time")
	}
	sliding.set("k", "w")
	if got := w.Int("PEXPIRETIME", w.hash()); got <= ends {
		t.Error("a change gave the map no more time")
	}
	w.settled(sliding)
}

// S17: where there was foreign data, the first write of ours begins a life of its own, and all copies come to it.
func TestS17FirstWriteAfterForeignData(t *testing.T) {
	w := newWorld(t)
	replicas := w.joinMany(3, eager())
	w.Do("HSET", w.hash(), "=rev", "5", "=kind", "set", "k", "theirs")
	for _, r := range replicas {
		r.is(rmap.Refused)
		r.shows(nil)
	}
	if _, err := replicas[0].Set(t.Context(), "k", "v"); !errors.Is(err, rmap.ErrForeign) {
		t.Fatalf("a write among foreign data: %v", err)
	}
	w.Do("DEL", w.hash())
	until(t, "a write is done", func() bool { _, err := replicas[0].Set(t.Context(), "k", "v"); return err == nil })
	w.settled(replicas...)
	for _, r := range replicas {
		r.shows(map[string]string{"k": "v"})
		if lag := r.Lag(); lag.Revision.Number != 1 || lag.Revision.Generation == 0 {
			t.Errorf("lag %+v", lag)
		}
	}
}
