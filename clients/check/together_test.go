package check

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// A stage is one broker, agents at it, and a judge. Scenarios are methods that return what is wrong, so that they can be
// seen to fail.
type stage struct {
	t      *testing.T
	b      *broker
	j      *judge
	agents []*agent
}

// newStage starts a broker, and so many agents of each language.
func newStage(t *testing.T, of []*language, each int, grace time.Duration, args ...string) *stage {
	t.Helper()
	s := &stage{t: t, b: startBroker(t, args...), j: newJudge()}
	s.add(of, each, s.b.addr, grace)
	return s
}

// add starts more agents; those of one language do not stand beside one another.
func (s *stage) add(of []*language, each int, addr string, grace time.Duration) {
	s.t.Helper()
	begin := len(s.agents)
	for range each {
		for _, l := range of {
			s.agents = append(s.agents, launch(s.t, l, fmt.Sprintf("%s-%d", l.name, len(s.agents)), s.j))
		}
	}
	for _, a := range s.agents[begin:] {
		if err := a.connect(addr, grace); err != nil {
			s.t.Fatal(err)
		}
	}
}

// must fails the test when something is wrong, with what the judge says.
func (s *stage) must(err error) {
	s.t.Helper()
	if err := errors.Join(err, s.j.verdict()); err != nil {
		s.t.Fatal(err)
	}
}

// settled is must at the end of a scenario, when all that was held has been given back and nothing was said unasked.
func (s *stage) settled(err error) {
	s.t.Helper()
	s.must(err)
	s.must(s.b.idle(patience, len(s.agents)))
	for _, a := range s.agents {
		if left := a.leftover(); len(left) > 0 {
			s.t.Errorf("%s has said %v, and nobody asked", a.name, left)
		}
	}
}

// TestTogether has agents of all languages at one broker.
func TestTogether(t *testing.T) {
	of := present(t)
	for _, scenario := range []struct {
		name string
		run  func(t *testing.T, of []*language)
	}{
		{"Contention", testContention},
		{"Order", testOrder},
		{"Killed", testKilled},
		{"Frozen", testFrozen},
		{"DurableRestart", testDurableRestart},
		{"MemoryRestart", testMemoryRestart},
		{"BrokerFrozen", testBrokerFrozen},
		{"Stalled", testStalled},
		{"Cancel", testCancel},
		{"Watch", testWatch},
		{"Close", testClose},
		{"CloseUnheard", testCloseUnheard},
		{"UnixSocket", testUnixSocket},
		{"Bench", testBench},
	} {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			scenario.run(t, of)
		})
	}
}

// contentionSeed can be changed to look at other histories.
const contentionSeed = 20

func testContention(t *testing.T, of []*language) {
	s := newStage(t, of, 2, longGrace, durable(t)...)
	s.settled(s.contend(contentionSeed, 2, 30))
	by := make(map[string]int)
	for _, c := range s.j.grants {
		by[c.who]++
	}
	t.Logf("%d grants: %v", s.j.count(), by)
	for _, a := range s.agents {
		if by[a.name] == 0 {
			t.Errorf("%s was granted nothing", a.name)
		}
	}
}

// contend has several workers in each agent ask for the same few keys, in every mode.
func (s *stage) contend(seed uint64, workers, rounds int) error {
	var g errgroup.Group
	for i, a := range s.agents {
		for w := range workers {
			rng := rand.New(rand.NewPCG(seed, uint64(i*workers+w)))
			g.Go(func() error {
				for range rounds {
					if err := a.turn(rng); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	return errors.Join(g.Wait(), s.j.verdict())
}

// turn makes one random request and does what comes of it.
func (a *agent) turn(rng *rand.Rand) error {
	keys := []string{"a", "b", "c"}
	rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	r := request{Keys: keys[:1], TTL: 30_000}
	switch rng.IntN(6) {
	case 0, 1:
		r.Mode = "shared"
	case 2:
		r.Mode, r.Max = "counted", 1+rng.IntN(3)
	case 3:
		r.Keys = keys[:2+rng.IntN(2)]
	}
	patient := false
	switch rng.IntN(8) {
	case 0:
		r.Try = true
	case 1:
		r.Wait = 1 + rng.Int64N(30)
	default:
		patient = true
	}
	c, err := a.acquire(r)
	if err != nil {
		return err
	}
	cancelled := patient && rng.IntN(6) == 0
	if cancelled {
		if err := a.cancel(c); err != nil {
			return err
		}
	}
	e, err := a.expect(c.ref, "granted", "failed")
	if err != nil {
		return err
	}
	if e.Event == "failed" {
		want := map[bool]string{r.Try: "busy", r.Wait > 0: "timeout", cancelled: "cancelled"}[true]
		if e.Code != want {
			return fmt.Errorf("%v says %q, want %q", c, e, want)
		}
		return nil
	}
	if cancelled {
		return a.settle(c)
	}
	for range rng.IntN(3) {
		if err := a.isSafe(c); err != nil {
			return err
		}
	}
	return a.release(c)
}

func testOrder(t *testing.T, of []*language) {
	s := newStage(t, of, 2, longGrace)
	s.must(s.inOrder())
	s.settled(s.inOrder())
}

// inOrder has agents queue for one key, one after another, twice each, and sees them granted in that order.
func (s *stage) inOrder() error {
	r := request{Keys: []string{"queue"}}
	front := s.agents[0]
	c, _, err := front.hold(r)
	if err != nil {
		return err
	}
	line := []*claim{c}
	owners := []*agent{front}
	for _, a := range slices.Concat(s.agents, s.agents) {
		c, err := a.queue(r, len(line)-1)
		if err != nil {
			return err
		}
		line, owners = append(line, c), append(owners, a)
		if err := s.b.waiting("queue", len(line)-1, 0); err != nil {
			return err
		}
	}
	first := s.j.count() - 1
	for i, want := range line {
		got, err := s.j.grant(first+i, owners[i].patience)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("order: %v was granted, and it was the turn of %v", got, want)
		}
		if i > 0 {
			if _, err := owners[i].expect(want.ref, "granted"); err != nil {
				return err
			}
		}
		if err := owners[i].release(want); err != nil {
			return err
		}
	}
	return s.j.verdict()
}
