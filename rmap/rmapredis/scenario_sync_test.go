package rmapredis_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/trial"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// S9: when one process has finished a write and another one calls Sync after that, all ways of reading there have it.
func TestS09SyncShowsFinishedWrites(t *testing.T) {
	w := newWorld(t)
	a, b := w.join(deaf()), w.join(deaf())
	want := make(map[string]string)
	for i := range 200 {
		key, value := "k"+strconv.Itoa(i%20), strconv.Itoa(i)
		if _, err := a.Set(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		want[key] = value
		b.sync()
		b.shows(want)
		if got := maps.Collect(b.Snapshot().All()); !maps.Equal(got, want) {
			t.Fatalf("the snapshot is %q, want %q", got, want)
		}
		if got, err := b.Lookup(key); got != value || err != nil {
			t.Fatalf("Lookup: %q, %v", got, err)
		}
	}
}

// S10: there never was such a map.
func TestS10SyncOfNothing(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.sync()
	r.shows(nil)
	if lag := r.Lag(); lag.State != rmap.Live || !lag.Revision.IsZero() {
		t.Errorf("lag %+v", lag)
	}
	if w.Int("EXISTS", w.hash(), w.log()) != 0 {
		t.Error("reading wrote something")
	}
}

// S11: Sync fails, and the copy stays as it is.
func TestS11SyncFails(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "v")
	want := map[string]string{"k": "v"}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Sync(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
	r.shows(want)
	w.Kill()
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	trial.Soon(t, "Sync without a server", func() {
		if err := r.Sync(short); !errors.Is(err, rmap.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a server: %v", err)
		}
	})
	r.shows(want)
	if lag := r.Lag(); lag.State != rmap.CutOff || lag.Err == nil {
		t.Errorf("lag %+v", lag)
	}
	r.Close()
	if err := r.Sync(t.Context()); !errors.Is(err, rmap.ErrClosed) {
		t.Errorf("of a closed map: %v", err)
	}
	r.shows(want)
}

// S12: Sync is called while the connection is gone, and ends well when it is back.
func TestS12SyncOverACut(t *testing.T) {
	w := newWorld(t)
	relay := redistest.NewRelay(t, w.Addr())
	writer, r := w.join(deaf()), w.joinOver(relay.Addr(), rmapredis.Options{}, deaf())
	relay.Cut()
	r.is(rmap.CutOff)
	writer.set("k", "v")
	done := make(chan error, 1)
	go func() { done <- r.Sync(t.Context()) }()
	relay.Restore()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.shows(map[string]string{"k": "v"})
}

// H4: Sync of a current copy reads nothing whatever the size, and many share one question. While a map is read as a
// whole, its old copy is read as quickly as ever.
func TestH04SyncAndReadsAtAnySize(t *testing.T) {
	const size = 20_000
	w := newWorld(t)
	writer := w.join(deaf())
	for from := 0; from < size; from += rmap.MaxOps {
		b := writer.Batch()
		for i := from; i < min(from+rmap.MaxOps, size); i++ {
			b.Set("key"+strconv.Itoa(i), "old")
		}
		if _, err := b.Write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	relay := redistest.NewRelay(t, w.Addr())
	r := w.joinOver(relay.Addr(), rmapredis.Options{}, deaf())
	_, before := relay.Bytes()
	var callers sync.WaitGroup
	for range 100 {
		callers.Go(r.sync)
	}
	callers.Wait()
	if _, now := relay.Bytes(); now-before > 100_000 || r.reloads() != "" {
		t.Errorf("%d bytes for Sync of a current copy, reloads %q", now-before, r.reloads())
	}

	relay.Delay(5 * time.Millisecond) // each chunk takes that, so the reading takes some time
	w.unannounced(writer, "key0", "new")
	w.Do("DEL", w.log())
	done := make(chan error, 1)
	go func() { done <- r.Sync(t.Context()) }()
	r.is(rmap.CatchingUp)
	reads := 0
	for r.Lag().State == rmap.CatchingUp {
		if v, ok := r.Get("key" + strconv.Itoa(1+reads%(size-1))); v != "old" || !ok || r.Len() != size {
			t.Fatalf("during the reading: %q, %t, %d entries", v, ok, r.Len())
		}
		reads++
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if v, _ := r.Get("key0"); v != "new" || reads < 1000 || r.reloads() != "gap 1" {
		t.Errorf("after %d reads: %q, reloads %q", reads, v, r.reloads())
	}
}

// H7: an event names its key, with the value before and after; a subscriber that falls behind is told so once, and a
// reset cannot hide behind a change.
func TestH07EventsSayWhatChanged(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	slow := r.Watch(t.Context(), rmap.WatchOptions{Events: 2})
	r.set("k", "v")
	r.set("k", "w")
	r.reset()
	last := r.set("n", "v")
	r.hears("set k, set k, reset, set n")
	r.mu.Lock()
	e := r.told[1]
	r.mu.Unlock()
	if e.Old != "v" || e.New != "w" || !e.HasOld || !e.HasNew || e.Revision.Number != 2 {
		t.Errorf("the second event is %+v", e)
	}
	for e := range slow {
		if e.Cause != rmap.CauseAgain || e.Revision != last {
			t.Errorf("the slow subscriber is told %v, want to read again from %v", e, last)
		}
		break
	}
	if s := r.Stats(); s.Overflows != 1 || s.Dropped == 0 {
		t.Errorf("stats %+v", s)
	}
}

// H8: committed but not seen, failed, and unknown are told apart.
func TestH08OutcomesAreToldApart(t *testing.T) {
	w := newWorld(t)
	relay := redistest.NewRelay(t, w.Addr())
	r := w.joinOver(relay.Addr(), rmapredis.Options{}, deaf())
	r.set("k", "v")
	outcome := func(want rmap.Outcome, is error, do func(ctx context.Context) (rmap.Revision, error)) rmap.Revision {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		rev, err := do(ctx)
		if got := rmap.OutcomeOf(err); got != want || !errors.Is(err, is) {
			t.Errorf("%v: %v, want %v and %v", got, err, want, is)
		}
		return rev
	}
	outcome(rmap.NotApplied, rmap.ErrConflict, func(ctx context.Context) (rmap.Revision, error) {
		return r.SetIfAbsent(ctx, "k", "w")
	})
	// Nobody may subscribe any more, so the copy cannot see what the store does.
	w.Do("ACL", "SETUSER", "default", "-subscribe")
	w.KillPubSub()
	r.is(rmap.CutOff)
	rev := outcome(rmap.AppliedNotSeen, rmap.ErrNotSeen, func(ctx context.Context) (rmap.Revision, error) {
		return r.SetAndWait(ctx, "k", "w")
	})
	if stored, at := w.stored(); stored["k"] != "w" || at != rev {
		t.Errorf("stored is %q at %v, told was %v", stored, at, rev)
	}
	relay.DropReplies(true)
	outcome(rmap.Unknown, rmap.ErrUnknown, func(ctx context.Context) (rmap.Revision, error) { return r.Set(ctx, "k", "x") })
	until(t, "it was applied", func() bool { stored, _ := w.stored(); return stored["k"] == "x" })
	relay.DropReplies(false)
	relay.Cut()
	until(t, "the server cannot be reached", func() bool {
		_, err := r.Set(t.Context(), "k", "y")
		return errors.Is(err, rmap.ErrUnavailable) && rmap.OutcomeOf(err) == rmap.NotApplied
	})
	if stored, _ := w.stored(); stored["k"] != "x" {
		t.Errorf("stored is %q", stored)
	}
	relay.Restore()
	w.Do("ACL", "SETUSER", "default", "+subscribe")
	w.settled(r)
}

// P10: the process's own notice is lost around SetAndWait. The write is in the store, and that is what is said of it.
func TestP10LostOwnNotice(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "v")
	outcomes := make(map[rmap.Outcome]int)
	for i := range 20 {
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			_, _ = w.Try("CLIENT", "KILL", "TYPE", "pubsub")
		}()
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		value := strconv.Itoa(i)
		rev, err := r.SetAndWait(ctx, "k", value)
		cancel()
		<-killed
		o := rmap.OutcomeOf(err)
		outcomes[o]++
		switch {
		case err == nil:
			if got, _ := r.Get("k"); got != value {
				t.Fatalf("SetAndWait returned, and the copy has %q, want %q", got, value)
			}
		case o == rmap.AppliedNotSeen:
		case o == rmap.Unknown && errors.Is(err, context.DeadlineExceeded):
			continue // the machine was too busy for the write itself
		default:
			t.Fatalf("%v: %v", o, err)
		}
		if stored, at := w.stored(); stored["k"] != value || at != rev {
			t.Fatalf("stored is %q at %v, want %q at %v", stored, at, value, rev)
		}
	}
	t.Log(outcomes)
	w.settled(r)
}

// H10: everything has a limit, and everything is counted.
func TestH10LimitsAndCounts(t *testing.T) {
	w := newWorld(t)
	o := deaf()
	o.MaxEntries = 3
	r := w.join(o)
	if _, err := r.Set(t.Context(), "k", strings.Repeat("v", rmap.MaxValue+1)); !errors.Is(err, rmap.ErrTooLarge) {
		t.Errorf("a large value: %v", err)
	}
	if _, err := r.Set(t.Context(), strings.Repeat("k", rmap.MaxKey+1), "v"); !errors.Is(err, rmap.ErrTooLarge) {
		t.Errorf("a large key: %v", err)
	}
	for i := range 3 {
		r.set(fmt.Sprint(i), "v")
	}
	if _, err := r.Set(t.Context(), "3", "v"); !errors.Is(err, rmap.ErrTooLarge) || rmap.OutcomeOf(err) != rmap.NotApplied {
		t.Errorf("an entry too many: %v", err)
	}
	r.set("2", "w")
	w.settled(r)
	if s := r.Stats(); s.Entries != 3 || s.Writes != 4 || s.Failures != 3 || s.Changes != 4 || s.Heads == 0 {
		t.Errorf("stats %+v", s)
	}
	if lag := r.Lag(); lag.Age <= 0 || lag.Age > patience || lag.Since.IsZero() {
		t.Errorf("lag %+v", lag)
	}
}
