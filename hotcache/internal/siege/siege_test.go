//go:build unix

package siege

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/proctest"
	"github.com/latchkey-go/latchkey/internal/redistest"
)

// A siege is a fleet, and what is done to it.
type siege struct {
	t       *testing.T
	random  *rand.Rand
	ledger  *ledger
	path    string // of the ledger
	base    *database
	nodes   []*node
	fleet   []*post
	strikes map[string]int
	away    time.Time     // the database is to be back then; zero when it is there
	since   time.Time     // it is away since then
	missed  time.Duration // how long it was away, all times together
	trust   time.Duration // of all processes
	pause   time.Duration // of writers
}

// A node is a Redis.
type node struct {
	*redistest.Server
	until time.Time // it is to be there again then; zero when it is
	hangs bool      // it is merely frozen
	old   bool      // it has saved something that it would come back with
}

// A post is the place of one process, which others take when it was killed.
type post struct {
	slot int
	*proctest.Forked
	links  []*link   // by node
	doomed bool      // it was told to die
	frozen time.Time // it is to go on then; zero when it goes on
}

// A link is the network between one process and one node.
type link struct {
	*redistest.Relay
	until time.Time // it is to be well again then; zero when it is
}

// envDose names how long the siege is to last, and envSeed what it draws from.
const (
	envDose = "LATCHKEY_SIEGE"
	envSeed = "LATCHKEY_SEED"
)

// dose is how long the siege lasts.
func dose(t *testing.T) time.Duration {
	if text := os.Getenv(envDose); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if os.Getenv("LATCHKEY_SOAK") != "" {
		return time.Minute
	}
	return 7 * time.Second
}

// TestSiege does everything at once to five processes, three Redis and the links between them, while they read and write.
func TestSiege(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(envSeed); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", envSeed, seed)
	s := newSiege(t, seed)
	defer s.complaints() // also when it comes to no good end
	span := dose(t)
	began := time.Now()
	for time.Since(began) < span && s.ledger.counted("complaints") == 0 {
		s.recover(false)
		if s.strikes[noDatabase] == 0 && time.Since(began) > span/2 {
			s.killDatabase() // once at least
		}
		s.strike()
		<-time.After(time.Duration(10+s.random.IntN(120)) * time.Millisecond)
	}
	s.recover(true)
	s.quiet()
	t.Logf("strikes: %v; the replica was behind by up to %v", s.strikes, time.Duration(s.base.most.Load()))
	t.Logf("in %v: %s", time.Since(began).Round(time.Millisecond), s.ledger.show())
	s.verdict(span - min(s.missed, span/2))
}

func newSiege(t *testing.T, seed uint64) *siege {
	s := &siege{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), path: filepath.Join(t.TempDir(), "ledger"), base: newDatabase(t),
		strikes: map[string]int{},
	}
	s.trust = []time.Duration{50, 250}[s.random.IntN(2)] * time.Millisecond
	s.pause = []time.Duration{15, 80}[s.random.IntN(2)] * time.Millisecond
	t.Logf("processes trust their memory for %v, and writers pause for up to %v", s.trust, s.pause)
	var err error
	if s.ledger, err = openLedger(s.path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.ledger.close(); err != nil {
			t.Error(err)
		}
	})
	for range nodes {
		s.nodes = append(s.nodes, &node{Server: redistest.Start(t, redistest.Options{})})
	}
	for slot := range slots {
		p := &post{slot: slot}
		for _, n := range s.nodes {
			p.links = append(p.links, &link{Relay: redistest.NewRelay(t, n.Addr())})
		}
		s.fleet = append(s.fleet, p)
		s.fork(p)
	}
	return s
}

// fork gives a post its next process.
func (s *siege) fork(p *post) {
	s.t.Helper()
	m := member{Slot: p.slot, Database: s.base.URL(), Ledger: s.path, Seed: s.random.Uint64(), Trust: s.trust, Pause: s.pause}
	for _, l := range p.links {
		m.Redis = append(m.Redis, l.Addr())
	}
	text, err := json.Marshal(m)
	if err != nil {
		s.t.Fatal(err)
	}
	p.frozen, p.doomed = time.Time{}, false
	s.ledger.dead(p.slot).Store(0)
	p.Forked = proctest.Fork(s.t, "member", string(text))
	p.Wants("begun")
}

// replace kills the process of a post, if it is still there, and gives it another.
func (s *siege) replace(p *post) {
	p.Kill()
	s.fork(p)
}

// strike does one thing at random.
func (s *siege) strike() {
	p := s.fleet[s.random.IntN(slots)]
	var what string
	switch x := s.random.IntN(100); {
	case x < 10:
		what = "kill pubsub"
		s.someNode(func(n *node) { n.KillPubSub() })
	case x < 45:
		what = s.disturb(p.links[s.random.IntN(nodes)])
	case x < 55:
		if !p.frozen.IsZero() {
			return
		}
		what = "stop"
		p.Freeze()
		p.frozen = s.in([]int{300, 600, 1800}[s.random.IntN(3)])
	case x < 58:
		what = "kill"
		s.replace(p)
	case x < 66:
		what = []string{"die commit", "die load"}[x%2]
		if p.frozen.IsZero() && !p.doomed {
			p.Tell(what)
			p.doomed = true
		}
	case x < 71:
		what = "lag"
		s.base.lag.Store(int64(leastLag) + s.random.Int64N(int64(300*time.Millisecond)))
	case x < 83:
		what = "evict"
		s.someNode(func(n *node) {
			key := n.Text("RANDOMKEY")
			data := strings.Contains(key, ":item:") || strings.Contains(key, ":copy:") || strings.Contains(key, ":load:")
			if data || s.random.IntN(8) == 0 {
				n.Do("DEL", key) // without floors the node begins a generation, which is not to happen all the time
			}
		})
	case x < 85:
		s.killDatabase()
	case x < 88:
		what = "rest"
		s.recover(true)
		<-time.After(time.Duration(s.random.IntN(1000)) * time.Millisecond)
	default:
		if s.random.IntN(3) == 0 {
			s.someNode(func(n *node) { what = s.lose(n) })
		}
	}
	if what != "" {
		s.strikes[what]++
	}
}

