package lmx_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
)

// rwPlan is one run: which clients there are, and what goes wrong.
type rwPlan struct {
	kinds   []*rwKind
	shared  int  // tasks of a client, at most
	cuts    bool // connections break
	forces  bool // somebody forces base locks open
	hurried bool // locks are asked for again soon, and given up soon
	expires bool // base locks expire
	plant   rwPlant
}

// run lets readers and writers loose as a seed says, and returns the world for a
// look at what came of it.
func (p rwPlan) run(t *testing.T, seed uint64) *rwWorld {
	t.Helper()
	w := newRWWorld(t, p.plant)
	r := rand.New(rand.NewPCG(seed, 25))
	var tasks sync.WaitGroup
	stop := make(chan struct{})
	var links []*rwCurrent
	for i := range 2 + r.IntN(3) {
		c := &rwClient{world: w, name: fmt.Sprintf("c%d", i), kind: p.kinds[r.IntN(len(p.kinds))],
			lockTimeout: time.Hour, ttl: 10 * time.Minute}
		if p.hurried {
			c.lockTimeout = []time.Duration{3 * time.Second, 300 * time.Millisecond, 70 * time.Millisecond}[r.IntN(3)]
		}
		if p.expires {
			c.ttl = []time.Duration{7050 * time.Millisecond, 40 * time.Millisecond, 4 * time.Millisecond}[r.IntN(3)]
		}
		cur := &rwCurrent{link: c.connect()}
		links = append(links, cur)
		for j := range 1 + r.IntN(p.shared) {
			name := fmt.Sprintf("%s.%d", c.name, j)
			seed := r.Uint64()
			tasks.Go(func() { c.work(cur, name, rand.New(rand.NewPCG(seed, 27))) })
		}
		if p.cuts && r.IntN(2) == 0 {
			seed := r.Uint64()
			w.running.Go(func() { c.breakdowns(cur, rand.New(rand.NewPCG(seed, 26)), stop) })
		}
	}
	if p.forces {
		seed := r.Uint64()
		w.running.Go(func() { w.forcing(rand.New(rand.NewPCG(seed, 24)), stop) })
	}
	w.finish(&tasks, stop)
	for _, cur := range links {
		cur.end()
	}
	tasks.Wait()
	return w
}

// rwCurrent is the connection that a client has now.
type rwCurrent struct {
	mu   sync.Mutex // guards what follows
	link *rwLink
	over bool
}

func (c *rwCurrent) get() *rwLink {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link
}

func (c *rwCurrent) set(l *rwLink) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link = l; c.over {
		l.cut()
	}
}

func (c *rwCurrent) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	c.link.cut()
}

// work does some reads and writes.
func (c *rwClient) work(cur *rwCurrent, name string, r *rand.Rand) {
	for i := range 1 + r.IntN(4) {
		l := cur.get()
		t := &rwTask{rwLink: l, rand: r, name: fmt.Sprintf("%s.%d", name, i), key: []string{"a", "b"}[r.IntN(4)/3], write: r.IntN(3) == 0}
		t.pause()
		if errors.Is(t.once(time.Duration(r.IntN(60_000))*time.Microsecond), errGone) {
			cur.mu.Lock()
			over := cur.over
			cur.mu.Unlock()
			if over {
				return
			}
			pass(time.Duration(r.IntN(30_000)) * time.Microsecond)
		}
	}
}

// breakdowns breaks the connection of a client now and then.
func (c *rwClient) breakdowns(cur *rwCurrent, r *rand.Rand, stop <-chan struct{}) {
	for range 3 {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.IntN(200_000)) * time.Microsecond):
		}
		l := cur.get()
		if r.IntN(3) == 0 { // the broker breaks it, once told
			l.beCut([]string{"end", "destroy"}[r.IntN(2)] + "-connection-from-broker-for-testing-purposes")
		} else {
			l.cut()
		}
		pass(time.Duration(r.IntN(20_000)) * time.Microsecond)
		cur.set(c.connect())
	}
}

// forcing forces base locks open now and then.
func (w *rwWorld) forcing(r *rand.Rand, stop <-chan struct{}) {
	c := &rwClient{world: w, name: "admin", kind: rwOld}
	t := &rwTask{rwLink: c.connect(), rand: r, name: "admin"}
	defer t.cut()
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.IntN(50_000)) * time.Microsecond):
		}
		if err := t.unlock([]string{"a", "b"}[r.IntN(2)], "", nil); err != nil && !errors.Is(err, errGone) {
			w.failf("force: %v", err)
		}
		t.step("rests")
	}
}

// rwSeeds is how many runs a test makes.
func rwSeeds() int {
	switch {
	case os.Getenv("LATCHKEY_SOAK") != "":
		return 4000
	case testing.Short():
		return 20
	}
	return 100
}

