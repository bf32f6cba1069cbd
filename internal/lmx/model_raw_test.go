package lmx_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
)

// TestRandomHistories has a few clients do whatever the protocol allows, and holds
// what they are told against what they may be told: never more holders of a key
// than the smallest max among them, tokens that rise, answers to all that was
// asked, everything granted in the end, and nothing kept. A seed in
// LATCHKEY_TEST_SEED is run alone.
func TestRandomHistories(t *testing.T) {
	seeds := 40
	if os.Getenv("LATCHKEY_SOAK") != "" {
		seeds = 2000
	}
	if text := os.Getenv("LATCHKEY_TEST_SEED"); text != "" {
		seed, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		bubble(t, func(r *rig) { newHistory(r, uint64(seed)).run(200) })
		return
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			bubble(t, func(r *rig) { newHistory(r, uint64(seed)).run(200) })
		})
	}
}

// holding is a key that a client was told it has.
type holding struct {
	id, key string
	max     int
	ends    time.Time // zero for never
	acked   bool
	conn    int
	keep    bool // it outlives its connection
	many    bool
}

// asking is a lock that waits.
type asking struct {
	id, key string // key is empty for many
	keys    []string
	max     int
	ttl     time.Duration
	conn    int
	keep    bool
}

// history is a run: clients and what is known of their locks.
type history struct {
	r       *rig
	rng     *rand.Rand
	clients []*lmxtest.Client
	holds   []*holding
	waiting map[string]*asking
	tokens  map[string]int64 // the highest of each key
	grants  int
	waits   int
	serial  int
}

// grain is how exactly the checker knows when a grant was made.
const grain = 10 * time.Millisecond

func newHistory(r *rig, seed uint64) *history {
	h := &history{r: r, rng: rand.New(rand.NewPCG(seed, 1)), waiting: map[string]*asking{}, tokens: map[string]int64{}}
	for range 4 {
		h.clients = append(h.clients, r.Client())
	}
	return h
}

func (h *history) run(steps int) {
	for range steps {
		switch n := h.rng.IntN(20); {
		case n < 8:
			h.lock()
		case n < 9:
			h.many()
		case n < 13:
			h.unlock()
		case n < 14:
			h.repeat()
		case n < 15:
			h.giveUp()
		case n < 16:
			h.reject()
		case n < 17:
			h.force()
		case n < 18:
			h.reconnect()
		default:
			h.pass(time.Duration(1+h.rng.IntN(30)) * grain)
		}
		h.pass(grain)
	}
	h.finish()
}

func (h *history) key() string { return string(rune('a' + h.rng.IntN(3))) }

func (h *history) ttl() (wire any, d time.Duration) {
	if h.rng.IntN(4) == 0 {
		return nil, 0
	}
	ms := 10*(5+h.rng.IntN(100)) + 3 // ends between two looks
	return ms, time.Duration(ms) * time.Millisecond
}

func (h *history) id() string {
	h.serial++
	return fmt.Sprintf("h%d", h.serial)
}

func (h *history) lock() {
	ttl, d := h.ttl()
	a := &asking{id: h.id(), key: h.key(), max: 1 + h.rng.IntN(3), ttl: d, conn: h.rng.IntN(len(h.clients)), keep: h.rng.IntN(8) == 0}
	try := h.rng.IntN(6) == 0
	c := h.clients[a.conn]
	f := lmxtest.Lock(a.id, a.key, frame{"ttl": ttl, "max": a.max, "keepLocksAfterDeath": a.keep})
	if try {
		f["wait"] = false
	}
	c.Send(f)
	switch answer := c.Expect(a.id); {
	case answer.True("acquired"):
		h.granted(a, answer)
	case answer.Has("error"):
		h.r.t.Fatalf("lock: got %v", answer)
	case !try:
		h.waiting[a.id] = a
		h.waits++
	}
}

