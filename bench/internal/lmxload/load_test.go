package lmxload

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// request is a frame that this package sends.
type request struct {
	Type  string `json:"type"`
	UUID  string `json:"uuid"`
	ID    string `json:"_uuid"`
	Key   string `json:"key"`
	TTL   *int   `json:"ttl"`
	Value string `json:"value"`
}

// broker is a small one in this process. Planted defects make it wrong.
type broker struct {
	mu     sync.Mutex // guards what follows
	holder map[string]string
	queue  map[string][]waiter
	token  int
	seen   map[string]int // frames by type

	double bool // planted: grants a key that is held
	silent bool // answers nothing
	hangUp bool
	plant  func(r request, answer map[string]any) // planted: changes an answer

}

type waiter struct {
	conn net.Conn
	r    request
}

func newBroker(t *testing.T) (*broker, string) {
	t.Helper()
	b := &broker{holder: map[string]string{}, queue: map[string][]waiter{}, seen: map[string]int{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { // ends when the client closes
				defer c.Close()
				for in := bufio.NewScanner(c); in.Scan(); {
					var r request
					if err := json.Unmarshal(in.Bytes(), &r); err != nil {
						t.Errorf("%s: %v", in.Bytes(), err)
						return
					}
					b.handle(c, r)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return b, l.Addr().String()
}

func (b *broker) locked(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
}

func (b *broker) handle(c net.Conn, r request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen[r.Type]++
	if b.hangUp {
		c.Close()
	}
	if b.silent {
		return
	}
	switch r.Type {
	case "lock":
		if b.holder[r.Key] == "" || b.double {
			b.grant(c, r)
			return
		}
		b.queue[r.Key] = append(b.queue[r.Key], waiter{c, r})
		b.answer(c, r, map[string]any{"acquired": false})
	case "unlock":
		ok := b.holder[r.Key] == r.ID || b.double
		b.answer(c, r, map[string]any{"unlocked": ok})
		b.holder[r.Key] = ""
		if q := b.queue[r.Key]; len(q) > 0 {
			b.queue[r.Key] = q[1:]
			b.grant(q[0].conn, q[0].r)
		}
	case "lock-client-timeout":
		for i, w := range b.queue[r.Key] {
			if w.r.UUID == r.UUID {
				b.queue[r.Key] = append(b.queue[r.Key][:i], b.queue[r.Key][i+1:]...)
				return
			}
		}
	case "lock-info-request":
		b.answer(c, r, map[string]any{"type": "lock-info-response", "lockInfo": true})
	}
}

func (b *broker) grant(c net.Conn, r request) {
	b.holder[r.Key] = r.UUID
	b.token++
	b.answer(c, r, map[string]any{"acquired": true, "fencingToken": b.token})
}

func (b *broker) answer(c net.Conn, r request, a map[string]any) {
	if a["type"] == nil {
		a["type"] = r.Type
	}
	a["uuid"], a["key"] = r.UUID, r.Key
	if b.plant != nil {
		b.plant(r, a)
	}
	text, _ := json.Marshal(a)
	_, _ = c.Write(append(text, '\n')) // the test sees what is missing
	if a["twice"] != nil {
		_, _ = c.Write(append(text, '\n'))
	}
}

func dial(t *testing.T, addr string, keys []string, o Options) *Conn {
	t.Helper()
	c, err := Dial(addr, keys, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func names(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("key %d", i))
	}
	return out
}

// contestOn makes connections that want one key.
func contestOn(t *testing.T, addr string, n int) []*Conn {
	section := new(answers.Section)
	var conns []*Conn
	for range n {
		conns = append(conns, dial(t, addr, names(1), Options{TTL: time.Minute, Tokens: true, Contest: section}))
	}
	return conns
}

func TestLoadIsWhatAClientSays(t *testing.T) {
	b, addr := newBroker(t)
	var seen map[string]int
	c := dial(t, addr, names(100), Options{TTL: time.Minute, Tokens: true})
	s, err := Run(t.Context(), []*Conn{c}, 20*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if s.Ops < 100 || len(s.Latency) != s.Ops || c.Pairs() != s.Ops || s.Facts != nil {
		t.Errorf("%d pairs, %d latencies, facts %v", s.Ops, len(s.Latency), s.Facts)
	}
	b.locked(func() { seen = maps.Clone(b.seen) })
	if seen["version"] != 1 || seen["lock"] != s.Ops || seen["unlock"] != s.Ops || seen["lock-received"] != s.Ops {
		t.Errorf("%d pairs, frames %v", s.Ops, seen)
	}
	conns := contestOn(t, addr, 4)
	if s, err = Run(t.Context(), conns, 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	b.locked(func() { seen = maps.Clone(b.seen) })
	if n := seen["lock-info-request"]; n < s.Ops/witnessEvery-4 {
		t.Errorf("%d pairs and %d questions", s.Ops, n)
	}
	if len(s.Facts) != 1 {
		t.Errorf("facts %v of a contest", s.Facts)
	}
}

func TestKeysAreTakenAndDropped(t *testing.T) {
	b, addr := newBroker(t)
	keeper, other := dial(t, addr, names(500), Options{}), dial(t, addr, names(3), Options{})
	if err := keeper.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.locked(func() {
		if len(b.holder) != 500 {
			t.Errorf("%d keys are held", len(b.holder))
		}
	})
	for range 2 {
		if err := other.Held(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Run(t.Context(), []*Conn{other}, 0); !errors.Is(err, rounds.ErrWrong) {
		t.Errorf("keys that are held were found free: %v", err)
	}
	other = dial(t, addr, names(500)[3:], Options{})
	if err := keeper.Drop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Held(t.Context()); !errors.Is(err, rounds.ErrWrong) {
		t.Errorf("keys that are free were found held: %v", err)
	}
}

// Each wrong answer is seen.
func TestWrongAnswers(t *testing.T) {
	on := func(kind string, change func(map[string]any)) func(request, map[string]any) {
		return func(r request, a map[string]any) {
			if r.Type == kind {
				change(a)
			}
		}
	}
	for name, plant := range map[string]func(request, map[string]any){
		"a token that stays":      on("lock", func(a map[string]any) { a["fencingToken"] = 7 }),
		"no token":                on("lock", func(a map[string]any) { delete(a, "fencingToken") }),
		"another key":             on("lock", func(a map[string]any) { a["key"] = "other" }),
		"another id":              on("unlock", func(a map[string]any) { a["uuid"] = "4b1a7a5e-0000-4000-8000-000000000000" }),
		"an id of another length": on("lock", func(a map[string]any) { a["uuid"] = "x" }),
		"not unlocked":            on("unlock", func(a map[string]any) { a["unlocked"] = false }),
		"a warning":               on("unlock", func(a map[string]any) { a["warning"] = "no lock with key" }),
		"an error":                on("lock", func(a map[string]any) { a["error"] = "no" }),
		"a re-election":           on("lock", func(a map[string]any) { a["reelection"] = true }),
		"a free key refused":      on("lock", func(a map[string]any) { a["acquired"] = false }),
		"neither yes nor no":      on("lock", func(a map[string]any) { delete(a, "acquired") }),
		"another type":            on("unlock", func(a map[string]any) { a["type"] = "lock" }),
		"the same grant twice":    on("lock", func(a map[string]any) { a["twice"] = true }),
	} {
		t.Run(name, func(t *testing.T) {
			b, addr := newBroker(t)
			b.locked(func() { b.plant = plant })
			c := dial(t, addr, names(2), Options{TTL: time.Minute, Tokens: true})
			if _, err := Run(t.Context(), []*Conn{c}, 20*time.Millisecond); !errors.Is(err, rounds.ErrWrong) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// Two holders at one time are seen, with tokens and without.
func TestTwoHolders(t *testing.T) {
	b, addr := newBroker(t)
	b.locked(func() { b.double = true })
	conns := contestOn(t, addr, 4)
	for _, c := range conns {
		c.opts.Tokens = false
	}
	if _, err := Run(t.Context(), conns, 10*time.Second); !errors.Is(err, rounds.ErrWrong) {
		t.Errorf("error = %v", err)
	}
}

// A broker that goes away or a caller that gives up ends the load.
func TestLoadEnds(t *testing.T) {
	b, addr := newBroker(t)
	ctx, cancel := context.WithCancel(t.Context())
	conns := []*Conn{dial(t, addr, names(1), Options{}), dial(t, addr, []string{"other"}, Options{})}
	cancel()
	if _, err := Run(ctx, conns, 20*time.Millisecond); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	b.locked(func() { b.silent = true })
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Run(ctx, conns[:1], time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v", err)
	}
	b.locked(func() { b.hangUp = true })
	if _, err := Run(t.Context(), []*Conn{dial(t, addr, names(1), Options{})}, time.Hour); err == nil || errors.Is(err, rounds.ErrWrong) {
		t.Errorf("error = %v", err)
	}
	if _, err := Dial(addr, nil, Options{}); err == nil {
		t.Error("a connection without keys")
	}
}
