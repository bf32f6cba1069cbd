package core

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sort"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// zipf draws ranks whose chance falls as rank^-skew, for any skew; that of the standard library wants one above 1.
type zipf struct {
	r   *rand.Rand
	sum []float64
}

func newZipf(r *rand.Rand, skew float64, n int) *zipf {
	z := &zipf{r: r, sum: make([]float64, n)}
	total := 0.0
	for i := range z.sum {
		total += math.Pow(float64(i+1), -skew)
		z.sum[i] = total
	}
	return z
}

func (z *zipf) draw() int {
	return sort.SearchFloat64s(z.sum, z.r.Float64()*z.sum[len(z.sum)-1])
}

// A fleet is processes and nodes that really decide, with answers that come at once as far as their order goes, and take
// a while as far as the processes can tell.
type fleet struct {
	t      testing.TB
	r      *rand.Rand
	now    time.Duration
	took   func(node int) time.Duration // how long an answer takes
	times  Times                        // of what is loaded
	ring   *Ring
	homes  []*Home
	copies []map[string]Copy
	front  []*Front
	hot    []*Hot // of each process; empty without hot keys
	cut    bool   // reports are not delivered
	set    string // what was saved last

	load    []int // questions that each node answered
	loads   int
	loadsOf map[string]int
	puts    int
	served  map[Outcome]int
	version Version
}

func newFleet(t testing.TB, seed uint64, nodes, processes, copies int) *fleet {
	f := &fleet{
		t: t, r: rand.New(rand.NewPCG(seed, 7)), load: make([]int, nodes), served: map[Outcome]int{}, loadsOf: map[string]int{},
		took:  func(int) time.Duration { return 200 * time.Microsecond },
		times: Times{time.Hour, 2 * time.Hour, 2 * time.Hour}, version: 1,
	}
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprint("node", i)
		f.homes = append(f.homes, NewHome(0, DefaultRules(), f.r))
		f.copies = append(f.copies, map[string]Copy{})
	}
	f.ring = NewRing(names)
	for range processes {
		f.join(copies)
	}
	return f
}

// join has another process begin.
func (f *fleet) join(copies int) {
	set := Settings{
		Rules: DefaultRules(), Trust: 365 * 24 * time.Hour, Tries: 3, MaxDirect: 10, MaxWaiting: 10, BreakAfter: 3,
		BreakFor: time.Second, FirstPause: time.Second, LastPause: time.Second, Home: f.ring.Owner,
	}
	if copies > 0 {
		h := NewHot(f.now, HotSettings{
			Me: fmt.Sprintf("p%02d", len(f.front)), Ring: f.ring, Copies: copies, Share: 0.002, Window: time.Second,
		}, f.r)
		f.hot = append(f.hot, h)
		set.Hot = h
	}
	front := NewFront(f.ring.Len(), set, f.r)
	for node, home := range f.homes {
		front.Met(f.now, node, feed.Position{}, home.At(), f.now)
	}
	f.front = append(f.front, front)
}

// read has a process read a key, and returns the version that it got and from where.
func (f *fleet) read(process int, key string) (version Version, from Outcome) {
	if len(f.hot) > 0 {
		f.hot[process].Count(key, 1)
	}
	front := f.front[process]
	at := f.now // the read's own time: answers take a while, and other reads need not wait for it
	todo := front.Read(at, 1, key, 0)
	for len(todo) > 0 {
		a := todo[0]
		todo = todo[1:]
		switch a.Do {
		case DoAsk:
			f.load[a.Node]++
			answer := f.homes[a.Node].Ask(at, a.Ask)
			at += f.took(a.Node)
			todo = append(todo, front.Answered(at, a.Op, answer, nil)...)
		case DoCopy:
			f.load[a.Node]++
			var copied *Copy
			if c, ok := f.copies[a.Node][a.Key]; ok {
				c.Times = c.Times.Minus(at)
				copied = &c
			}
			at += f.took(a.Node)
			todo = append(todo, front.Copied(at, a.Op, a.Node, copied, nil)...)
		case DoPutCopy:
			f.puts++
			c := a.Copy
			c.Times = c.Times.Minus(-at)
			f.copies[a.Node][a.Key] = c
		case DoLoad:
			f.loads++
			f.loadsOf[a.Key]++
			todo = append(todo, front.Loaded(at, a.Op, Item{Version: f.version, Data: []byte("v")}, f.times, nil)...)
		case DoFill:
			r, _ := f.homes[a.Node].Fill(at, a.Fill)
			todo = append(todo, front.Filled(at, a.Op, r, nil)...)
		case DoServe:
			if a.Err != nil {
				f.t.Fatal(a.Err)
			}
			version, from = a.Item.Version, a.Outcome
			f.served[a.Outcome]++
		}
	}
	return version, from
}