func (h *history) many() {
	ttl, d := h.ttl()
	a := &asking{id: h.id(), keys: []string{"a", "b"}, max: 1, ttl: d, conn: h.rng.IntN(len(h.clients))}
	c := h.clients[a.conn]
	c.Send(frame{"type": "acquire-many", "uuid": a.id, "keys": a.keys, "ttl": ttl})
	switch answer := c.Expect(a.id); {
	case answer.True("acquired"):
		h.granted(a, answer)
	case answer.Has("error"):
		h.r.t.Fatalf("acquire-many: got %v", answer)
	default:
		h.waiting[a.id] = a
		h.waits++
	}
}

// granted notes a grant and checks it.
func (h *history) granted(a *asking, f frame) {
	delete(h.waiting, a.id)
	h.grants++
	got := map[string]int64{a.key: f.Int("fencingToken")}
	id := a.id
	if len(a.keys) > 0 {
		got, id = f.Tokens("fencingTokens"), f.Text("lockUuid")
	}
	for key, token := range got {
		if token <= h.tokens[key] {
			h.r.t.Errorf("%s: token %d after %d: %v", key, token, h.tokens[key], f)
		}
		h.tokens[key] = token
		n := &holding{id: id, key: key, max: a.max, conn: a.conn, keep: a.keep, many: len(a.keys) > 0}
		if a.ttl > 0 {
			n.ends = time.Now().Add(a.ttl - 2*grain)
		}
		h.holds = append(h.holds, n)
		h.exclusive(key)
	}
}

// exclusive checks a key against those that certainly still hold it.
func (h *history) exclusive(key string) {
	live, limit := 0, 1000
	for _, n := range h.holds {
		if n.key == key && (n.ends.IsZero() || time.Now().Before(n.ends)) {
			live++
			limit = min(limit, n.max)
		}
	}
	if live > limit {
		h.r.t.Fatalf("%s has %d holders, and one of them allows %d", key, live, limit)
	}
}

// pass lets time pass and reads what comes meanwhile.
func (h *history) pass(d time.Duration) {
	for ; d > 0; d -= grain {
		h.r.Pause(grain)
		type grant struct {
			a     *asking
			f     frame
			token int64
		}
		var grants []grant // in the order of their tokens: which client is read first means nothing
		for id, a := range h.waiting {
			f, ok := h.clients[a.conn].Poll(id)
			if !ok {
				continue
			}
			if !f.True("acquired") {
				h.r.t.Fatalf("while it waits: got %v", f)
			}
			grants = append(grants, grant{a, f, max(f.Int("fencingToken"), f.Tokens("fencingTokens")["a"])})
		}
		slices.SortFunc(grants, func(x, y grant) int { return cmp.Compare(x.token, y.token) })
		for _, g := range grants {
			h.granted(g.a, g.f)
		}
		h.holds = slices.DeleteFunc(h.holds, func(n *holding) bool {
			return !n.ends.IsZero() && time.Now().After(n.ends.Add(3*grain))
		})
	}
}

// pick chooses a hold, or nil.
func (h *history) pick(is func(*holding) bool) *holding {
	var fit []*holding
	for _, n := range h.holds {
		if is(n) {
			fit = append(fit, n)
		}
	}
	if len(fit) == 0 {
		return nil
	}
	return fit[h.rng.IntN(len(fit))]
}

func (h *history) drop(gone func(*holding) bool) { h.holds = slices.DeleteFunc(h.holds, gone) }

