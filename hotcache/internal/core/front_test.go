package core

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A bench is one process with two nodes, of which node 0 is home to every key, and what it was last asked to do.
type bench struct {
	t    *testing.T
	f    *Front
	now  time.Duration
	head feed.Position // of node 0
}

func testSettings() Settings {
	return Settings{
		Rules: testRules(), Trust: 250 * time.Millisecond, StaleWhile: time.Second, StaleOnError: 2 * time.Second,
		FirstPause: 100 * time.Millisecond, LastPause: 5 * time.Second, MaxDirect: 1, MaxWaiting: 1, BreakAfter: 2, BreakFor: time.Second,
		Tries: 3, Memory: true, Home: func(string) int { return 0 },
	}
}

func newBench(t *testing.T, change func(*Settings)) *bench {
	set := testSettings()
	if change != nil {
		change(&set)
	}
	return &bench{
		t: t, f: NewFront(2, set, rand.New(rand.NewPCG(1, 1))), now: time.Minute,
		head: feed.Position{Generation: 7, Number: 10, Nonce: 100},
	}
}

// meet proves that everything was heard.
func (b *bench) meet() []Action { return b.f.Met(b.now, 0, b.f.Sight(0).At(), b.head, b.now) }

// next makes the next invalidation of node 0.
func (b *bench) next(key string, v Version) Invalidation {
	inv := Invalidation{Key: key, Version: v}
	inv.Prev = b.head.Nonce
	b.head = feed.Position{Generation: b.head.Generation, Number: b.head.Number + 1, Nonce: b.head.Nonce + 1}
	inv.Position = b.head
	return inv
}

// want holds what was asked for against what should be, and returns the last of it.
func (b *bench) want(got []Action, dos ...Do) Action {
	b.t.Helper()
	var have []Do
	for _, a := range got {
		have = append(have, a.Do)
	}
	if !slices.Equal(have, dos) {
		b.t.Fatalf("asked to do %v, want %v: %+v", have, dos, got)
	}
	if len(got) == 0 {
		return Action{}
	}
	return got[len(got)-1]
}

// leased starts a read that has to load.
func (b *bench) leased(id ReadID, min Version, a Answer) (load Action) {
	b.t.Helper()
	ask := b.want(b.f.Read(b.now, id, "k", min), DoAsk)
	a.State, a.Token = Lease, ask.Ask.Token
	return b.want(b.f.Answered(b.now, ask.Op, a, nil), DoLoad)
}

func item(v Version) Item { return Item{Version: v, Data: []byte{byte(v)}} }

var good = Times{Soft: time.Minute, Hard: time.Hour, Keep: 2 * time.Hour}

var errTest = errors.New("test")

// TestJoin: reads share a flight as long as it cannot bring what is older than they may get.
func TestJoin(t *testing.T) {
	b := newBench(t, nil)
	b.leased(1, 0, Answer{})
	b.want(b.f.Read(b.now, 2, "k", 0), DoAsk) // nothing is proved
	b = newBench(t, nil)
	b.meet()
	load := b.leased(1, 0, Answer{})
	b.want(b.f.Read(b.now, 2, "k", 0))
	b.want(b.f.Read(b.now, 3, "k", 4), DoAsk) // the flight asked for less
	b.now += 250 * time.Millisecond
	b.want(b.f.Read(b.now, 4, "k", 0), DoAsk) // the proof is too old
	b.want(b.f.Loaded(b.now, load.Op, item(3), good, nil), DoServe, DoFill)

	b = newBench(t, nil)
	b.meet()
	load = b.leased(1, 4, Answer{Min: 4})
	b.want(b.f.Read(b.now, 2, "k", 3))
	if a := b.f.Loaded(b.now, load.Op, item(4), good, nil); !slices.Equal(a[0].Reads, []ReadID{1, 2}) {
		t.Errorf("served %v", a[0].Reads)
	}
}

