package rmap_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// TestSimulation lets several maps on several links follow one server while everything fails that can: messages are
// lost, delayed, doubled and replayed, links are cut and frozen, questions are not answered, scans are slow, the log
// lies, the store goes back, loses everything, refuses, and its clock is set. A judge at each map checks all the time
// what is shown, and at the end that all copies equal the store. LATCHKEY_SEED runs one seed alone.
func TestSimulation(t *testing.T) {
	runs := uint64(100)
	if os.Getenv("LATCHKEY_SOAK") != "" {
		runs = 10_000
	} else if testing.Short() {
		runs = 40
	}
	if text := os.Getenv("LATCHKEY_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		return
	}
	first := rand.Uint64N(1 << 40)
	for seed := first; seed < first+runs && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		if t.Failed() {
			t.Logf("LATCHKEY_SEED=%d", seed)
		}
	}
}

// A simulation is one run. What is drawn depends on the seed alone, the order of what happens at the same moment does
// not.
type simulation struct {
	t      *testing.T
	s      *server
	links  []*link
	judges []*judge
	opts   rmap.Options[string, int]
	// silent runs lose no message, and the store goes back without a word. In the others messages are lost, and the
	// connections are when the store goes back: a store that goes back while it is read, over a line on which just that
	// is lost, and that stays, can deceive.
	silent bool
	steps  bool // the store's clock is set now and then

	mu   sync.Mutex // guards what follows
	r    *rand.Rand
	calm bool
	last rmap.Revision // of a write, for those who wait for it
}

const longest = 3 * time.Second // of a run, before it is quiet

func simulate(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	sim := &simulation{t: t, s: newServer(), r: r, silent: r.IntN(2) == 0, steps: r.IntN(4) == 0}
	sim.opts = rmap.Options[string, int]{
		Heartbeat: 150 * time.Millisecond, Timeout: 400 * time.Millisecond, ReloadJitter: 30 * time.Millisecond,
	}
	switch r.IntN(4) {
	case 0:
		sim.opts.TTL = time.Duration(200+r.IntN(1500)) * time.Millisecond
	case 1:
		sim.opts.TTL, sim.opts.Sliding = time.Duration(30+r.IntN(300))*time.Millisecond, true
	}
	if sim.opts.TTL > 0 {
		sim.s.life = &rmap.Lifetime{TTL: sim.opts.TTL, Sliding: sim.opts.Sliding}
	}
	for i := range 3 {
		l := newLink(sim.s)
		sim.links = append(sim.links, l)
		m, err := rmap.Join(t.Context(), l, "test", sim.opts)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		sim.judges = append(sim.judges, sim.judge(m, l, fmt.Sprintf("seed %d, map %d", seed, i)))
	}
	for _, l := range sim.links {
		l.set(sim.faults())
	}
	sim.run()
	sim.heal()
	// A failed comparison is tried again after two seconds at the latest.
	time.Sleep(3 * time.Second)
	synctest.Wait()
	for _, j := range sim.judges {
		j.settled()
	}
}

func (sim *simulation) judge(m *rmap.Map[string, int], l *link, who string) *judge {
	return &judge{t: sim.t, s: sim.s, l: l, m: m, who: who, beat: sim.opts.Heartbeat, worst: slowest, exact: !sim.steps, began: time.Now()}
}

// run has everybody at work until the time is over.
func (sim *simulation) run() {
	ctx, stop := context.WithCancel(context.Background())
	watching, unwatch := context.WithCancel(context.Background())
	sim.t.Cleanup(unwatch)
	var busy sync.WaitGroup
	for i, j := range sim.judges {
		go j.watch(watching, []int{2, 8, 0}[i])
		busy.Go(func() { sim.every(ctx, 5, j.look) })
		busy.Go(func() { sim.every(ctx, 25, func() { sim.write(ctx, j) }) })
		busy.Go(func() { sim.every(ctx, 60, func() { sim.ask(ctx, j) }) })
	}
	busy.Go(func() { sim.every(ctx, 40, sim.harm) })
	busy.Go(func() { sim.every(ctx, 300, func() { sim.visit(ctx) }) })
	time.Sleep(longest)
	stop()
	busy.Wait()
}

// every does something again and again, after a random while of at most some milliseconds.
func (sim *simulation) every(ctx context.Context, atMost int, do func()) {
	for ctx.Err() == nil && !sim.t.Failed() {
		pause(ctx, sim.upTo(atMost))
		do()
	}
}

