package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// transcript drives an engine by a seed and writes down everything that comes out,
// in order: effects, records, and after a restart from these records the same
// again, up to a failure of the journal and the close.
func transcript(t *testing.T, seed uint64) string {
	var out strings.Builder
	rng := rand.New(rand.NewPCG(seed, 13))
	w := newWorld(t, Config{Durable: true})
	w.told = func(f Effect) { fmt.Fprintf(&out, "%d %+v %v %v %v\n", f.Kind, f.Lease, f.End, f.Err, f.More) }
	w.e.Watch(true)
	sessions := churn(w, rng, []*Session{w.session("a"), w.session("b"), w.session("c")}, 200)
	fmt.Fprintf(&out, "%x\n", w.log)

	again := newWorld(t, Config{Durable: true})
	again.told = w.told
	again.e.Watch(true)
	restore := again.e.Restore()
	for _, rec := range w.log {
		if err := restore.Apply(rec); err != nil {
			t.Fatal(err)
		}
	}
	restore.Start(true, 0)
	again.carry()
	for i, s := range sessions {
		r, _, leases, err := again.e.Resume(s.id, lease.SessionOptions{Notify: func(lease.Notice) {}})
		fmt.Fprintf(&out, "%v %v\n", leases, err)
		if err != nil {
			r = again.session(fmt.Sprint("new", i))
		}
		sessions[i] = r
	}
	churn(again, rng, sessions, 200)
	again.pass(time.Second)
	again.e.Committed()
	for i := range 20 {
		r := lease.Request{ID: fmt.Sprint("doubtful", i), Keys: []string{fmt.Sprint("d", i)}, TTL: time.Minute}
		again.e.Acquire(sessions[0], sessions[0].epoch, &r, &asker{})
	}
	again.e.Fail("test")
	again.e.Close()
	again.carry()
	fmt.Fprintf(&out, "%x\n%v\n", again.log, again.e.Stats())
	return out.String()
}

// The same commands at the same times have the same effects, byte for byte,
// though tables and maps are in another order each time.
func TestSameCommandsSameEffects(t *testing.T) {
	for seed := range doses(30, 2000) {
		a, b := transcript(t, seed), transcript(t, seed)
		if a == b {
			continue
		}
		la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
		for i := range la {
			if i >= len(lb) || la[i] != lb[i] {
				t.Fatalf("seed %d, line %d:\n%.300s\n%.300s", seed, i, la[i], lb[min(i, len(lb)-1)])
			}
		}
	}
}
