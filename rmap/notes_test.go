package rmap_test

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
)

// A curious handler is told of records, and does something of its own with each.
type curious struct {
	slog.Handler
	handle func(slog.Record)
}

func (h curious) Handle(_ context.Context, r slog.Record) error { h.handle(r); return nil }

func (h curious) WithAttrs([]slog.Attr) slog.Handler { return h }

// numbers joins a map of numbers, and another process writes texts into it: what cannot be decoded is logged.
func numbers(t *testing.T, handle func(slog.Record)) (*rmap.Map[string, int], *rmap.Map[string, string]) {
	store := rmaplocal.New(rmaplocal.Options{})
	t.Cleanup(store.Close)
	other, err := rmap.Join(t.Context(), store, "m", rmap.Options[string, string]{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(other.Close)
	if _, err := other.Set(t.Context(), "first", "text"); err != nil {
		t.Fatal(err) // from here on the map exists, so that what follows are changes that a copy applies by itself
	}
	log := slog.New(curious{slog.NewTextHandler(t.Output(), nil), handle})
	m, err := rmap.Join(t.Context(), store, "m", rmap.Options[string, int]{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m, other
}

// A logger may ask the map that it is told about, and gets everything in order, the end included.
func TestLoggerAsksTheMap(t *testing.T) {
	var asked atomic.Pointer[rmap.Map[string, int]]
	var told []string // by the one goroutine that logs, which Close waits for
	m, other := numbers(t, func(r slog.Record) {
		told = append(told, r.Message)
		if m := asked.Load(); m != nil {
			m.Lag()
			m.Stats()
		}
	})
	asked.Store(m)
	trial.Soon(t, "a map whose logger asks it", func() {
		if _, err := other.Set(t.Context(), "k", "text"); err != nil {
			t.Error(err)
		}
		m.Close()
	})
	if n := len(told); n < 3 || told[n-2] != "an entry cannot be decoded" || told[n-1] != "state of the copy" {
		t.Errorf("the logger was told %q", told)
	}
}

// A logger that hangs keeps neither writers nor readers waiting, and what it misses is bounded.
func TestLoggerHangs(t *testing.T) {
	release := make(chan struct{})
	var hangs atomic.Bool // from when it is joined on: the goroutine that logs is the one that Join waits for
	var left int64
	m, other := numbers(t, func(r slog.Record) {
		if hangs.Load() {
			<-release
		}
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "left out" {
				left += a.Value.Int64()
			}
			return true
		})
	})
	hangs.Store(true)
	trial.Soon(t, "a map whose logger hangs", func() {
		for range 1000 {
			if _, err := other.Set(t.Context(), "k", "text"); err != nil {
				t.Error(err)
			}
		}
		if s := m.Stats(); s.Undecoded != 1001 || s.Broken != 2 {
			t.Errorf("the copy did not follow: %+v", s)
		}
		m.Lag()
	})
	close(release)
	m.Close()
	if left < 500 || left > 800 {
		t.Errorf("%d of about 1000 records were left out, want all but about 256", left)
	}
}
