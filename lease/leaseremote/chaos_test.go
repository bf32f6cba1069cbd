package leaseremote

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leasetest/history"
)

// belief is a hold as its user sees it.
type belief struct {
	who     int
	lease   lease.Lease
	session lease.Session
	id      string // of the session at the grant
	over    bool   // released or told lost
}

// safe reports whether the user may act on the hold now. The deadline is read
// before the id: see lease.Held.
func (b *belief) safe() bool {
	until := lease.SafeUntil(b.lease, b.session)
	return !b.over && b.session.ID() == b.id && (until.IsZero() || time.Now().Before(until))
}

// world judges what users believe: no two may believe in the same key at once,
// and whoever believes has the highest token so far.
type world struct {
	t       *testing.T
	b       *broker
	rec     *history.Recorder
	mu      sync.Mutex // guards what follows
	beliefs map[string]*belief
	highest map[string]lease.Token
	grants  int
	wrong   []string
}

func (w *world) granted(now *belief, l lease.Lease) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now.lease, now.id = l, now.session.ID()
	if !now.safe() {
		return // too late to act on
	}
	w.grants++
	key, token := now.lease.Holds[0].Key, now.lease.Token()
	if old := w.beliefs[key]; old != nil && old.who != now.who && old.safe() {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: user %d holds token %d and user %d token %d", key, old.who, old.lease.Token(),
			now.who, token))
	}
	if token <= w.highest[key] {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: token %d after %d", key, token, w.highest[key]))
	}
	w.highest[key] = token
	w.beliefs[key] = now
}

func (w *world) over(b *belief) {
	w.mu.Lock()
	b.over = true
	w.mu.Unlock()
}

func (w *world) isOver(b *belief) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return b.over
}

func (w *world) lost(n lease.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if b := w.beliefs[n.Key]; b != nil && b.lease.ID == n.ID {
		b.over = true
	}
}

// use asks for a key and uses it for a while, as often as told. It is for a
// synctest bubble.
func (w *world) use(who int, v lease.Service, rng *rand.Rand, turns int) {
	s, err := v.Open(w.t.Context(), lease.SessionOptions{Name: fmt.Sprint(who), Notify: w.lost, Grace: time.Duration(1+rng.IntN(3)) * time.Second})
	if err != nil {
		w.t.Errorf("user %d: %v", who, err)
		return
	}
	u := &user{t: w.t, s: s}
	for turn := range turns {
		r := lease.Request{ID: fmt.Sprintf("%d-%d", who, turn), Keys: []string{fmt.Sprint("k", rng.IntN(3))},
			TTL: time.Duration(300+rng.IntN(3000)) * time.Millisecond}
		switch rng.IntN(4) {
		case 0:
			r.Wait = time.Duration(1+rng.IntN(5000)) * time.Millisecond
		case 1:
			r.Try = rng.IntN(2) == 0
		}
		// The callback judges at once: in it the grant begins to count.
		got := newResult(w.t)
		mine := &belief{who: who, session: s}
		s.Acquire(r, caller{got, func(l lease.Lease) {
			w.granted(mine, l)
		}})
		if rng.IntN(3) == 0 {
			select {
			case <-got.done:
			case <-time.After(time.Duration(rng.IntN(1500)) * time.Millisecond):
				w.over(mine) // a grant that comes yet is given back
				u.do(lease.Command{Verb: lease.Cancel, ID: r.ID}).wait()
			}
		}
		if _, err := got.wait(); err != nil || w.isOver(mine) {
			continue
		}
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			if l, err := u.do(lease.Command{Verb: lease.Renew, ID: r.ID}).wait(); err == nil {
				w.mu.Lock()
				mine.lease.Deadline = l.Deadline
				w.mu.Unlock()
			}
		}
		time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
		w.over(mine)
		if rng.IntN(4) > 0 {
			u.do(lease.Command{Verb: lease.Release, ID: r.ID}).wait()
		}
	}
	if err := <-u.closed(); err != nil {
		w.t.Logf("user %d: %v", who, err)
	}
}

// caller is a result whose grants are seen the moment they come.
type caller struct {
	*result
	seen func(lease.Lease)
}

func (c caller) Done(l lease.Lease, err error) {
	if err == nil {
		c.seen(l)
	}
	c.result.Done(l, err)
}

