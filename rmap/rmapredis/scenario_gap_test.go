package rmapredis_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// An absence is what the others do while one process is away, and what its subscriber is told when it is back: with the
// log of the map, and when the log is gone.
type absence struct {
	name             string
	do               func(w *world, r *replica)
	logged, unlogged string
	reload           string // the cause, when the log is gone
}

// The first two are those of S5 and S21, the others those of S6.
var absences = []absence{
	{"several changes", func(w *world, r *replica) {
		r.set("a", "1")
		r.set("b", "1")
		r.del("a")
		r.set("c", "1")
	}, "set a, set b, delete a, set c", "reload", "gap 1"},
	{"a reset among others", func(w *world, r *replica) {
		r.set("a", "1")
		r.reset()
		r.set("c", "1")
	}, "set a, reset, set c", "reset", "gap 1"},
	{"a reset at last", func(w *world, r *replica) {
		r.set("a", "1")
		r.reset()
	}, "set a, reset", "reset", "gap 1"},
	{"another life", func(w *world, r *replica) {
		w.Do("DEL", w.hash())
		r.set("a", "1")
	}, "reset", "reset", "generation 1"},
	{"an end", func(w *world, r *replica) { w.Do("DEL", w.hash()) }, "reset", "reset", "generation 1"},
}

