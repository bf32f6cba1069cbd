package engine

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// world drives an engine by hand and collects what it says.
type world struct {
	t       testing.TB
	e       *Engine
	now     time.Duration
	log     [][]byte
	notices []lease.Notice
	events  []lease.Event

	told      func(Effect) // hears everything first; may be nil
	unchecked bool         // too large to recount after each step
}

// asker is a lease.Caller that records.
type asker struct {
	queued int
	done   int
	lease  lease.Lease
	err    error
}

func (a *asker) Queued(lease.Queued) { a.queued++ }
func (a *asker) Done(l lease.Lease, err error) {
	a.done++
	a.lease, a.err = l, err
}

func newWorld(t testing.TB, cfg Config) *world {
	return &world{t: t, e: New(cfg)}
}

func (w *world) carry() {
	w.e.Out().Records(func(rec []byte) { w.log = append(w.log, append([]byte(nil), rec...)) })
	for _, f := range w.e.Out().Effects {
		if w.told != nil {
			w.told(f)
		}
		switch f.Kind {
		case EffectDone:
			f.Caller.Done(f.Lease, f.Err)
		case EffectQueued:
			f.Caller.Queued(f.More.(lease.Queued))
		case EffectReply:
			f.Reply(f.Lease, f.Err)
		case EffectNotice:
			f.Notify(f.More.(lease.Notice))
		case EffectEvent:
			w.events = append(w.events, f.More.(lease.Event))
		}
	}
	w.e.Out().Reset()
	if w.unchecked {
		return
	}
	if err := w.e.check(); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pass(d time.Duration) {
	w.now += d
	w.e.Advance(w.now)
	w.carry()
	for at, more := w.e.Next(); more && at <= w.now; at, more = w.e.Next() {
		w.e.Advance(w.now)
		w.carry()
	}
}

func (w *world) session(id string) *Session {
	s, _, err := w.e.Open(id, lease.SessionOptions{Name: id, Notify: func(n lease.Notice) { w.notices = append(w.notices, n) }})
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) acquire(s *Session, r lease.Request) *asker {
	w.t.Helper()
	if err := r.Normalize(); err != nil {
		w.t.Fatal(err)
	}
	a := &asker{}
	w.e.Acquire(s, s.epoch, &r, a)
	w.carry()
	return a
}

func (w *world) do(s *Session, c lease.Command) (l lease.Lease, err error) {
	w.e.Do(s, s.epoch, c, func(gl lease.Lease, ge error) { l, err = gl, ge })
	w.carry()
	return l, err
}

func (w *world) granted(a *asker, what string) lease.Token {
	w.t.Helper()
	if a.done != 1 || a.err != nil {
		w.t.Fatalf("%s: done %d times, err %v; want one grant", what, a.done, a.err)
	}
	return a.lease.Token()
}

// One counter serves all keys, so tokens of different keys compare (lockd gap 1).
func TestTokensAreEngineWide(t *testing.T) {
	w := newWorld(t, Config{Token: 100})
	s := w.session("s")
	last := lease.Token(100)
	for i := range 50 {
		a := w.acquire(s, lease.Request{ID: fmt.Sprint(i), Keys: []string{fmt.Sprint("key", i%7), fmt.Sprint("other", i)}})
		w.granted(a, "grant")
		for _, h := range a.lease.Holds {
			if h.Token <= last {
				t.Fatalf("token %d after %d", h.Token, last)
			}
			last = h.Token
		}
		w.do(s, lease.Command{Verb: lease.Release, ID: fmt.Sprint(i)})
	}
}

// Tokens end before they could be rounded by a JSON reader.
func TestTokensRunOut(t *testing.T) {
	w := newWorld(t, Config{Token: lease.MaxToken - 3})
	s := w.session("s")
	w.granted(w.acquire(s, lease.Request{ID: "1", Keys: []string{"a"}}), "first")
	w.granted(w.acquire(s, lease.Request{ID: "2", Keys: []string{"b"}}), "second")
	a := w.acquire(s, lease.Request{ID: "3", Keys: []string{"c"}})
	if !errors.Is(a.err, lease.ErrRefused) || !strings.Contains(a.err.Error(), "MaxToken") {
		t.Fatalf("got %v, want a refusal that names MaxToken", a.err)
	}
	if f, err := w.e.Force(lease.ForceRequest{Key: "a"}); !errors.Is(err, lease.ErrRefused) {
		t.Fatalf("force gave %v, %v; want a refusal, there is no token to fence with", f, err)
	}
	w.carry()
}

// A hundred thousand leases due in the same second all end when it is over, ten
// thousand in one batch of records; none waits for another (lockd gaps 7 and 8).
func TestMassExpiry(t *testing.T) {
	w := newWorld(t, Config{Durable: true})
	w.unchecked = true
	s := w.session("s")
	const n = 100_000
	for i := range n {
		r := lease.Request{ID: fmt.Sprint(i), Keys: []string{fmt.Sprint(i)}, TTL: time.Second + time.Duration(i%1000)*time.Millisecond, Mode: lease.Exclusive}
		w.e.Acquire(s, s.epoch, &r, &asker{})
		w.e.Out().Reset()
	}
	w.pass(time.Second - 1)
	if got := len(w.notices); got != 0 {
		t.Fatalf("%d leases ended early", got)
	}
	w.log = nil
	w.pass(time.Second)
	if len(w.notices) != n || len(w.log) != n {
		t.Fatalf("%d notices and %d records, want %d each", len(w.notices), len(w.log), n)
	}
	if w.e.keys.n != 0 || w.e.ids.n != 0 || w.e.holdEnds.n != 0 {
		t.Fatalf("left behind: %d keys, %d ids, %d timers", w.e.keys.n, w.e.ids.n, w.e.holdEnds.n)
	}
}

// A renewal that came before the tick wins over a stale wheel entry (lockd gap 6).
func TestRenewBeforeTick(t *testing.T) {
	w := newWorld(t, Config{})
	s := w.session("s")
	w.granted(w.acquire(s, lease.Request{ID: "a", Keys: []string{"k"}, TTL: 10 * time.Millisecond}), "grant")
	for range 50 {
		w.pass(9 * time.Millisecond)
		if _, err := w.do(s, lease.Command{Verb: lease.Renew, ID: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	if len(w.notices) != 0 {
		t.Fatalf("lost: %v", w.notices)
	}
	w.pass(10 * time.Millisecond)
	if len(w.notices) != 1 {
		t.Fatalf("not lost at its end: %v", w.notices)
	}
}

// Holders of one counted key each have a deadline of their own (lockd gap 12).
func TestEachHolderHasItsDeadline(t *testing.T) {
	w := newWorld(t, Config{})
	s := w.session("s")
	for i, ttl := range []int{30, 10, 20} {
		a := w.acquire(s, lease.Request{ID: fmt.Sprint(ttl), Keys: []string{"k"}, Mode: lease.Counted, Limit: 3, TTL: time.Duration(ttl) * time.Millisecond})
		w.granted(a, fmt.Sprint(i))
	}
	for i, want := range []string{"10", "20", "30"} {
		w.pass(10 * time.Millisecond)
		if len(w.notices) != i+1 || w.notices[i].ID != want {
			t.Fatalf("after %d ms: %v, want %s to end", 10*(i+1), w.notices, want)
		}
	}
}

// A million keys that came and went leave nothing but the bounded memory of
// outcomes (lockd gap 10: no record, goroutine or channel per idle key).
func TestForgottenKeysLeaveNothing(t *testing.T) {
	w := newWorld(t, Config{})
	s := w.session("s")
	n := int(doses(100_000, 1_000_000))
	before := heap()
	for i := range n {
		r := lease.Request{ID: fmt.Sprint("id", i), Keys: []string{fmt.Sprint("key", i)}, TTL: time.Minute}
		w.e.Acquire(s, s.epoch, &r, &asker{})
		w.e.Do(s, s.epoch, lease.Command{Verb: lease.Release, ID: r.ID}, nil)
		w.e.Out().Reset()
	}
	if w.e.keys.n != 0 || w.e.ids.n != 0 || s.requests != 0 || w.e.holdEnds.n != 0 {
		t.Fatalf("left behind: %d keys, %d ids, %d requests, %d timers", w.e.keys.n, w.e.ids.n, s.requests, w.e.holdEnds.n)
	}
	// The 65536 outcomes are under 1 MB.
	if grew := heap() - before; grew > 2<<20 {
		t.Fatalf("the heap grew by %d bytes", grew)
	}
	runtime.KeepAlive(w)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkHeldLease reports what one live lease costs in memory: a 16-byte key,
// a 16-byte id, an hour to live.
func BenchmarkHeldLease(b *testing.B) {
	w := newWorld(b, Config{})
	s := w.session("s")
	before := heap()
	i := 0
	for b.Loop() {
		r := lease.Request{ID: fmt.Sprintf("id%014d", i), Keys: []string{fmt.Sprintf("key%013d", i)}, TTL: time.Hour}
		i++
		w.e.Acquire(s, s.epoch, &r, &asker{})
		w.e.Out().Reset()
	}
	b.ReportMetric(float64(heap()-before)/float64(i), "B/lease")
	runtime.KeepAlive(w)
}

// What a queue of ten thousand costs per hand-over must not depend on its
// length.
func BenchmarkHandOver(b *testing.B) {
	for _, n := range []int{16, 9000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			w := newWorld(b, Config{})
			s := w.session("s")
			id := 0
			ask := func() {
				r := lease.Request{ID: fmt.Sprint(id), Keys: []string{"k"}, TTL: time.Hour}
				id++
				w.e.Acquire(s, s.epoch, &r, &asker{})
				w.e.Out().Reset()
			}
			for range n {
				ask()
			}
			held := 0
			for b.Loop() {
				w.e.Do(s, s.epoch, lease.Command{Verb: lease.Release, ID: fmt.Sprint(held)}, nil)
				held++
				ask()
			}
		})
	}
}