// TestInvalidationClosesFlight: a read that begins after it gets nothing that was read before.
func TestInvalidationClosesFlight(t *testing.T) {
	for name, tell := range map[string]func(*bench) []Action{
		"heard": func(b *bench) []Action { return b.f.Invalidated(b.now, 0, b.next("k", 2)) },
		"own":   func(b *bench) []Action { return b.f.Invalidating(b.now, 0, b.next("k", 2)) },
	} {
		b := newBench(t, nil)
		b.meet()
		b.leased(1, 0, Answer{})
		b.want(tell(b), DoDrop)
		if a := b.f.Read(b.now, 2, "k", 0); len(a) != 1 || a[0].Do != DoAsk {
			t.Errorf("%s: %+v", name, a)
		}
	}
	for name, tell := range map[string]func(*bench) []Action{
		"lost": func(b *bench) []Action { return b.f.Lost(b.now, 0) },
		"gap":  func(b *bench) []Action { b.next("x", 1); return b.f.Invalidated(b.now, 0, b.next("k", 2)) },
		"head": func(b *bench) []Action { b.next("x", 1); return b.meet() },
	} {
		b := newBench(t, nil)
		b.meet()
		b.leased(1, 0, Answer{})
		b.want(tell(b), DoDropNode)
		b.meet()
		if a := b.f.Read(b.now, 2, "k", 0); len(a) != 1 || a[0].Do != DoAsk {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// TestBlindFlight: what was invalidated while nothing was heard closes no flight, so the first proof closes all.
func TestBlindFlight(t *testing.T) {
	b := newBench(t, nil)
	b.leased(1, 0, Answer{})
	b.next("k", 2) // nobody hears it
	b.want(b.meet())
	b.want(b.f.Read(b.now, 2, "k", 0), DoAsk)
}

// TestFreshJoinsNothing: the row as it is now may be another one than a flight has read already.
func TestFreshJoinsNothing(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	b.leased(1, Fresh, Answer{Min: Fresh})
	b.want(b.f.Read(b.now, 2, "k", 0)) // any will do
	for id, min := range []Version{Fresh, 3} {
		b.want(b.f.Read(b.now, ReadID(3+id), "k", min), DoAsk)
		b.f.closeTo(b.f.open["k"])
		b.leased(ReadID(13+id), Fresh, Answer{Min: Fresh})
	}
}

// TestWaitersShare: flights of one process that wait for the same load become one, and any read may join it.
func TestWaitersShare(t *testing.T) {
	b := newBench(t, nil)
	var asked [3]Action
	for id := range asked {
		asked[id] = b.want(b.f.Read(b.now, ReadID(id), "k", 0), DoAsk)
	}
	for _, ask := range asked {
		b.want(b.f.Answered(b.now, ask.Op, Answer{State: Busy, Retry: time.Second}, nil))
	}
	b.want(b.f.Read(b.now, 10, "k", 0))
	other := b.want(b.f.Read(b.now, 20, "k", 5), DoAsk)
	b.want(b.f.Answered(b.now, other.Op, Answer{State: Busy, Retry: time.Second}, nil))
	asks := b.f.Woken(b.now, "k")
	b.want(asks, DoAsk, DoAsk)
	served := b.f.Answered(b.now, asks[0].Op, Answer{State: Hit, Item: &Item{Version: 1}, Times: good}, nil)
	if len(served[0].Reads) != 4 {
		t.Errorf("served %v", served[0].Reads)
	}
	if _, ok := b.f.Next(); !ok {
		t.Error("no timer for the end of the lease")
	}
	b.want(b.f.Tick(b.now + 2*time.Second))
}

// TestRetryAtTheEndOfTheLease: a wake may be lost.
func TestRetryAtTheEndOfTheLease(t *testing.T) {
	b := newBench(t, nil)
	ask := b.want(b.f.Read(b.now, 1, "k", 0), DoAsk)
	b.want(b.f.Answered(b.now, ask.Op, Answer{State: Busy, Retry: time.Second}, nil))
	if at, ok := b.f.Next(); !ok || at != b.now+time.Second {
		t.Fatal(at, ok)
	}
	b.want(b.f.Tick(b.now + time.Second - 1))
	b.want(b.f.Tick(b.now+time.Second), DoAsk)
}

// TestNodeInAnotherGeneration: who invalidates, and learns thereby of a generation that the feed has not told of,
// must not use what belongs to the one before.
func TestNodeInAnotherGeneration(t *testing.T) {
	b := newBench(t, nil)
	b.meet()
	old := Stamp{7, 10}
	if !b.f.Holds(b.now, 0, "k", old) {
		t.Fatal("what was just read is not held")
	}
	b.head = feed.Position{Generation: 8, Number: 0, Nonce: 200}
	b.want(b.f.Invalidating(b.now, 0, b.next("k", 2)), DoDropNode, DoDrop)
	if b.f.Current(b.now, 0) || b.f.Holds(b.now, 0, "k", old) {
		t.Error("an item of the generation before is held")
	}
}

// TestLateHead: a head says nothing against what was heard after it was read.
func TestLateHead(t *testing.T) {
	for name, made := range map[string]func(*bench){
		"unknown":    func(b *bench) {},
		"gap":        func(b *bench) { b.meet(); b.next("x", 1) },
		"generation": func(b *bench) { b.meet(); b.head = feed.Position{Generation: 8, Nonce: 200} },
		"new":        func(b *bench) { b.meet(); b.f.Lost(b.now, 0); b.head = feed.Position{Generation: 8, Nonce: 200} },
	} {
		b := newBench(t, nil)
		head := b.head
		made(b)
		asked := b.f.Sight(0).At()
		if name == "new" {
			asked = head
		}
		b.f.Invalidated(b.now, 0, b.next("k", 2))
		b.f.Met(b.now, 0, asked, head, b.now)
		if b.f.Holds(b.now, 0, "k", StampOf(head)) {
			t.Errorf("%s: an item is held that was read before an invalidation which was heard", name)
		}
		b.meet()
		if !b.f.Holds(b.now, 0, "k", StampOf(b.head)) {
			t.Errorf("%s: after the next head nothing is held", name)
		}
	}
}

// TestLateHeadAndOwnInvalidation: a head that was read before this process invalidated something, and comes after it has
// told its caller so, must not have it use what was read before. The feed has not told yet.
func TestLateHeadAndOwnInvalidation(t *testing.T) {
	for name, made := range map[string]func(*bench){
		"unknown": func(b *bench) {},
		"lost":    func(b *bench) { b.meet(); b.f.Lost(b.now, 0) },
		"gap":     func(b *bench) { b.meet(); b.next("x", 1); b.f.Invalidated(b.now, 0, b.next("y", 1)) },
		"heard":   func(b *bench) { b.next("x", 1) },
		"generation": func(b *bench) {
			b.meet()
			b.f.Invalidating(b.now, 0, Invalidation{Key: "k", Change: feed.Change{Position: feed.Position{Generation: 8, Number: 1, Nonce: 201}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			made(b)
			head, sent, asked := b.head, b.now, b.f.Sight(0).At()
			b.now += time.Millisecond
			switch name {
			case "heard": // what was before it comes in the feed, when it is done already
				x := Invalidation{Key: "x", Change: feed.Change{Position: b.head, Prev: 1}}
				b.f.Invalidating(b.now, 0, b.next("k", 2))
				b.f.Invalidated(b.now, 0, x)
			case "generation":
				b.head = feed.Position{Generation: 8, Number: 1, Nonce: 201}
			default:
				b.f.Invalidating(b.now, 0, b.next("k", 2))
			}
			b.f.Met(b.now, 0, asked, head, sent)
			if b.f.Holds(b.now, 0, "k", StampOf(head)) {
				t.Error("an item is held that was read before an invalidation that this process made")
			}
			b.now += time.Millisecond
			b.meet()
			if !b.f.Holds(b.now, 0, "k", StampOf(b.head)) || b.f.Holds(b.now, 0, "k", StampOf(head)) {
				t.Error("the next head does not prove what it must")
			}
		})
	}
}