// trouble makes the network and the broker fail until stop is closed. It is for a
// synctest bubble.
func (w *world) trouble(rng *rand.Rand, restarts bool, stop chan struct{}) {
	kinds := 5
	if restarts {
		kinds = 7
	}
	away := errors.New("cut off")
	for {
		select {
		case <-stop:
			w.b.decide(nil)
			w.b.refuse(nil)
			return
		case <-time.After(time.Duration(rng.IntN(900)) * time.Millisecond):
		}
		switch rng.IntN(kinds) {
		case 0:
			w.b.cut()
		case 1:
			w.b.freeze()
		case 2:
			w.b.once(cutThere, rng.IntN(2) == 0, `"id"`)
		case 3:
			w.b.once(cutAfter, rng.IntN(2) == 0, `"id"`)
		case 4:
			w.b.refuse(away)
			if rng.IntN(2) == 0 {
				w.b.cut()
			}
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
			w.b.refuse(nil)
		case 5:
			w.b.stop()
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			w.b.start()
		case 6:
			w.b.crash()
			time.Sleep(time.Duration(rng.IntN(2000)) * time.Millisecond)
			w.b.start()
		}
	}
}

// Users, a network that fails in every way, and a durable broker that restarts:
// at no moment do two users believe that they hold one key, every call is
// answered once, and in the end nothing is left behind.
func TestChaos(t *testing.T) {
	seeds := 6
	if os.Getenv("LATCHKEY_SOAK") != "" {
		seeds = 500
	}
	first := rand.Uint64()
	if given := os.Getenv("LATCHKEY_SEED"); given != "" {
		var err error
		if first, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatal(err)
		}
		seeds = 2
	}
	for i := range seeds {
		seed := first + uint64(i)
		restarts := i%2 == 1
		var seen history.History
		t.Logf("LATCHKEY_SEED=%d, restarts %v", seed, restarts)
		bubble(t, func(t *testing.T) {
			w := &world{}
			w.run(t, seed, restarts, nil)
			if len(w.wrong) > 0 {
				t.Fatalf("seed %d, restarts %v: %s", seed, restarts, strings.Join(w.wrong, "\n"))
			}
			if w.grants < 10 {
				t.Fatalf("seed %d: %d grants prove little", seed, w.grants)
			}
			seen = w.rec.History()
		})
		if err := seen.Check(); err != nil {
			t.Fatalf("seed %d, restarts %v: %v", seed, restarts, err)
		}
	}
}

// The judge of TestChaos is seen to reject a broker that promises more time than
// it gives, one that ends sessions early and does not tell, and one whose tokens
// do not rise.
func TestChaosJudge(t *testing.T) {
	number := func(line, field, value string) string {
		return regexp.MustCompile(`"`+field+`":\d+`).ReplaceAllString(line, `"`+field+`":`+value)
	}
	for name, lie := range map[string]func(fromBroker bool, line string) string{
		"time": func(fromBroker bool, line string) string {
			if fromBroker {
				return number(line, "remaining", "3000")
			}
			return number(line, "ttl", "50")
		},
		"session": func(fromBroker bool, line string) string {
			switch {
			case !fromBroker:
				return number(line, "grace", "100")
			case strings.Contains(line, `"lost"`):
				return "\n" // no frame: the connection breaks, and the loss is not told
			}
			return number(line, "grace", "3000")
		},
		"token": func(_ bool, line string) string { return number(line, "token", "7") },
	} {
		bubble(t, func(t *testing.T) {
			w := &world{}
			w.run(t, rand.Uint64(), false, lie)
			if len(w.wrong) == 0 {
				t.Errorf("the judge did not notice that the broker lies about %s", name)
			}
		})
	}
}

// run is one run. It is for a synctest bubble.
func (w *world) run(t *testing.T, seed uint64, restarts bool, lie func(bool, string) string) {
	o := leaselocal.Options{}
	if restarts {
		o.Dir = t.TempDir()
	}
	w.t, w.b, w.beliefs, w.highest = t, newBroker(t, o), map[string]*belief{}, map[string]lease.Token{}
	w.b.lie = lie
	v, err := Dial(t.Context(), "memory", Options{Dial: w.b.dial})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	w.rec = history.Record(v)
	w.rec.CutOff()
	var users, trouble sync.WaitGroup
	for i := range 5 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		users.Add(1)
		go func() {
			defer users.Done()
			w.use(i, w.rec, rng, 20)
		}()
	}
	synctest.Wait()
	stop := make(chan struct{})
	trouble.Add(1)
	go func() {
		defer trouble.Done()
		w.trouble(rand.New(rand.NewPCG(seed, 99)), restarts, stop)
	}()
	users.Wait()
	close(stop)
	trouble.Wait()
	time.Sleep(10 * time.Second) // sessions whose goodbye was lost end
	synctest.Wait()
	for _, key := range []string{"k0", "k1", "k2"} {
		if h, n := w.b.holders(key), w.b.waiters(key); len(h)+n > 0 {
			w.wrong = append(w.wrong, fmt.Sprintf("%s is left with holders %v and %d waiters", key, h, n))
		}
	}
}
