package rmapredis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
)

// open opens a store that ends with the test.
func open(t testing.TB, url string, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// A follower remembers what it was told.
type follower struct {
	mu         sync.Mutex
	up         bool
	ups, downs int
	changes    []rmap.Change
	unreadable []error
	down       error
	told       chan struct{} // has room for one
}

func newFollower() *follower { return &follower{told: make(chan struct{}, 1)} }

func (f *follower) tell(do func()) {
	f.mu.Lock()
	do()
	f.mu.Unlock()
	select {
	case f.told <- struct{}{}:
	default:
	}
}

func (f *follower) Up()                   { f.tell(func() { f.up = true; f.ups++ }) }
func (f *follower) Changed(c rmap.Change) { f.tell(func() { f.changes = append(f.changes, c) }) }
func (f *follower) Unreadable(err error)  { f.tell(func() { f.unreadable = append(f.unreadable, err) }) }
func (f *follower) Down(err error)        { f.tell(func() { f.up = false; f.downs++; f.down = err }) }
func (f *follower) look(do func() bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return do()
}

// until waits for something that the follower is to be told.
func (f *follower) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for !f.look(cond) {
		select {
		case <-f.told:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// follow subscribes and waits until the subscription stands.
func follow(t testing.TB, s *Store, name string) (*follower, rmap.Feed) {
	t.Helper()
	f := newFollower()
	feed, err := s.Follow(name, f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(feed.Close)
	f.until(t, "the subscription stands", func() bool { return f.up })
	return f, feed
}

func plain(data string) rmap.Value { return rmap.Value{Kind: rmap.Plain, Data: data} }

func set(key, data string) rmap.Write {
	return rmap.Write{Ops: []rmap.Op{{Do: rmap.DoSet, Key: key, Value: plain(data)}}}
}

func write(t testing.TB, s *Store, name string, w rmap.Write) rmap.Result {
	t.Helper()
	r, err := s.Write(t.Context(), name, w)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func contents(t testing.TB, s *Store, name string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := s.Scan(t.Context(), name, func(chunk []rmap.Entry) error {
		for _, e := range chunk {
			out[e.Key] = string(rune(e.Value.Kind)) + e.Value.Data
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWriteIsBroadcastAndStored(t *testing.T) {
	server := redistest.Start(t, redistest.Options{})
	s := open(t, server.URL(), Options{})
	f, feed := follow(t, s, "m")
	w := rmap.Write{WantOld: true, Ops: []rmap.Op{
		{Do: rmap.DoSet, Key: "a", Value: plain("1")},
		{Do: rmap.DoAdd, Key: "n", Delta: 9007199254740993},
		{Do: rmap.DoAdd, Key: "n", Delta: 9007199254740993},
		{Do: rmap.DoAppend, Key: "l", Items: []string{"x", "", "y"}},
		{Do: rmap.DoAppendUnique, Key: "l", Items: []string{"x", "z", "z"}},
		{Do: rmap.DoRemove, Key: "l", Items: []string{""}},
		{Do: rmap.DoDelete, Key: "none"},
	}}
	r := write(t, s, "m", w)
	head, err := feed.Head(t.Context())
	if err != nil || head.Revision != r.Revision {
		t.Fatalf("head %+v, %v; want revision %v", head, err, r.Revision)
	}
	got := contents(t, s, "m")
	if got["a"] != "p1" || got["n"] != "i18014398509481986" || got["l"] != "l1:x1:y1:z" || len(got) != 3 {
		t.Errorf("the map has %q", got)
	}
	if len(f.changes) != 1 || len(f.changes[0].Steps) != 6 || f.changes[0].Revision != r.Revision {
		t.Errorf("the follower was told %+v", f.changes)
	}
	if len(r.Old) != 7 || r.Old[2] == nil || r.Old[2].Value.Data != "9007199254740993" || r.Old[0] != nil {
		t.Errorf("old entries %+v", r.Old)
	}
	r2 := write(t, s, "m", rmap.Write{Ops: []rmap.Op{{Do: rmap.DoDelete, Key: "a"}}})
	changes, err := s.Since(t.Context(), "m", r.Revision)
	if err != nil || len(changes) != 1 || changes[0].Revision != r2.Revision || changes[0].Prev != r.Revision.Nonce {
		t.Errorf("since: %+v, %v", changes, err)
	}
	if _, err := s.Write(t.Context(), "m", rmap.Write{Ops: []rmap.Op{{Do: rmap.DoAdd, Key: "l"}}}); !errors.Is(err, rmap.ErrKind) {
		t.Errorf("adding to a list: %v, want ErrKind", err)
	} else if !strings.Contains(err.Error(), `operation 1 on key "l"`) {
		t.Errorf("the error %q does not name the operation", err)
	}
	w = rmap.Write{Ops: []rmap.Op{{Do: rmap.DoSet, Key: "b", Value: plain("")}, {Do: rmap.DoAdd, Key: "n", Delta: 1<<63 - 1}}}
	if _, err := s.Write(t.Context(), "m", w); !errors.Is(err, rmap.ErrRange) || server.Int("EXISTS", "latchkey:map:{m}:tmp") != 0 {
		t.Errorf("overflow: %v, want ErrRange and no temporary key", err)
	}
	if got := contents(t, s, "m"); got["b"] != "" {
		t.Errorf("half of a batch was written: %q", got)
	}
}

func TestKeysOfOneMapShareASlot(t *testing.T) {
	s := &Store{o: Options{Prefix: DefaultPrefix}}
	keys := []string{s.hash("x"), s.due("x"), s.log("x"), s.tmp("x"), s.channel("x")}
	for _, k := range keys {
		if !strings.HasPrefix(k, "latchkey:map:{x}") {
			t.Errorf("%q has another hash tag", k)
		}
	}
	slices.Sort(keys)
	if len(slices.Compact(keys)) != 5 {
		t.Error("two of them are the same")
	}
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	ctx := context.Background()
	for _, tt := range []struct {
		url  string
		want error
		says string
	}{
		{"localhost:6379", rmap.ErrInvalid, "redis://"},
		{"http://localhost", rmap.ErrInvalid, "scheme"},
		{"redis://u:geheim@local host", rmap.ErrInvalid, "redis://"},
		{"redis://localhost/x", rmap.ErrInvalid, "database"},
		{"redis://localhost?protocol=2", rmap.ErrInvalid, "protocol 3"},
		{"unix://", rmap.ErrInvalid, "path"},
		{"redis://u:geheim@127.0.0.1:1", rmap.ErrUnavailable, "127.0.0.1:1"},
	} {
		_, err := Open(ctx, tt.url, Options{})
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %v with %q", tt.url, err, tt.want, tt.says)
		}
		if err != nil && strings.Contains(err.Error(), "geheim") {
			t.Errorf("the error %q shows the password", err)
		}
	}
	if _, err := Open(ctx, "redis://localhost", Options{Prefix: "a{b}"}); !errors.Is(err, rmap.ErrInvalid) {
		t.Errorf("a prefix with braces: %v", err)
	}
}
