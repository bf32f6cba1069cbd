package rmapredis_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/proctest"
	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// A siege is a server with writers and readers around it, and what it does to them.
type siege struct {
	*world
	random  *rand.Rand
	relays  []*redistest.Relay // each is that of one process
	heal    []time.Time        // when the relay is to be well again; zero when it is
	frozen  *proctest.Forked
	thaw    time.Time
	readers []*proctest.Forked
	own     *replica // for resets and the like
	dump    string   // of the map, to be set back to
	losses  []loss
	counts  map[string]int
}

// TestSoak does everything at once to eight writers and several readers, and judges every look that the readers took:
// no view mixes two lives of the map, and a view without a finished write was known to be that old. After that, all
// copies are what is stored.
func TestSoak(t *testing.T) {
	span := 5 * time.Second
	if os.Getenv("LATCHKEY_SOAK") != "" {
		span = time.Minute
	}
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv("LATCHKEY_SEED"); text != "" {
		seed = number(t, text)
	}
	t.Logf("LATCHKEY_SEED=%d", seed)
	w := newWorld(t)
	w.Server = redistest.Start(t, redistest.Options{Config: []string{"client-output-buffer-limit pubsub 1mb 512kb 1"}})
	s := &siege{world: w, random: rand.New(rand.NewPCG(seed, 0)), counts: make(map[string]int)}
	s.own = w.joinOver(w.Addr(), rmapredis.Options{Heartbeat: 200 * time.Millisecond}, eager())
	writers := s.begin()
	for end := time.Now().Add(span); time.Now().Before(end); {
		s.recover(false)
		s.strike()
		<-time.After(time.Duration(20+s.random.IntN(100)) * time.Millisecond)
	}
	s.recover(true)
	var writes []written
	for i, f := range writers {
		if n := number(t, f.Ask("stop")); n == 0 {
			t.Errorf("writer %d has written nothing", i)
		}
		f.Finish()
		writes = append(writes, lines[written](t, w.diary("w"+strconv.Itoa(i)))...)
	}
	shows := w.agreed(s.readers...)
	for i, f := range s.readers {
		stopped(t, f)
		t.Logf("reader %d: %+v", i, shows[i].Stats)
	}
	t.Logf("strikes: %v", s.counts)
	s.judge(writes)
}

// begin starts the processes. Two of the writers and all of the readers reach the server over relays.
func (s *siege) begin() (writers []*proctest.Forked) {
	addr := func() string {
		s.relays = append(s.relays, redistest.NewRelay(s.t, s.Addr()))
		s.heal = append(s.heal, time.Time{})
		return s.relays[len(s.relays)-1].Addr()
	}
	for i := range 4 {
		m := member{Name: "w" + strconv.Itoa(i), Loops: 2, Pause: 2 * time.Millisecond, Pong: 500 * time.Millisecond}
		if i%2 == 1 {
			m.Addr = addr()
		}
		writers = append(writers, s.fork("writer", m))
	}
	for i := range 3 {
		m := member{Name: "r" + strconv.Itoa(i), Addr: addr(), Pause: 5 * time.Millisecond, Heartbeat: 100 * time.Millisecond,
			Pong: 300 * time.Millisecond}
		s.readers = append(s.readers, s.fork("reader", m))
	}
	for _, f := range append(append([]*proctest.Forked(nil), writers...), s.readers...) {
		f.Wants("joined")
		f.Tell("go")
	}
	return writers
}