const noDatabase = "database away"

// killDatabase takes away the one thing that every load and every write needs, for a while.
func (s *siege) killDatabase() {
	if !s.away.IsZero() {
		return
	}
	s.strikes[noDatabase]++
	s.ledger.count("database kills", 1)
	s.base.away()
	s.away = s.in(1500)
	s.since = time.Now()
}

func (s *siege) in(most int) time.Time {
	return time.Now().Add(time.Duration(s.random.IntN(most)) * time.Millisecond)
}

// someNode does something to a node that answers.
func (s *siege) someNode(do func(n *node)) {
	if n := s.nodes[s.random.IntN(nodes)]; n.until.IsZero() {
		do(n)
	}
}

// disturb does something to a link. Short freezes in one direction are delays in one direction.
func (s *siege) disturb(l *link) string {
	if !l.until.IsZero() {
		return ""
	}
	l.until = s.in(600)
	switch x := s.random.IntN(10); {
	case x < 2:
		l.Cut()
		return "cut"
	case x < 4:
		l.Sever()
		return "sever"
	case x < 6:
		l.Delay(time.Duration(s.random.IntN(60)) * time.Millisecond)
		return "delay"
	}
	if s.random.IntN(2) == 0 {
		l.until = s.in(100)
	}
	way := s.random.IntN(3)
	l.Freeze([]redistest.Direction{redistest.Both, redistest.Requests, redistest.Replies}[way])
	return []string{"silence", "hold requests", "hold replies"}[way]
}

// lose has a node lose what it had, or be away.
func (s *siege) lose(n *node) string {
	switch s.random.IntN(6) {
	case 0:
		n.Do("FLUSHALL")
		return "flush"
	case 1:
		n.Restart()
		return "restart"
	case 2:
		n.Do("SAVE") // it comes back with what it has now, whenever that is
		n.old = true
		return "save"
	case 3, 4:
		n.Freeze()
		n.hangs, n.until = true, s.in(2500)
		return "hang"
	}
	n.Kill()
	n.until = s.in(2500)
	return "away"
}

// recover ends what has lasted long enough, or everything, and replaces those who have died.
func (s *siege) recover(all bool) {
	over := func(until time.Time) bool { return !until.IsZero() && (all || time.Now().After(until)) }
	if over(s.away) {
		s.base.back()
		s.ledger.count("database is back", 1)
		s.away = time.Time{}
		s.missed += time.Since(s.since)
	}
	for _, n := range s.nodes {
		if over(n.until) {
			if n.hangs {
				n.Thaw()
			} else {
				n.Restart()
			}
			n.until, n.hangs = time.Time{}, false
		}
	}
	for _, p := range s.fleet {
		for _, l := range p.links {
			if over(l.until) {
				l.Restore()
				l.Thaw()
				l.Delay(0)
				l.until = time.Time{}
			}
		}
		if over(p.frozen) {
			p.Thaw()
			p.frozen = time.Time{}
		}
		if s.ledger.dead(p.slot).Load() != 0 {
			s.replace(p)
		}
	}
	if all {
		s.base.lag.Store(int64(leastLag))
	}
}

// complaints fails the test for every complaint.
func (s *siege) complaints() {
	data, err := os.ReadFile(s.path + ".complaints")
	if err != nil {
		s.t.Error(err)
	}
	if len(data) > 0 {
		s.t.Errorf("%d complaints:\n%.6000s", s.ledger.counted("complaints"), data)
	}
}

// verdict fails the test when there were too many loads, and when too little happened to judge by.
func (s *siege) verdict(span time.Duration) {
	// At most one load of each row holds its lease, and so many go past nodes that are out.
	if n := s.ledger.counted("most loads at a time"); n > keys+maxDirect {
		s.t.Errorf("%d loads at a time in one process", n)
	}
	for _, name := range []string{"database kills", "answers without the database", "loads without the database", "writes without the database"} {
		if s.ledger.counted(name) == 0 {
			s.t.Errorf("%s: none, which is too little to judge by", name)
		}
	}
	for name, n := range map[string]float64{ // in a second; the tests may have a slow machine
		"reads": 100, "writes": 2, "by memory": 20, "by copy": 0.1, "by home": 5, "loads of the replica": 0.1, "loads of the primary": 1,
		"told by relays": 0.5, "by losses": 0.1,
	} {
		if got := s.ledger.counted(name); float64(got) < n*span.Seconds() {
			s.t.Errorf("%s: %d in %v, which is too little to judge by", name, got, span)
		}
	}
}