func (r *replica) del(key string) {
	r.t.Helper()
	if _, err := r.Delete(r.t.Context(), key); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) reset() {
	r.t.Helper()
	if _, err := r.Reset(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// S5, P4: one process is cut off while others write. When it is back its copy is right without a further change, and its
// subscriber was told what it missed, one by one.
func TestS05CutOff(t *testing.T) { cutOff(t, absences[:2], true) }

// S6, P4: the last of what it missed was a reset, or the end of the map, or another life began: a reset is told.
func TestS06CutOffOverAReset(t *testing.T) {
	cutOff(t, absences[2:], true)
	cutOff(t, absences[2:], false)
}

// S21, P4: the log cannot tell what was missed. One event stands for all of it.
func TestS21OneEventForAll(t *testing.T) { cutOff(t, absences[:2], false) }

func cutOff(t *testing.T, absences []absence, logs ...bool) {
	for _, logged := range logs {
		for _, a := range absences {
			t.Run(fmt.Sprintf("%s, log %t", a.name, logged), func(t *testing.T) {
				w := newWorld(t)
				relay := redistest.NewRelay(t, w.Addr())
				writer := w.join(deaf())
				writer.set("k", "v")
				victim := w.joinOver(relay.Addr(), rmapredis.Options{}, deaf())
				relay.Cut()
				victim.is(rmap.CutOff)
				a.do(w, writer)
				if _, ok := victim.Get("k"); !ok {
					t.Error("the copy is not readable while cut off")
				}
				if !logged {
					w.Do("DEL", w.log())
				}
				relay.Restore()
				w.settled(victim)
				want, reload := a.logged, ""
				if !logged {
					want, reload = a.unlogged, a.reload
				} else if a.logged == "reset" {
					reload = a.reload
				}
				victim.hears(want)
				if got := victim.reloads(); got != reload {
					t.Errorf("reloads: %q, want %q", got, reload)
				}
				if got := victim.Stats().Losses; got != 1 {
					t.Errorf("%d losses", got)
				}
			})
		}
	}
}

// S7: a change is committed and announced to nobody; the next one shows it.
func TestS07GapShowsWithTheNextChange(t *testing.T) {
	for _, logged := range []bool{true, false} {
		t.Run(fmt.Sprintf("log %t", logged), func(t *testing.T) {
			w := newWorld(t)
			replicas := w.joinMany(2, deaf())
			replicas[0].set("k", "v")
			for _, r := range replicas {
				r.sync()
				r.forget()
			}
			w.unannounced(replicas[0], "a", "1")
			if !logged {
				w.Do("DEL", w.log())
			}
			if _, err := replicas[0].Set(t.Context(), "b", "1"); err != nil {
				t.Fatal(err)
			}
			w.settled(replicas...)
			want, reloads := "set a, set b", ""
			if !logged {
				want, reloads = "reload", "gap 1"
			}
			for _, r := range replicas {
				r.hears(want)
				if r.reloads() != reloads {
					t.Errorf("reloads: %q, want %q", r.reloads(), reloads)
				}
			}
		})
	}
}

// S8: a change that is announced to nobody is visible after Sync.
func TestS08SyncFindsWhatWasNotAnnounced(t *testing.T) {
	w := newWorld(t)
	a, b := w.join(deaf()), w.join(deaf())
	a.set("k", "v")
	w.unannounced(a, "k", "w")
	b.sync()
	b.shows(map[string]string{"k": "w"})
}

// H2: the last change is lost, and then there is silence. The heartbeat finds it.
func TestH02LostLastChange(t *testing.T) {
	w := newWorld(t)
	replicas := w.joinMany(2, eager())
	replicas[0].set("k", "v")
	w.settled(replicas...)
	w.unannounced(replicas[0], "k", "w")
	w.settled(replicas...)
	for _, r := range replicas {
		r.shows(map[string]string{"k": "w"})
	}
}

// P2: nobody can be subscribed when the write is announced, and nothing is written after it. The resubscription finds it.
func TestP02SureGap(t *testing.T) {
	for _, logged := range []bool{true, false} {
		t.Run(fmt.Sprintf("log %t", logged), func(t *testing.T) {
			w := newWorld(t)
			replicas := w.joinMany(3, deaf())
			replicas[0].set("k", "v")
			w.settled(replicas...)
			commands := [][]string{replicas[0].store.Command(w.name, "", put("k", "w"))}
			if !logged {
				commands = append(commands, []string{"DEL", w.log()})
			}
			w.KillPubSubAnd(commands...)
			w.settled(replicas...)
			for _, r := range replicas {
				r.shows(map[string]string{"k": "w"})
				if got := r.reloads(); got != map[bool]string{true: "", false: "gap 1"}[logged] {
					t.Errorf("reloads: %q", got)
				}
			}
		})
	}
}

// P3: all subscribers are killed in the middle of many writes.
func TestP03KillAmongManySets(t *testing.T) {
	w := newWorld(t)
	replicas := w.joinMany(3, deaf())
	replicas[0].set("k", "v")
	for round := range 3 {
		var writers sync.WaitGroup
		w.KillPubSub()
		for i := range 300 {
			writers.Go(func() {
				key, value := "k"+strconv.Itoa(i), strconv.Itoa(round)
				if _, err := replicas[i%3].Set(t.Context(), key, value); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		w.settled(replicas...)
	}
	if n := replicas[0].Len(); n != 301 {
		t.Errorf("%d entries", n)
	}
}

// S13, P9: a change of the life that is over arrives after Sync found the map gone. What it says stays gone.
func TestS13StaleChangeAfterTheEnd(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "old")
	stale := w.messages()[0]
	w.Do("DEL", w.hash())
	r.sync()
	w.announce(stale, r)
	r.shows(nil)
	r.hears("set k, reset")
	// The same in the next life, whose numbers are the same.
	r.set("n", "new")
	w.announce(stale, r)
	r.shows(map[string]string{"n": "new"})
	r.hears("set k, reset, set n")
}

// S14, P9: what is held already is ignored, and makes neither an event nor a reading of the map.
func TestS14Duplicates(t *testing.T) {
	w := newWorld(t)
	r, other := w.join(deaf()), w.join(deaf())
	for i := range 5 {
		r.set("k"+strconv.Itoa(i), "v")
	}
	other.sync()
	before := other.Stats()
	for _, m := range w.messages() {
		w.announce(m, r, other)
	}
	other.hears("set k0, set k1, set k2, set k3, set k4")
	s := other.Stats()
	if s.Duplicates != 5 || s.Strange != before.Strange || s.Changes != before.Changes || other.reloads() != "" {
		t.Errorf("stats %+v, reloads %q", s, other.reloads())
	}
}

// S14: stale and repeated changes arrive now and then, in the middle of readings of the map too.
func TestS14DuplicatesDuringReloads(t *testing.T) {
	w := newWorld(t)
	r, other := w.join(deaf()), w.join(deaf())
	for i := range 10 {
		r.set("k", strconv.Itoa(i))
	}
	stale := w.messages()
	ctx, stop := context.WithCancel(t.Context())
	var hammer sync.WaitGroup
	hammer.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			if _, err := w.Try("PUBLISH", w.news(), stale[i%len(stale)]); err != nil {
				t.Error(err)
				return
			}
			<-time.After(20 * time.Millisecond) // a reading in which something stray comes begins anew
		}
	})
	for i := range 50 {
		w.unannounced(r, "lost", strconv.Itoa(i))
		w.Do("DEL", w.log())
		if _, err := r.Set(t.Context(), "k", "new"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
		w.Do("PUBLISH", w.news(), stale[i%len(stale)]) // while what was missed is being read
	}
	stop()
	hammer.Wait()
	w.settled(r, other)
	r.shows(map[string]string{"lost": "49", "k": "new49"})
	if got := other.Stats().Reloaded(rmap.ReloadGap); got == 0 {
		t.Error("there was no reading of the map")
	}
}

// S15, P9: a change of a life that is not held is never adopted, not even by an empty copy.
func TestS15ForeignGeneration(t *testing.T) {
	forged := func(n int) string {
		const gen, nonce = "00000000000000aa", "00000000000000bb"
		prev := "0000000000000000"
		if n > 1 {
			prev = "00000000000000cc"
		}
		entry := fmt.Sprintf("%d.%s::pforged", n, nonce)
		return fmt.Sprintf("1 %s %d %s %s 1700000000000 0\ns1:f%d:%s", gen, n, nonce, prev, len(entry), entry)
	}
	w := newWorld(t)
	r := w.join(deaf())
	for i, n := range []int{1, 7} {
		w.announce(forged(n), r)
		r.shows(nil)
		r.hears("")
		if s := r.Stats(); s.Strange != uint64(i+1) || s.Unreadable != 0 || r.reloads() != "" {
			t.Fatalf("stats %+v", s)
		}
	}
	r.set("k", "v")
	for _, n := range []int{1, 2, 7} {
		w.announce(forged(n), r)
		r.shows(map[string]string{"k": "v"})
		r.hears("set k")
	}
}

// P9: somebody commits by hand what no message tells, with numbers that go on.
func TestP09CommittedByHand(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "v")
	rev := w.byHand("k", "by hand")
	r.shows(map[string]string{"k": "v"})
	r.sync()
	r.shows(map[string]string{"k": "by hand"})
	if err := r.WaitFor(t.Context(), rev); err != nil {
		t.Error(err)
	}
	r.set("n", "v")
	w.settled(r)
}

// byHand is a writer that keeps to the layout and tells nobody.
func (w *world) byHand(key, value string) rmap.Revision {
	w.t.Helper()
	_, at := w.stored()
	at.Number, at.Nonce = at.Number+1, at.Nonce^0xabcdef
	w.Multi(
		[]string{"HSET", w.hash(), key, fmt.Sprintf("%d.%016x::p%s", at.Number, at.Nonce, value)},
		[]string{"HSET", w.hash(), "", fmt.Sprintf("1 %016x %d %016x 0 0 0 0 0", at.Generation, at.Number, at.Nonce)},
	)
	return at
}

// H5: connections are lost by all processes at once. Where nothing was missed nothing is read, and what was missed is
// got from the log.
func TestH05NoReloadAfterAnEmptyLoss(t *testing.T) {
	w := newWorld(t)
	replicas := w.joinMany(8, deaf())
	replicas[0].set("k", "v")
	w.settled(replicas...)
	for i := range 5 {
		if n := w.KillPubSub(); n != 8 {
			t.Fatalf("%d connections are subscribed", n)
		}
		for _, r := range replicas {
			until(t, "it was noticed", func() bool { return r.Stats().Losses == uint64(i+1) })
			r.is(rmap.Live)
		}
	}
	for _, r := range replicas {
		if s := r.Stats(); r.reloads() != "" || s.Changes != 1 || r.news() != "set k" {
			t.Errorf("reloads %q, told %q, stats %+v", r.reloads(), r.news(), s)
		}
	}
	w.KillPubSubAnd(replicas[0].store.Command(w.name, "", put("k", "w")), replicas[0].store.Command(w.name, "", put("l", "w")))
	w.settled(replicas...)
	for _, r := range replicas {
		if s := r.Stats(); r.reloads() != "" || s.Replayed < 2 {
			t.Errorf("reloads %q, stats %+v", r.reloads(), s)
		}
	}
}

// P7: the server comes back without data.
func TestP07RestartWithoutData(t *testing.T) {
	w := newWorld(t)
	replicas := w.joinMany(3, deaf())
	for i := range 5 {
		replicas[0].set("k", strconv.Itoa(i))
	}
	replicas[0].set("gone", "x")
	w.settled(replicas...)
	w.Restart()
	for i := range 2 {
		until(t, "a write is done", func() bool {
			_, err := replicas[1].Set(t.Context(), "k", "new"+strconv.Itoa(i))
			if errors.Is(err, rmap.ErrConflict) || err == nil {
				return err == nil
			}
			if o := rmap.OutcomeOf(err); o != rmap.NotApplied && o != rmap.Unknown {
				t.Fatalf("%v: %v", o, err)
			}
			return false
		})
	}
	w.settled(replicas...)
	for _, r := range replicas {
		r.shows(map[string]string{"k": "new1"})
		r.hearsResets(1)
	}
}