// strike does one thing at random.
func (s *siege) strike() {
	what := []string{"kill", "kill", "cut", "freeze", "delay", "sever", "stop", "swell", "expire", "flush", "restart", "dump",
		"dump", "back", "reset", "destroy", "fade"}[s.random.IntN(17)]
	switch what {
	case "kill":
		s.KillPubSub()
	case "cut", "freeze", "delay", "sever":
		s.disturb(what)
	case "stop":
		if s.frozen != nil {
			return
		}
		s.frozen = s.readers[s.random.IntN(len(s.readers))]
		s.frozen.Freeze()
		s.thaw = time.Now().Add(time.Duration(s.random.IntN(1500)) * time.Millisecond)
	case "swell":
		for range 10 {
			s.Do(s.own.store.Command(s.name, "", put("swell", strings.Repeat("v", 150_000)))...)
		}
		s.Do(s.own.store.Command(s.name, "", rmap.Write{Ops: []rmap.Op{{Do: rmap.DoDelete, Key: "swell"}}})...)
	case "fade":
		write := put("fade"+strconv.Itoa(s.random.IntN(5)), "v")
		write.Ops[0].TTL = time.Duration(1+s.random.IntN(200)) * time.Millisecond
		s.Do(s.own.store.Command(s.name, "", write)...)
	default:
		if !s.lose(what) {
			return
		}
	}
	s.counts[what]++
}

// disturb does something to the network of one process.
func (s *siege) disturb(what string) {
	i := s.random.IntN(len(s.relays))
	r := s.relays[i]
	if !s.heal[i].IsZero() {
		return
	}
	s.heal[i] = time.Now().Add(time.Duration(s.random.IntN(1200)) * time.Millisecond)
	switch what {
	case "cut":
		r.Cut()
	case "freeze":
		r.Freeze([]redistest.Direction{redistest.Both, redistest.Requests, redistest.Replies}[s.random.IntN(3)])
	case "delay":
		r.Delay(time.Duration(s.random.IntN(50)) * time.Millisecond)
	case "sever":
		r.Sever()
	}
}

// lose has the store lose something.
func (s *siege) lose(what string) bool {
	l := loss{what: what, start: time.Now().UnixNano(), back: what == "back"}
	switch what {
	case "expire":
		s.Do("PEXPIRE", s.hash(), "1")
		until(s.t, "it is over", func() bool { return s.Int("PTTL", s.hash()) < 0 })
	case "flush":
		s.Do("FLUSHALL")
	case "restart":
		if s.random.IntN(4) > 0 {
			return false // it takes its time
		}
		s.Restart()
	case "dump":
		s.dump = s.Text("DUMP", s.hash())
		return true
	case "back":
		if s.dump == "" {
			return false
		}
		s.Do("RESTORE", s.hash(), "0", s.dump, "REPLACE")
	case "reset":
		s.Do(s.own.store.Command(s.name, "", rmap.Write{Ops: []rmap.Op{{Do: rmap.DoClear}}})...)
	case "destroy":
		s.Do(s.own.store.Command(s.name, "", rmap.Write{Ops: []rmap.Op{{Do: rmap.DoDestroy}}})...)
	}
	l.end = time.Now().UnixNano()
	s.losses = append(s.losses, l)
	return true
}

// recover ends what has lasted long enough, or everything.
func (s *siege) recover(all bool) {
	now := time.Now()
	for i, r := range s.relays {
		if !s.heal[i].IsZero() && (all || now.After(s.heal[i])) {
			r.Restore()
			r.Thaw()
			r.Delay(0)
			s.heal[i] = time.Time{}
		}
	}
	if s.frozen != nil && (all || now.After(s.thaw)) {
		s.frozen.Thaw()
		s.frozen = nil
	}
}

// judge judges what the readers saw.
func (s *siege) judge(writes []written) {
	j := newJudge(writes, s.losses)
	for i := range s.readers {
		for _, look := range lines[seen](s.t, s.diary("r"+strconv.Itoa(i))) {
			j.see(&look)
		}
	}
	outcomes := make(map[string]int)
	for _, w := range writes {
		outcomes[w.Outcome.String()]++
	}
	s.t.Logf("%d looks at %d entries of %d lives; %d times a finished write was looked for, %d times what is gone; writes: %s",
		j.looks, j.entries, len(j.generations), j.judged, j.old, fmt.Sprint(outcomes))
	if j.judged < 1000 || j.entries < 1000 || len(j.generations) < 3 {
		s.t.Error("that is too little to judge by")
	}
	if v := j.verdict(); v != "" {
		s.t.Error(v)
	}
}
