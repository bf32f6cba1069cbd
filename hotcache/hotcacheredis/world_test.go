package hotcacheredis

import (
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// A listener remembers what it was told.
type listener struct {
	mu         sync.Mutex
	up         bool
	ups, downs int
	heard      []hotcache.Invalidation
	woken      []string
	told       []string
	why        error
	news       chan struct{} // has room for one
}

func (l *listener) tell(do func()) {
	l.mu.Lock()
	do()
	l.mu.Unlock()
	select {
	case l.news <- struct{}{}:
	default:
	}
}

func (l *listener) Up()                 { l.tell(func() { l.up = true; l.ups++ }) }
func (l *listener) Woken(key string)    { l.tell(func() { l.woken = append(l.woken, key) }) }
func (l *listener) Told(text string)    { l.tell(func() { l.told = append(l.told, text) }) }
func (l *listener) Down(why error)      { l.tell(func() { l.up = false; l.downs++; l.why = why }) }
func (l *listener) look(at func()) bool { l.mu.Lock(); defer l.mu.Unlock(); at(); return true }

func (l *listener) Invalidated(inv hotcache.Invalidation, _ hotcache.Member) {
	l.tell(func() { l.heard = append(l.heard, inv) })
}

// until waits for something that the listener is to be told.
func (l *listener) until(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		var done bool
		if l.look(func() { done = cond() }); done {
			return
		}
		select {
		case <-l.news:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// follow subscribes and waits until the subscription stands.
func follow(t testing.TB, n *Node, as hotcache.Member) (*listener, hotcache.Feed) {
	t.Helper()
	l := &listener{news: make(chan struct{}, 1)}
	f, err := n.Follow(as, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	l.until(t, "the subscription stands", func() bool { return l.up })
	return l, f
}

// soon waits for a condition on which nobody calls.
func soon(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for begin := time.Now(); !cond(); {
		if time.Since(begin) > time.Minute {
			t.Fatalf("waited in vain until %s", what)
		}
		<-time.After(2 * time.Millisecond) // between two looks; what counts is the condition
	}
}

var good = hotcache.Times{Soft: time.Hour, Hard: time.Hour, Keep: time.Hour}

func ask(t testing.TB, n *Node, key string, token hotcache.Token) hotcache.Answer {
	t.Helper()
	a, err := n.Ask(t.Context(), hotcache.Ask{Key: key, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// put stores a version under a key.
func put(t testing.TB, n *Node, key string, v hotcache.Version) {
	t.Helper()
	a, err := n.Ask(t.Context(), hotcache.Ask{Key: key, Min: hotcache.Fresh, Token: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	item := hotcache.Item{Version: v, Data: []byte("data")}
	r, err := n.Fill(t.Context(), hotcache.Fill{Key: key, Token: a.Token, Item: item, Times: good})
	if err != nil || r.Refusal != core.Stored {
		t.Fatalf("%+v, %v", r, err)
	}
}

func invalidate(t testing.TB, n *Node, key string, v hotcache.Version) (hotcache.Invalidation, []hotcache.Member) {
	t.Helper()
	inv, members, err := n.Invalidate(t.Context(), key, v, "")
	if err != nil {
		t.Fatal(err)
	}
	return inv, members
}

func beat(t testing.TB, f hotcache.Feed, trust time.Duration) hotcache.Position {
	t.Helper()
	p, err := f.Beat(t.Context(), trust)
	if err != nil {
		t.Fatal(err)
	}
	return p
}