// pause waits in a synctest bubble, and never for nothing: a timer that is due already is run by the goroutine that looks at
// it, and two of these at once end the process when the race detector watches.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(max(d, 1))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (sim *simulation) draw(n int) int {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return sim.r.IntN(n)
}

func (sim *simulation) upTo(milliseconds int) time.Duration {
	return time.Duration(sim.draw(milliseconds*4+1)) * time.Millisecond / 4
}

// one tells whether something happens that does so once in n times. When all is to be calm, nothing does.
func (sim *simulation) one(n int) bool {
	sim.mu.Lock()
	defer sim.mu.Unlock()
	return !sim.calm && sim.r.IntN(n) == 0
}

// slowest is the longest that a message is under way.
const slowest = 30 * time.Millisecond

func (sim *simulation) faults() faults {
	return faults{
		change: func(rmap.Change) []time.Duration {
			d := sim.delay()
			switch {
			case !sim.silent && sim.one(25):
				return nil
			case sim.one(25):
				return []time.Duration{d, d + sim.delay()/2}
			}
			return []time.Duration{d}
		},
		head: func(ctx context.Context, answered bool) error {
			pause(ctx, sim.delay())
			switch {
			case answered:
			case sim.one(30):
				return unavailable("a fault")
			case sim.one(30):
				<-ctx.Done()
			case sim.one(20):
				pause(ctx, sim.upTo(90))
			}
			return context.Cause(ctx)
		},
		chunk: func(ctx context.Context, i int) error {
			pause(ctx, sim.delay())
			if sim.one(4) {
				sim.s.mustWrite(rmap.Op{Do: rmap.DoSet, Key: sim.key(), Value: rmap.Value{Kind: rmap.Integer, Data: itoa(sim.draw(1000))}})
			}
			if sim.one(20) {
				sim.harm()
			}
			if sim.one(40) {
				return unavailable("a fault")
			}
			return nil
		},
		since: sim.since,
		write: func(ctx context.Context, done bool) error {
			pause(ctx, sim.delay())
			switch {
			case ctx.Err() != nil || sim.one(60):
				return fmt.Errorf("%w: a fault", rmap.ErrUnknown)
			case !done && sim.one(60):
				return unavailable("a fault")
			case sim.one(60):
				<-ctx.Done()
				return fmt.Errorf("%w: %w", rmap.ErrUnknown, context.Cause(ctx))
			}
			return nil
		},
	}
}

// delay is how long a message is under way: mostly hardly any time.
func (sim *simulation) delay() time.Duration {
	if sim.one(15) {
		return sim.upTo(int(slowest.Milliseconds()))
	}
	if sim.one(3) {
		return 0
	}
	return sim.upTo(2)
}

func (sim *simulation) since(ctx context.Context, changes []rmap.Change) ([]rmap.Change, error) {
	pause(ctx, sim.delay())
	switch n := len(changes); {
	case sim.one(15):
		return nil, unavailable("a fault")
	case sim.one(10):
		return nil, nil
	case n > 0 && sim.one(8):
		return changes[1+sim.draw(n):], nil // cut off in front, which is a lie
	case n > 0 && sim.one(8):
		return changes[:sim.draw(n)], nil
	}
	return changes, nil
}

func (sim *simulation) key() string { return "k" + itoa(sim.draw(10)) }

// write does one write through a map, and has the others know its revision.
func (sim *simulation) write(ctx context.Context, j *judge) {
	called := time.Now()
	r, err := sim.change(ctx, j)
	if err == nil && !r.IsZero() {
		sim.mu.Lock()
		sim.last = r
		sim.mu.Unlock()
	}
	if err != nil && rmap.OutcomeOf(err) == rmap.Unknown && !errors.Is(err, rmap.ErrUnknown) {
		j.fail("a write failed with %v, which is no WriteError", err)
	}
	if rmap.OutcomeOf(err) == rmap.AppliedNotSeen && !j.s.follows(r, r) {
		j.fail("a write was applied as %v, which the store never had (called %v ago)", r, time.Since(called))
	}
}