// unlock releases a hold from any connection; it may have expired just now.
func (h *history) unlock() {
	n := h.pick(func(*holding) bool { return true })
	if n == nil {
		return
	}
	c, uuid := h.clients[h.rng.IntN(len(h.clients))], h.id()
	if n.many && h.rng.IntN(2) == 0 {
		h.drop(func(o *holding) bool { return o.id == n.id })
		c.Send(frame{"type": "release-many", "uuid": uuid, "lockUuid": n.id})
		if f := c.Expect(uuid); !f.True("released") && n.ends.IsZero() {
			h.r.t.Errorf("release-many of %+v: got %v", n, f)
		}
		return
	}
	h.drop(func(o *holding) bool { return o == n })
	c.Send(lmxtest.Unlock(uuid, n.id, n.key, nil))
	if f := c.Expect(uuid); !f.True("unlocked") && !n.keep {
		h.r.t.Errorf("unlock of %+v: got %v", n, f)
	}
}

// repeat sends a request again, of one that waits or of one that holds.
func (h *history) repeat() {
	for _, id := range slices.Sorted(maps.Keys(h.waiting)) {
		if a := h.waiting[id]; a.key != "" {
			c := h.clients[a.conn]
			c.Send(lmxtest.Lock(a.id, a.key, frame{"ttl": 1, "max": 3, "retryCount": 1}))
			if f := c.Expect(a.id); f.True("acquired") {
				h.granted(a, f)
			}
			return
		}
	}
	if n := h.pick(func(n *holding) bool { return n.ends.IsZero() && !n.many && n.conn >= 0 }); n != nil {
		c := h.clients[n.conn]
		c.Send(lmxtest.Lock(n.id, n.key, frame{"retryCount": 1}))
		if f := c.Expect(n.id); !f.True("acquired") {
			h.r.t.Errorf("a repeat of %+v: got %v", n, f)
		}
	}
}

// giveUp stops one that waits.
func (h *history) giveUp() {
	for _, id := range slices.Sorted(maps.Keys(h.waiting)) {
		if a := h.waiting[id]; a.key != "" {
			h.clients[a.conn].Send(frame{"type": "lock-client-timeout", "uuid": a.id, "key": a.key})
			delete(h.waiting, id)
			return
		}
	}
}

// reject refuses a grant; one that was acknowledged stays.
func (h *history) reject() {
	n := h.pick(func(n *holding) bool { return n.conn >= 0 && !n.many })
	if n == nil {
		return
	}
	c := h.clients[n.conn]
	if h.rng.IntN(2) == 0 {
		n.acked = true
		c.Send(frame{"type": "lock-received", "uuid": n.id, "key": n.key})
	}
	if !n.acked {
		h.drop(func(o *holding) bool { return o == n })
	}
	c.Send(frame{"type": "lock-received-rejected", "uuid": n.id, "key": n.key})
}

func (h *history) force() {
	key := h.key()
	h.drop(func(n *holding) bool { return n.key == key })
	h.r.Force(h.clients[h.rng.IntN(len(h.clients))], key)
}

// reconnect ends a connection, and another begins.
func (h *history) reconnect() {
	i := h.rng.IntN(len(h.clients))
	h.clients[i].Close()
	h.drop(func(n *holding) bool { return n.conn == i && !n.keep })
	for _, n := range h.holds {
		if n.conn == i {
			n.conn = -1
		}
	}
	for id, a := range h.waiting {
		if a.conn == i {
			delete(h.waiting, id)
		}
	}
	h.clients[i] = h.r.Client()
}

// finish releases all there is until nobody waits, and checks that nothing is kept.
func (h *history) finish() {
	for range 1000 {
		if len(h.holds) == 0 {
			break
		}
		h.unlock()
		h.pass(grain)
	}
	h.pass(2 * time.Second) // what expired before it was released was not counted
	for id, a := range h.waiting {
		h.r.t.Errorf("%s waits for ever: %+v", id, a)
	}
	for range 1000 {
		if len(h.holds) == 0 {
			break
		}
		h.unlock()
		h.pass(grain)
	}
	for _, c := range h.clients {
		c.Close()
	}
	h.r.Quiet()
	keepsNothing(h.r.World)
	if h.grants < 20 || h.waits < 3 {
		h.r.t.Errorf("%d grants and %d waits: too few to say anything", h.grants, h.waits)
	}
}
