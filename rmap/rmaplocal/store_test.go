package rmaplocal_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

// follower counts what it is told.
type follower struct {
	up, down int
	err      error
	changes  []rmap.Change
}

func (f *follower) Up()                   { f.up++ }
func (f *follower) Changed(c rmap.Change) { f.changes = append(f.changes, c) }
func (f *follower) Unreadable(error)      {}
func (f *follower) Down(err error)        { f.down, f.err = f.down+1, err }

func set(key, value string, ttl time.Duration) rmap.Write {
	return rmap.Write{Ops: []rmap.Op{{Do: rmap.DoSet, Key: key, Value: rmap.Value{Kind: rmap.Plain, Data: value}, TTL: ttl}}}
}

func write(t *testing.T, s *rmaplocal.Store, name string, w rmap.Write) rmap.Result {
	t.Helper()
	r, err := s.Write(t.Context(), name, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// After Close every call says so, followers have been told once, and a second Close is harmless.
func TestClose(t *testing.T) {
	s := rmaplocal.New(rmaplocal.Options{})
	f := &follower{}
	feed, err := s.Follow("m", f)
	if err != nil {
		t.Fatal(err)
	}
	write(t, s, "m", set("k", "v", 0))
	s.Close()
	s.Close()
	if f.up != 1 || f.down != 1 || len(f.changes) != 1 || !errors.Is(f.err, rmap.ErrClosed) || !errors.Is(f.err, rmap.ErrUnavailable) {
		t.Errorf("the follower was told %+v", f)
	}
	_, writeErr := s.Write(t.Context(), "m", set("k", "v", 0))
	_, sinceErr := s.Since(t.Context(), "m", rmap.Revision{})
	_, followErr := s.Follow("m", f)
	_, headErr := feed.Head(t.Context())
	scanErr := s.Scan(t.Context(), "m", func([]rmap.Entry) error { return nil })
	for what, err := range map[string]error{"write": writeErr, "since": sinceErr, "follow": followErr, "head": headErr, "scan": scanErr} {
		if !errors.Is(err, rmap.ErrClosed) {
			t.Errorf("%s after Close: %v, want closed", what, err)
		}
	}
	feed.Close()
}

// The number of maps is limited, and those that have come to their end make room.
func TestMaxMaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := rmaplocal.New(rmaplocal.Options{MaxMaps: 10})
		for i := range 10 {
			w := set("k", "v", 0)
			w.Lifetime = &rmap.Lifetime{TTL: time.Second}
			write(t, s, fmt.Sprint("m", i), w)
		}
		if _, err := s.Write(t.Context(), "one more", set("k", "v", 0)); !errors.Is(err, rmap.ErrTooLarge) {
			t.Fatalf("a map over the limit: %v", err)
		}
		if err := s.Scan(t.Context(), "one more", func([]rmap.Entry) error { return nil }); err != nil {
			t.Errorf("a look at a map that is not there: %v", err)
		}
		time.Sleep(2 * time.Second)
		for i := range 10 {
			write(t, s, fmt.Sprint("new", i), set("k", "v", 0))
		}
	})
}