// check runs a plan for many seeds. Together they must have done something.
func (p rwPlan) check(t *testing.T) {
	t.Helper()
	total := map[bool]int{}
	beside := 0
	for seed := range rwSeeds() {
		synctest.Test(t, func(t *testing.T) {
			w := p.run(t, uint64(seed))
			w.mu.Lock()
			defer w.mu.Unlock()
			total[true] += w.entered[true]
			total[false] += w.entered[false]
			beside += w.beside
			if len(w.faults) > 0 {
				t.Errorf("seed %d:\n%s", seed, strings.Join(w.faults, "\n"))
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("%d writers and %d readers entered, %d of them beside others", total[true], total[false], beside)
	if total[true] == 0 || beside == 0 {
		t.Error("the runs show nothing")
	}
}

// Readers and writers exclude one another, whichever the clients are, whatever
// happens to their connections and base locks, and all of them get in.
func TestReadersWritersModel(t *testing.T) {
	plans := map[string]rwPlan{
		"0.2.25":                 {kinds: []*rwKind{rwOld}, shared: 1},
		"0.2.27":                 {kinds: []*rwKind{rwNew}, shared: 1},
		"mixed":                  {kinds: []*rwKind{rwOld, rwNew}, shared: 3},
		"breakdowns":             {kinds: []*rwKind{rwOld, rwNew}, shared: 3, cuts: true},
		"hurried":                {kinds: []*rwKind{rwOld, rwNew}, shared: 3, hurried: true, expires: true},
		"preferring":             {kinds: []*rwKind{rwPref}, shared: 3},
		"preferring, breakdowns": {kinds: []*rwKind{rwPref}, shared: 3, cuts: true},
		"preferring, hurried":    {kinds: []*rwKind{rwPref}, shared: 3, hurried: true},
		"preferring, all":        {kinds: []*rwKind{rwPref}, shared: 4, cuts: true, hurried: true},
		"all at once":            {kinds: []*rwKind{rwOld, rwNew}, shared: 4, cuts: true, forces: true, hurried: true, expires: true},
	}
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		t.Run(name, func(t *testing.T) { plans[name].check(t) })
	}
}

// A writer gets in although readers come without end, so that there is never none
// inside: new ones stand behind it.
func TestReadersDoNotStarveWriters(t *testing.T) {
	for _, kinds := range [][2]*rwKind{{rwOld, rwOld}, {rwNew, rwNew}, {rwOld, rwNew}, {rwNew, rwOld}} {
		t.Run(kinds[0].name+" among "+kinds[1].name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newRWWorld(t, rwPlant{})
				var tasks sync.WaitGroup
				stop := make(chan struct{})
				const reading = 20 * time.Millisecond
				for i := range 5 {
					c := &rwClient{world: w, name: fmt.Sprint("r", i), kind: kinds[1], lockTimeout: time.Hour, ttl: time.Hour}
					r := &rwTask{rwLink: c.connect(), name: c.name, rand: rand.New(rand.NewPCG(1, uint64(i))), key: "k"}
					tasks.Go(func() {
						defer r.cut()
						for begun := time.Now(); time.Since(begun) < 20*time.Second; {
							select {
							case <-stop:
								return
							default:
								r.once(reading)
							}
						}
					})
				}
				pass(100 * time.Millisecond)
				c := &rwClient{world: w, name: "w", kind: kinds[0], lockTimeout: time.Hour, ttl: time.Hour}
				writer := &rwTask{rwLink: c.connect(), name: "w", rand: rand.New(rand.NewPCG(2, 0)), key: "k", write: true}
				defer writer.cut()
				for range 5 {
					begun := time.Now()
					if err := writer.once(time.Millisecond); err != nil {
						t.Error(err)
					}
					// Those inside leave, and there are a few steps of some milliseconds.
					if took := time.Since(begun); took > 10*reading {
						t.Errorf("a writer was let in after %v, readers read for %v", took, reading)
					}
				}
				close(stop)
				tasks.Wait()
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.faults) > 0 || w.beside < 20 {
					t.Errorf("%d readers entered beside others; %s", w.beside, strings.Join(w.faults, "\n"))
				}
			})
		})
	}
}

// A question that waits gives up all base locks of its connection on the key, since
// it does not say which one is its own. Were it only the newest, that could be one
// whose reader has ended already, and the writer inside could not come to its end
// before the other expires.
func TestQuestionGivesUpAllBaseLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broker := newRWWorld(t, rwPlant{})
		w := &lmxtest.World{T: t, Connect: func() (net.Conn, error) { return broker.dial(), nil }}
		tell := func(c *lmxtest.Client, kind string) (id string) {
			id = w.ID()
			c.Send(lmxtest.Frame{"type": kind, "uuid": id, "key": "k"})
			return id
		}
		writer, readers := w.Dial().Version("0.2.25"), w.Dial().Version("0.2.27")
		in, _ := w.Hold(writer, "k", lmxtest.Frame{"max": 1, "ttl": 30})
		var base [2]string
		for i := range base {
			readers.Expect(tell(readers, "register-write-flag-check"))
			base[i] = w.Queue(readers, "k", lmxtest.Frame{"max": 10})
		}
		w.Granted(readers, base[0]) // the writer's has expired
		w.Granted(readers, base[1])
		readers.Expect(tell(readers, "increment-readers")) // of the second one
		asked := tell(writer, "register-write-flag-and-readers-check")
		w.Quiet(writer)
		readers.Expect(tell(readers, "decrement-readers"))
		writer.Expect(asked)
		w.Release(writer, "k", in)
		asked = tell(readers, "increment-readers") // of the first one
		w.Quiet(readers)
		out, _ := w.Hold(writer, "k", lmxtest.Frame{"max": 1})
		writer.Expect(tell(writer, "set-write-flag-false-and-broadcast"))
		w.Release(writer, "k", out)
		readers.Expect(asked)
		w.Release(readers, "k", base[1])
		readers.Expect(tell(readers, "decrement-readers"))
		w.Release(readers, "k", base[0])
	})
}