func (sim *simulation) change(ctx context.Context, j *judge) (r rmap.Revision, err error) {
	m, key, v := j.m, sim.key(), sim.draw(1000)
	called := time.Now()
	switch sim.draw(14) {
	case 0, 1:
		return m.SetTTL(ctx, key, v, time.Duration(1+sim.draw(400))*time.Millisecond)
	case 2, 3:
		return m.Delete(ctx, key)
	case 4:
		_, r, err = rmap.Inc(ctx, m, key, v)
	case 5:
		_, r, err = m.Update(ctx, key, func(old int, _ bool) (int, error) { return old + 1, nil })
	case 6:
		old, _ := m.Get(key)
		return m.CompareAndSet(ctx, key, old, v)
	case 7:
		return m.Batch().Set(key, v).Delete(sim.key()).SetTTL(sim.key(), v, 50*time.Millisecond).Write(ctx)
	case 8:
		return m.Batch().IfAbsent(key).SetKeepTTL(sim.key(), v).Write(ctx)
	case 9:
		if sim.one(5) {
			return m.Reset(ctx)
		}
		if sim.one(5) {
			return m.Destroy(ctx)
		}
		return m.SetIfAbsent(ctx, key, v)
	case 10:
		r, err = m.SetAndWait(ctx, key, v)
		if err == nil || rmap.OutcomeOf(err) == rmap.AppliedNotSeen {
			j.waited(r, called, err)
		}
	default:
		return m.Set(ctx, key, v)
	}
	return r, err
}

// ask has a map brought up to date.
func (sim *simulation) ask(ctx context.Context, j *judge) {
	if sim.draw(2) == 0 {
		_ = j.sync(ctx)
		return
	}
	sim.mu.Lock()
	r := sim.last
	sim.mu.Unlock()
	if !r.IsZero() {
		called := time.Now()
		j.waited(r, called, j.m.WaitFor(ctx, r))
	}
}

// visit joins, looks, and closes at any moment.
func (sim *simulation) visit(ctx context.Context) {
	l := newLink(sim.s)
	l.set(sim.faults())
	called := time.Now()
	m, err := rmap.Join(ctx, l, "test", sim.opts)
	if err != nil {
		if !errors.Is(err, rmap.ErrUnavailable) && !errors.Is(err, rmap.ErrFormat) && ctx.Err() == nil {
			sim.t.Errorf("Join: %v", err)
		}
		return
	}
	j := sim.judge(m, l, "a visitor")
	j.exact = false // what it knows of the server's clock may have come on a frozen line
	j.atLeast(m.Snapshot(), called, "after Join")
	var busy sync.WaitGroup
	busy.Go(func() { _ = j.sync(ctx) })
	for range sim.draw(20) {
		j.look()
		pause(ctx, sim.upTo(5))
	}
	m.Close()
	busy.Wait()
	j.isState(m.Snapshot())
}

// harm does one thing that is wrong with the world.
func (sim *simulation) harm() {
	l := sim.links[sim.draw(len(sim.links))]
	switch sim.draw(16) {
	case 0:
		l.cut()
	case 1, 2, 3, 4:
		l.connect()
	case 5:
		l.freeze(true)
		time.AfterFunc(sim.upTo(200), func() { l.freeze(false) })
	case 6:
		sim.back()
	case 7:
		if sim.one(3) {
			sim.s.rollback(rmap.Revision{}, sim.one(2))
		}
	case 8:
		if sim.one(3) {
			sim.s.refuse(fmt.Errorf("%w: a fault", rmap.ErrFormat))
			if sim.one(2) {
				l.unreadable(fmt.Errorf("%w: a fault", rmap.ErrFormat))
			}
			time.AfterFunc(sim.upTo(60), func() { sim.s.refuse(nil) })
		}
	case 9:
		l.unreadable(errors.New("a stray message"))
	case 10, 11:
		l.replay(sim.stale())
	case 12:
		if sim.steps {
			sim.s.setClock(int64(sim.draw(200) - 100))
		}
	}
}

// back has the store go back to some state of the past, as after a failover.
func (sim *simulation) back() {
	sim.s.mu.Lock()
	n := len(sim.s.reached)
	to := sim.s.reached[max(0, n-1-sim.draw(12))].at.rev
	sim.s.mu.Unlock()
	// What is read while a store goes there and back again without a word, nobody can tell from what is true.
	cut := !sim.silent || sim.s.revision().IsZero() || sim.s.undone(time.Now().Add(-time.Second))
	sim.s.rollback(to, cut)
}

// stale returns some change of the past.
func (sim *simulation) stale() rmap.Change {
	sim.s.mu.Lock()
	defer sim.s.mu.Unlock()
	st := sim.s.reached[sim.draw(len(sim.s.reached))].at
	if len(st.log) == 0 {
		return rmap.Change{Revision: rmap.Revision{Generation: 1, Number: 1, Nonce: 1}}
	}
	return st.log[sim.draw(len(st.log))]
}

// heal ends all faults.
func (sim *simulation) heal() {
	sim.mu.Lock()
	sim.calm = true
	sim.mu.Unlock()
	sim.s.refuse(nil)
	for _, l := range sim.links {
		l.freeze(false)
		l.connect()
	}
}