// The number of followers is limited, and one that leaves makes room.
func TestMaxFollowers(t *testing.T) {
	s := rmaplocal.New(rmaplocal.Options{MaxFollowers: 2})
	var last rmap.Feed
	for range 2 {
		var err error
		if last, err = s.Follow("m", &follower{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Follow("m", &follower{}); !errors.Is(err, rmap.ErrTooLarge) {
		t.Fatalf("a follower over the limit: %v", err)
	}
	last.Close()
	if _, err := s.Follow("m", &follower{}); err != nil {
		t.Fatal(err)
	}
}

// The log is bounded in changes and in bytes, and what it gives has no gap.
func TestLogIsBounded(t *testing.T) {
	s := rmaplocal.New(rmaplocal.Options{})
	first := write(t, s, "m", set("k", "v", 0)).Revision
	var all []rmap.Revision
	for range 1024 {
		all = append(all, write(t, s, "m", set("k", "v", 0)).Revision)
	}
	since := func(r rmap.Revision, want int) {
		t.Helper()
		got, err := s.Since(t.Context(), "m", r)
		if err != nil || len(got) != want {
			t.Errorf("%d changes since %v, want %d (%v)", len(got), r, want, err)
		}
		for i, c := range got {
			if c.Revision.Number != r.Number+uint64(i)+1 {
				t.Fatalf("change %d since %v is %v", i, r, c.Revision)
			}
		}
	}
	since(first, 1024)
	write(t, s, "m", set("k", "v", 0))
	since(first, 0)
	since(all[0], 1024)
	big := string(make([]byte, rmap.MaxValue))
	for range 4 {
		all = append(all, write(t, s, "m", set("k", big, 0)).Revision)
	}
	since(all[len(all)-2], 1)
	since(all[0], 0)
	since(all[len(all)-6], 0)
	// One that is over the limit by itself is not kept, and what follows it is.
	var w rmap.Write
	for i := range 4 {
		w.Ops = append(w.Ops, set(fmt.Sprint(i), big[1:], 0).Ops...)
	}
	before := all[len(all)-1]
	whole := write(t, s, "m", w).Revision
	since(before, 0)
	last := write(t, s, "m", set("k", "v", 0)).Revision
	since(before, 0)
	since(whole, 1)
	since(last, 0)
}

// Maps that end make room while others write them again: no write is lost in a map that was taken out of the store.
func TestMapsComeAndGo(t *testing.T) {
	s := rmaplocal.New(rmaplocal.Options{MaxMaps: 100})
	var busy sync.WaitGroup
	for i := range 4 {
		busy.Go(func() {
			for j := range 500 {
				name := fmt.Sprint("m", (i*7+j)%60)
				if _, err := s.Write(t.Context(), name, rmap.Write{}); err != nil {
					t.Errorf("a look at %s: %v", name, err)
				}
				f := &follower{}
				feed, err := s.Follow(name, f)
				if err != nil {
					t.Errorf("follow %s: %v", name, err)
					return
				}
				r, err := s.Write(t.Context(), name, set("k", "v", 0))
				if err != nil {
					t.Errorf("write to %s: %v", name, err)
				}
				feed.Close()
				if n := len(f.changes); n == 0 {
					t.Errorf("the follower of %s was not told of %v", name, r.Revision)
				}
				// A short life ends the map, so that a sweep can take it out, unless another wrote it in between.
				if _, err := s.Write(t.Context(), name, rmap.Write{Ops: []rmap.Op{{Do: rmap.DoDestroy}}}); err != nil {
					t.Errorf("destroy %s: %v", name, err)
				}
				w := set("k", "v", 0)
				w.Lifetime = &rmap.Lifetime{TTL: time.Millisecond}
				if _, err := s.Write(t.Context(), name, w); err != nil && !errors.Is(err, rmap.ErrLifetime) {
					t.Errorf("write to %s: %v", name, err)
				}
			}
		})
	}
	busy.Wait()
}

// A change is no larger than a write may be, however little of it was in the write.
func TestLargeChange(t *testing.T) {
	s := rmaplocal.New(rmaplocal.Options{})
	half := string(make([]byte, rmap.MaxValue/2))
	write(t, s, "m", rmap.Write{Ops: []rmap.Op{{Do: rmap.DoAppend, Key: "l", Items: []string{half}}}})
	var w rmap.Write
	for range 10 {
		w.Ops = append(w.Ops, rmap.Op{Do: rmap.DoAppend, Key: "l", Items: []string{"x"}})
	}
	if _, err := s.Write(t.Context(), "m", w); !errors.Is(err, rmap.ErrTooLarge) {
		t.Fatalf("ten times half a megabyte in one change: %v", err)
	}
	w.Ops = w.Ops[:7]
	write(t, s, "m", w)
}

// What makes no sense is refused before the store is touched.
func TestRefused(t *testing.T) {
	s := rmaplocal.New(rmaplocal.Options{})
	if _, err := s.Follow("m", nil); !errors.Is(err, rmap.ErrInvalid) {
		t.Errorf("nobody as a follower: %v", err)
	}
	for _, do := range []rmap.Action{rmap.DoClear, rmap.DoDestroy} {
		if _, err := s.Write(t.Context(), "m", rmap.Write{Ops: []rmap.Op{{Do: do, Key: "k"}}}); !errors.Is(err, rmap.ErrInvalid) {
			t.Errorf("action %q on a key: %v", do, err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	s := rmaplocal.New(rmaplocal.Options{})
	w := set("k", "v", 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Write(b.Context(), "m", w); err != nil {
			b.Fatal(err)
		}
	}
}