// invalidate makes a new version and tells everybody, as a strict writer does.
func (f *fleet) invalidate(key string) {
	f.version++
	home := f.ring.Owner(key)
	inv, _ := f.homes[home].Invalidate(f.now, key, f.version)
	for _, front := range f.front {
		front.Invalidated(f.now, home, inv)
	}
}

// pass lets time go on, and reports from one process to the others.
func (f *fleet) pass(d time.Duration) {
	f.now += d
	for i, h := range f.hot {
		if f.now < h.Next() {
			continue
		}
		news := h.Tick(f.now)
		if news.Set != nil {
			f.set = news.Set.String()
		}
		if news.Report == nil || f.cut {
			continue
		}
		r, err := ParseReport(news.Report.String())
		if err != nil {
			f.t.Fatalf("process %d sent %q: %v", i, news.Report, err)
		}
		for _, other := range f.hot {
			other.Hear(f.now, r)
		}
	}
}

// uneven returns how much more the busiest node has to do than all have on average.
func (f *fleet) uneven() float64 {
	most, sum := 0, 0
	for _, n := range f.load {
		most, sum = max(most, n), sum+n
	}
	return float64(most) * float64(len(f.load)) / float64(sum)
}

// TestBalance reads as the tables of other caches do: 800 000 reads of 50 000 keys by 8 processes from 16 nodes, or,
// outside a soak, the first of them.
func TestBalance(t *testing.T) {
	reads, ways := 150_000, []int{0, 8}
	if os.Getenv("LATCHKEY_SOAK") != "" {
		reads, ways = 800_000, []int{0, 2, 4, 8, 16}
	}
	for _, row := range []struct{ skew, most float64 }{{0.99, 1.2}, {1.2, 1.35}} {
		t.Run(fmt.Sprint(row.skew), func(t *testing.T) {
			loads := map[int]int{}
			for _, copies := range ways {
				f := newFleet(t, 1, 16, 8, copies)
				noise := rand.New(rand.NewPCG(9, 9))
				f.took = func(int) time.Duration {
					return time.Duration((0.5 + noise.ExpFloat64()) * float64(200*time.Microsecond))
				}
				keys := newZipf(rand.New(rand.NewPCG(3, 4)), row.skew, 50_000)
				for range reads {
					f.read(f.r.IntN(8), fmt.Sprint("key", keys.draw()))
					f.pass(10 * time.Microsecond)
				}
				loads[copies] = f.loads
				n := 0
				if copies > 0 {
					n = f.hot[0].Len()
				}
				t.Logf("%d copies: max/mean %.3f, %d loads, %d hot keys, %d puts of copies, served %v", copies, f.uneven(), f.loads, n, f.puts, f.served)
				if copies < 8 {
					continue
				}
				if f.uneven() > row.most {
					t.Errorf("%d copies: max/mean is %.3f, the limit is %.2f", copies, f.uneven(), row.most)
				}
				if float64(f.loads) > 1.02*float64(loads[0]) {
					t.Errorf("%d copies: %d loads, %d without", copies, f.loads, loads[0])
				}
			}
		})
	}
}

// warmUp has everybody read a few hot keys and many others for three seconds, so that the hot ones have their copies.
func (f *fleet) warmUp() {
	for range 30_000 {
		f.readSome()
		f.pass(100 * time.Microsecond)
	}
	for i, h := range f.hot {
		if h.Len() < 5 {
			f.t.Fatalf("process %d knows %d hot keys, want 5", i, h.Len())
		}
	}
}

func (f *fleet) readSome() {
	key := fmt.Sprint("hot", f.r.IntN(5))
	if f.r.IntN(2) == 0 {
		key = fmt.Sprint("cold", f.r.IntN(5000))
	}
	f.read(f.r.IntN(len(f.front)), key)
}

