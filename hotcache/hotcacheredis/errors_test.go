package hotcacheredis

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

func TestBadOptions(t *testing.T) {
	for _, o := range []Options{{Prefix: "a{b"}, {Namespace: "}"}, {Timeout: -1}, {Heartbeat: -1}, {Pong: -1}, {Rules: hotcache.Rules{LeaseTTL: -1}},
		{Rules: hotcache.Rules{FloorTTL: -1}}, {Rules: hotcache.Rules{MaxFloors: -1}}} {
		if _, err := Open(t.Context(), "redis://127.0.0.1:1", o); !errors.Is(err, hotcache.ErrInvalid) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if _, err := Open(t.Context(), "redis://127.0.0.1:1", Options{Namespace: strings.Repeat("n", MaxNamespace+1)}); !errors.Is(err, hotcache.ErrTooLarge) {
		t.Errorf("a long namespace: %v", err)
	}
	if _, err := New(nil, Options{}); !errors.Is(err, hotcache.ErrInvalid) {
		t.Errorf("no client: %v", err)
	}
}

// Errors name what is wrong, and never the password.
func TestBadURLs(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:6379", "http://u:secret@h", "redis://u:secret@h:port", "unix://", "redis://u:secret@h?protocol=2",
		"redis://u:secret@h/notanumber", "redis://u:secret@h:1?db=x", "redis://u:sec%zzret@h",
		"redis://u:qqq/secret@h", "redis://u:qqq#secret@h"} {
		_, err := Open(t.Context(), u, Options{})
		if !errors.Is(err, hotcache.ErrInvalid) || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), "sec%zz") ||
			strings.Contains(err.Error(), "qqq") {
			t.Errorf("%q: %v", u, err)
		}
	}
	server := redistest.Start(t, redistest.Options{Password: "right"})
	_, err := Open(t.Context(), strings.Replace(server.URL(), "right", "wrong", 1), Options{})
	if !errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "wrong@") {
		t.Errorf("a wrong password: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ctx, server.URL(), Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	n := open(t, "unix://:right@"+server.Unix(), Options{})
	ask(t, n, "k", 1)
}

func TestBadArguments(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	_, f := follow(t, n, "me")
	ctx := t.Context()
	big := strings.Repeat("x", hotcache.MaxKey+1)
	item := func(i hotcache.Item) error {
		_, err := n.Fill(ctx, hotcache.Fill{Key: "k", Token: 1, Item: i})
		return err
	}
	for _, c := range []struct {
		what string
		err  error
		want error
	}{
		{"an empty key", second(n.Ask(ctx, hotcache.Ask{})), hotcache.ErrInvalid},
		{"a long key", second(n.Ask(ctx, hotcache.Ask{Key: big})), hotcache.ErrTooLarge},
		{"a long key of a copy", n.PutCopy(ctx, big, hotcache.Copy{}), hotcache.ErrTooLarge},
		{"a long value", item(hotcache.Item{Data: make([]byte, hotcache.MaxValue+1)}), hotcache.ErrTooLarge},
		{"data of no row", item(hotcache.Item{Absent: true, Data: []byte("x")}), hotcache.ErrInvalid},
		{"a member without a name", second(n.Follow("", &listener{})), hotcache.ErrInvalid},
		{"a member of two words", second(n.Follow("a b", &listener{})), hotcache.ErrInvalid},
		{"nobody to tell", second(n.Follow("a", nil)), hotcache.ErrInvalid},
		{"a long text", f.Tell(ctx, "me", strings.Repeat("x", MaxTell+1)), hotcache.ErrTooLarge},
		{"to tell a member of two words", f.Tell(ctx, "a b", ""), hotcache.ErrInvalid},
	} {
		if !errors.Is(c.err, c.want) || len(c.err.Error()) > 300 {
			t.Errorf("%s: %.400v", c.what, c.err)
		}
	}
	if _, _, err := n.Invalidate(ctx, "k", 1, "a b"); !errors.Is(err, hotcache.ErrInvalid) {
		t.Errorf("by a member of two words: %v", err)
	}
	if got := server.Int("DBSIZE"); got != 1 { // the header, since the node was opened
		t.Errorf("%d keys were written", got-1)
	}
	n.Close()
	n.Close()
	for what, err := range map[string]error{
		"ask": second(n.Ask(ctx, hotcache.Ask{Key: "k"})), "beat": second(f.Beat(ctx, time.Second)), "tell": f.Tell(ctx, "", ""),
		"follow": second(n.Follow("other", &listener{})), "copy": n.PutCopy(ctx, "k", hotcache.Copy{}),
	} {
		if !errors.Is(err, hotcache.ErrClosed) {
			t.Errorf("%s after Close: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A cache names the key of an invalidation that failed, as people read it; nobody else does.
func TestKeyNamedOnce(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{Timeout: 100 * time.Millisecond})
	load := func(context.Context, string, hotcache.Version) (string, hotcache.Version, error) {
		return "nails", 1, nil
	}
	cache, err := hotcache.New(load, hotcache.Options[string, string]{Nodes: []hotcache.NamedNode{{Name: "a", Node: n}},
		NodeTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer cache.Close()
	server.Freeze()
	defer server.Thaw()
	err = cache.Invalidate(t.Context(), "screws", 7)
	if err == nil || strings.Count(err.Error(), "screws") != 1 || !strings.Contains(err.Error(), `node "a"`) {
		t.Errorf("Invalidate: %v", err)
	}
}

// The log of a program with many nodes says which one lost its subscription.
func TestLogNamesTheNode(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	log := &lines{}
	n := open(t, server.URL(), Options{Namespace: "prices", Logger: slog.New(slog.NewTextHandler(log, nil))})
	l, _ := follow(t, n, "me")
	server.KillPubSub()
	l.until(t, "it is down", func() bool { return l.downs > 0 })
	for _, what := range []string{"connected", "lost"} {
		want := `msg="redis subscription ` + what + `" namespace=prices address=` + server.Addr()
		soon(t, "the log has "+want, func() bool { return log.has(want) })
	}
}

// lines are what was logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// What a newer version wrote, or something else, is refused and left alone.
func TestWhatIsNotOurs(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	for _, c := range []struct {
		name string
		put  func(n *Node)
		want error
	}{
		{"a newer format", func(n *Node) { server.Do("HSET", n.keys.floors(), "", "2 of which nothing is known") }, ErrFormat},
		{"noise", func(n *Node) { server.Do("HSET", n.keys.floors(), "", "noise") }, ErrForeign},
		{"no header", func(n *Node) {
			server.Do("DEL", n.keys.floors())
			server.Do("HSET", n.keys.floors(), "field", "value")
		}, ErrForeign},
		{"another type", func(n *Node) { server.Do("SET", n.keys.floors(), "value") }, ErrForeign},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := open(t, server.URL(), Options{Namespace: c.name})
			_, f := follow(t, n, "me")
			c.put(n)
			ctx := t.Context()
			_, _, err := n.Invalidate(ctx, "k", 1, "")
			for what, err := range map[string]error{
				"invalidate": err, "ask": second(n.Ask(ctx, hotcache.Ask{Key: "k", Token: 1})), "beat": second(f.Beat(ctx, time.Second)),
				"fill": second(n.Fill(ctx, hotcache.Fill{Key: "k", Token: 1, Times: good})), "fail": n.Fail(ctx, "k", 1, "", 0),
				"renew": second(n.Renew(ctx, "k", 1)), "open": second(Open(ctx, server.URL(), Options{Namespace: c.name})),
			} {
				if !errors.Is(err, c.want) {
					t.Errorf("%s: %v, want %v", what, err, c.want)
				}
			}
			if server.Int("EXISTS", n.keys.floors()) != 1 || server.Int("EXISTS", n.keys.load("k"), n.keys.item("k"), n.keys.members()) != 0 {
				t.Error("something was written")
			}
		})
	}
}

// An older process refuses what a later one writes, and hears that it cannot read it.
func TestNewerProcess(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	n := open(t, server.URL(), Options{})
	later := open(t, server.URL(), Options{version: 2})
	l, f := follow(t, n, "me")
	put(t, later, "k", 1)
	invalidate(t, later, "j", 1)
	l.until(t, "it is told that it cannot read", func() bool { return l.downs == 1 && errors.Is(l.why, ErrFormat) })
	if _, err := f.Beat(t.Context(), time.Second); !errors.Is(err, ErrFormat) {
		t.Errorf("beat: %v", err)
	}
	if _, err := n.Ask(t.Context(), hotcache.Ask{Key: "k", Token: 1}); !errors.Is(err, ErrFormat) {
		t.Errorf("ask: %v", err)
	}
}
