package rmap_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

func TestEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := rmaplocal.New(rmaplocal.Options{})
		text, ints := join(t, store, rmap.Options[string, string]{}), join(t, store, rmap.Options[string, int]{})
		stays, err := text.Set(t.Context(), "stays", "v")
		if err != nil {
			t.Fatal(err)
		}
		ends, err := ints.SetTTL(t.Context(), "ends", 7, 90*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		deadline := time.Now().Add(90 * time.Second)
		for _, sync := range []func() error{
			func() error { return text.Sync(t.Context()) }, func() error { return ints.Sync(t.Context()) },
		} {
			if err := sync(); err != nil {
				t.Fatal(err)
			}
		}
		s := ints.Snapshot()
		if h, ok := s.Entry("ends"); !ok || h.Value != 7 || h.Revision != ends || !h.Deadline.Equal(deadline) || h.Err != nil {
			t.Errorf("Entry of ends = %+v, %t; want 7, revision %v, deadline %v", h, ok, ends, deadline)
		}
		// What does not decode is an entry too: Get has it not.
		if h, ok := s.Entry("stays"); !ok || h.Value != 0 || h.Revision != stays || !h.Deadline.IsZero() || !errors.Is(h.Err, rmap.ErrDecode) {
			t.Errorf("Entry of a value that does not decode = %+v, %t; want revision %v and ErrDecode", h, ok, stays)
		}
		if h, ok := text.Snapshot().Entry("stays"); !ok || h.Value != "v" || h.Err != nil {
			t.Errorf("Entry of stays = %+v, %t; want v", h, ok)
		}
		for _, s := range []rmap.Snapshot[string, int]{s, {}} {
			if h, ok := s.Entry("absent"); ok || h != (rmap.Held[int]{}) {
				t.Errorf("Entry of what is not there = %+v, %t", h, ok)
			}
		}
		// The revision is the one that a write can be made to depend on.
		if _, err := ints.SetAtRevision(t.Context(), "ends", ends, 8); err != nil {
			t.Error(err)
		}
	})
}