// TestInvalidatedCopies writes a hot key again and again: whoever reads it next gets the new version, and the home is not
// asked by all for what one has loaded.
func TestInvalidatedCopies(t *testing.T) {
	f := newFleet(t, 2, 16, 8, 8)
	f.warmUp()
	f.served = map[Outcome]int{}
	loads, home := f.loads, f.ring.Owner("hot1")
	const writes, reads = 200, 50
	asked := f.load[home]
	for range writes {
		f.invalidate("hot1")
		for range reads {
			if v, from := f.read(f.r.IntN(8), "hot1"); v != f.version {
				t.Fatalf("version %d was read from %v after %d had been written", v, from, f.version)
			}
		}
	}
	if n := f.loads - loads; n != writes {
		t.Errorf("%d loads after %d writes", n, writes)
	}
	// Of eight nodes the home answers its part, and the first read after a write.
	if n := float64(f.load[home]-asked) / writes; n > 1+reads/8*1.5 {
		t.Errorf("after a write the home is asked %.1f times in %d reads; %v", n, reads, f.served)
	}
}

// TestCopiesAreRefreshed lets items pass their soft time under load: copies are served on, one process loads, and the
// home is not asked more than before. Copies that are lost come back.
func TestCopiesAreRefreshed(t *testing.T) {
	f := newFleet(t, 3, 16, 8, 8)
	f.times = Times{Soft: 2 * time.Second, Hard: 6 * time.Second, Keep: 6 * time.Second}
	f.warmUp()
	f.served = map[Outcome]int{}
	loads := f.loadsOf["hot1"]
	for i := range f.load {
		f.load[i] = 0
	}
	const seconds = 20
	for i := range seconds * 10_000 {
		f.read(f.r.IntN(8), "hot1")
		if i%10 == 0 {
			f.readSome()
		}
		f.pass(100 * time.Microsecond)
		if i%50_000 == 25_000 {
			for node := range f.copies {
				clear(f.copies[node])
			}
		}
	}
	if n := f.loadsOf["hot1"] - loads; n < seconds/2-1 || n > seconds/2+1 {
		t.Errorf("what is good for two seconds was loaded %d times in %d", n, seconds)
	}
	if owner := f.ring.Owner("hot1"); f.load[owner] > 2*seconds*10_000/8 {
		t.Errorf("of %d reads the home answered %d", seconds*10_000, f.load[owner])
	}
	if f.served[FromCopy] < seconds*10_000*6/10 || f.served[Stale] > 0 {
		t.Errorf("reads were answered by %v", f.served)
	}
	if u := f.uneven(); u > 2.4 { // nearly all is one key, on eight of sixteen nodes
		t.Errorf("max/mean is %.2f", u)
	}
}

// TestLostPutIsMadeUp drops the copies that are put when a hot key is refreshed: one process after the other, not all at
// once, asks the home for another.
func TestLostPutIsMadeUp(t *testing.T) {
	f := newFleet(t, 4, 16, 8, 8)
	f.times = Times{Soft: 5 * time.Second, Hard: time.Minute, Keep: time.Minute}
	f.warmUp()
	old := make([]Copy, len(f.copies))
	for node := range f.copies {
		old[node] = f.copies[node]["hot1"]
	}
	refreshed := func() (n int) {
		for node := range f.copies {
			if c, ok := f.copies[node]["hot1"]; ok && c.Times.Soft > f.now {
				n++
			}
		}
		return n
	}
	loads, lost := f.loads, false
	for f.now < 12*time.Second {
		f.read(f.r.IntN(8), "hot1")
		f.pass(100 * time.Microsecond)
		if f.loads > loads && !lost {
			lost = true
			for node := range f.copies {
				if old[node].Item.Version != 0 {
					f.copies[node]["hot1"] = old[node]
				}
			}
			if n := refreshed(); n != 0 {
				t.Fatalf("%d copies are good, which were to be lost", n)
			}
			f.puts = 0
		}
		if lost && refreshed() == 7 {
			break
		}
	}
	if n := refreshed(); !lost || n != 7 {
		t.Fatalf("%d of 7 copies came back, lost is %v", n, lost)
	}
	if f.puts > 3*7 {
		t.Errorf("%d copies were put for 7", f.puts)
	}
}
