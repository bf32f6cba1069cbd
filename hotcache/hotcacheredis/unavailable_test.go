package hotcacheredis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// TestUnavailable: whatever a server does that does not answer, whoever asks it by a cache can tell by the error.
func TestUnavailable(t *testing.T) {
	load := func(context.Context, string, hotcache.Version) (string, hotcache.Version, error) {
		return "nails", 1, nil
	}
	for name, away := range map[string]func(s *redistest.Server) (back func()){
		"dead":   func(s *redistest.Server) func() { s.Kill(); return func() {} },
		"frozen": func(s *redistest.Server) func() { s.Freeze(); return s.Thaw },
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.Start(t, redistest.Options{})
			n := open(t, server.URL(), Options{Heartbeat: 100 * time.Millisecond, Pong: 100 * time.Millisecond})
			cache, err := hotcache.New(load, hotcache.Options[string, string]{Nodes: []hotcache.NamedNode{{Name: "a", Node: n}},
				NodeTimeout: 200 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			defer cache.Close()
			soon(t, "its feed stands", func() bool { return cache.Sync(t.Context()) == nil })
			defer away(server)()
			for range 3 { // before it is noticed that the subscription is down, and after that
				_, _, peek := cache.Peek(t.Context(), "k")
				for what, err := range map[string]error{
					"Peek": peek, "Sync": cache.Sync(t.Context()), "Invalidate": cache.Invalidate(t.Context(), "k", 2),
				} {
					if !errors.Is(err, ErrUnavailable) {
						t.Errorf("%s: %v", what, err)
					}
				}
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
			defer cancel()
			for want, ctx := range map[error]context.Context{context.Canceled: ended, context.DeadlineExceeded: late} {
				if err := cache.Invalidate(ctx, "k", 2); !errors.Is(err, want) || errors.Is(err, ErrUnavailable) {
					t.Errorf("of a context that has ended: %v", err)
				}
			}
			waits, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			if _, err := n.Ask(waits, hotcache.Ask{Key: "k"}); name == "frozen" && (!errors.Is(err, context.Canceled) || errors.Is(err, ErrUnavailable)) {
				t.Errorf("of a context that ends meanwhile: %v", err)
			}
			n.Close()
			if _, _, err := cache.Peek(t.Context(), "k"); !errors.Is(err, hotcache.ErrClosed) || errors.Is(err, ErrUnavailable) {
				t.Errorf("of a node that was closed: %v", err)
			}
		})
	}
}

// TestReadsOfAFullServer: a server that is full and evicts nothing is not left alone: what is there is read from it.
func TestReadsOfAFullServer(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	put(t, n, "there", 1)
	server.Do("CONFIG", "SET", "maxmemory", "1")
	loads := 0
	cache, err := hotcache.New(func(context.Context, string, hotcache.Version) (string, hotcache.Version, error) {
		loads++
		return "nails", 1, nil
	}, hotcache.Options[string, string]{Nodes: []hotcache.NamedNode{{Name: "a", Node: n}}, Values: hotcache.Strings[string]()})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	soon(t, "its feed stands", func() bool { return cache.Sync(t.Context()) == nil }) // or wakes are not heard
	began := time.Now()
	for range 10 {
		if v, err := cache.Get(t.Context(), "k"); err != nil || v != "nails" {
			t.Errorf("%q, %v", v, err)
		}
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %v: who reads waits for the end of a lease", took)
	}
	soon(t, "all fills were refused", func() bool { return cache.Stats().NodeErrors["a"] >= 9 })
	if cache.Lag()[0].Out {
		t.Error("it is left alone")
	}
	if a, err := n.Ask(t.Context(), hotcache.Ask{Key: "there"}); err != nil || a.State != core.Hit {
		t.Errorf("%+v, %v", a, err)
	}
}
