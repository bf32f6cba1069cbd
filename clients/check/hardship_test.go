package check

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// lateness is how long after its deadline a loss may be told on a busy machine. The holder's own look at the clock is
// exact; a timer is not.
const lateness = 2 * time.Second

// losses are the codes of a hold that was lost while broker or holder were away.
var losses = []string{"expired", "session_lost", "service_gone"}

// pairs gives each agent of the first half, one of each language, the next language's of the second half.
func (s *stage) pairs(do func(a, other *agent) error) error {
	n := len(s.agents) / 2
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- do(s.agents[i], s.agents[n+(i+1)%n]) }()
	}
	var all []error
	for range n {
		all = append(all, <-errs)
	}
	return errors.Join(append(all, s.j.verdict())...)
}

// Graces of who is to lose its session, and of who is not, however busy the machine.
const (
	shortGrace = 2 * time.Second
	longGrace  = 20 * time.Second
)

func testKilled(t *testing.T, of []*language) {
	s := newStage(t, of, 1, shortGrace)
	s.add(of, 1, s.b.addr, longGrace)
	s.must(s.pairs(func(a, other *agent) error { return s.killed(a, other, shortGrace) }))
}

// killed kills a holder, and sees another get the key when the grace is over, and not before it can be.
func (s *stage) killed(a, other *agent, grace time.Duration) error {
	r := request{Keys: []string{"of-" + a.name}, TTL: 60_000}
	c, _, err := a.hold(r)
	if err != nil {
		return err
	}
	next, err := other.queue(r, 0)
	if err != nil {
		return err
	}
	proof := time.Now() // the renewal comes to the broker after this
	if err := a.tell(command{"do": "renew", "ref": c.ref}); err != nil {
		return err
	}
	if _, err := a.expect(c.ref, "renewed"); err != nil {
		return err
	}
	if err := a.kill(); err != nil {
		return err
	}
	e, err := other.expect(next.ref, "granted")
	if err != nil {
		return err
	}
	if e.at.Sub(proof) < grace {
		return fmt.Errorf("%v was granted %v after a sign of life of %s, whose grace is %v", next, e.at.Sub(proof), a.name, grace)
	}
	return other.release(next)
}

func testFrozen(t *testing.T, of []*language) {
	s := newStage(t, of, 1, shortGrace)
	s.add(of, 1, s.b.addr, longGrace)
	s.settled(s.pairs(s.frozen))
}

// frozen stops a holder for longer than its deadline. Another gets the key; the frozen one must know at once that it may not
// act, and say so.
func (s *stage) frozen(a, other *agent) error {
	r := request{Keys: []string{"of-" + a.name}, TTL: 60_000}
	c, _, err := a.hold(r)
	if err != nil {
		return err
	}
	next, err := other.queue(r, 0)
	if err != nil {
		return err
	}
	looked := time.Now()
	if err := a.isSafe(c); err != nil {
		return err
	}
	if err := a.freeze(); err != nil {
		return err
	}
	granted, err := other.expect(next.ref, "granted")
	if err != nil {
		return err
	}
	if err := a.tell(command{"do": "check", "ref": c.ref}); err != nil { // what it finds first when it wakes
		return err
	}
	woke := time.Now()
	if err := a.process.Thaw(); err != nil {
		return err
	}
	lost, err := a.unsafeThenLost(c)
	if err != nil {
		return err
	}
	// It was safe when it was looked at, and until a margin before the broker gave the key to the other.
	least, most := woke.Sub(granted.at)+margin(shortGrace)-time.Millisecond, lost.at.Sub(looked)+time.Millisecond
	if late := time.Duration(lost.LateMS) * time.Millisecond; late < least || late > most {
		return fmt.Errorf("frozen: %v was lost %v after its deadline, which by the formula is between %v and %v ago", c, late, least, most)
	}
	e, err := a.ask("release", c, "released", "failed")
	if err != nil {
		return err
	}
	if e.Event == "released" || e.Code != "not_held" && !slices.Contains(losses, e.Code) {
		return fmt.Errorf("%v was lost, and its release says %q", c, e)
	}
	if err := other.isSafe(next); err != nil { // nobody took anything from the new holder
		return err
	}
	return other.release(next)
}

// margin is what a holder keeps back from a time x by the protocol.
func margin(x time.Duration) time.Duration { return min(max(10*time.Millisecond, x/50), time.Second) }

// unsafeThenLost takes the answer to a check and the loss, in the order in which they come, and returns the loss.
func (a *agent) unsafeThenLost(c *claim) (lost event, err error) {
	for range 2 {
		e, err := a.expect(c.ref, "checked", "lost")
		switch {
		case err != nil:
			return event{}, err
		case e.Safe:
			return event{}, fmt.Errorf("frozen: %v was given to another, and its holder wakes up and says %q, safe", c, e)
		case e.Event == "lost" && !slices.Contains(losses, e.Code):
			return event{}, fmt.Errorf("%v was lost by %q", c, e)
		case e.Event == "lost":
			lost = e
		}
	}
	return lost, nil
}

// apart is the difference in age by which places are told from each other after a restart: an age is as exact as the machine
// is quick in bringing a request to the broker.
const apart = time.Second

// cast has each agent hold a key of its own and wait for one that the first of them holds. They came one after another, far
// enough apart to be told from each other by their age.
func (s *stage) cast() (own, waiting []*claim, front *claim, err error) {
	for i, a := range s.agents {
		c, _, err := a.hold(request{Keys: []string{"of-" + a.name}, TTL: 60_000})
		if err != nil {
			return nil, nil, nil, err
		}
		own = append(own, c)
		if i == 0 {
			if front, _, err = a.hold(request{Keys: []string{"queue"}, TTL: 60_000}); err != nil {
				return nil, nil, nil, err
			}
		}
	}
	for i, a := range s.agents {
		c, err := a.queue(request{Keys: []string{"queue"}, TTL: 60_000}, i)
		if err == nil {
			err = s.b.waiting("queue", i+1, apart)
		}
		if err != nil {
			return nil, nil, nil, err
		}
		waiting = append(waiting, c)
	}
	return own, waiting, front, nil
}

func testDurableRestart(t *testing.T, of []*language) {
	s := newStage(t, of, 1, longGrace, durable(t)...)
	s.settled(s.outlive())
}

// outlive kills a broker that remembers and starts it again: nobody loses anything, neither a hold nor a place.
func (s *stage) outlive() error {
	own, waiting, front, err := s.cast()
	if err != nil {
		return err
	}
	if err := s.b.process.Kill(); err != nil {
		return err
	}
	s.b.start(s.t)
	if err := s.resumed(len(waiting)); err != nil {
		return err
	}
	for i, a := range s.agents {
		if err := a.isSafe(own[i]); err != nil {
			return err
		}
	}
	if err := s.agents[0].release(front); err != nil {
		return err
	}
	for i, a := range s.agents {
		if _, err := a.expect(waiting[i].ref, "granted"); err != nil {
			return err
		}
		if last, err := s.j.grant(s.j.count()-1, 0); err != nil || last != waiting[i] {
			return fmt.Errorf("order: after the restart %v was granted when it was the turn of %v", last, waiting[i])
		}
		if err := errors.Join(a.release(waiting[i]), a.release(own[i])); err != nil {
			return err
		}
	}
	return s.j.verdict()
}

// resumed waits until all sessions are back.
func (s *stage) resumed(waiters int) error {
	return until(patience, "all sessions are back, and so many wait", func() (bool, error) {
		st, err := s.b.stats()
		if err != nil {
			return false, err
		}
		k, err := s.b.key("queue")
		return st.Sessions == len(s.agents) && st.Broken == 0 && k.Waiting == waiters, err
	})
}

func testMemoryRestart(t *testing.T, of []*language) {
	s := newStage(t, of, 1, 3*time.Second)
	s.settled(s.forgotten())
}

// forgotten kills a broker that remembers nothing and starts another: every hold is reported as lost, and who waited gets
// what it waited for.
func (s *stage) forgotten() error {
	own, waiting, front, err := s.cast()
	if err != nil {
		return err
	}
	s.j.forget() // the broker that comes knows of no hold
	if err := s.b.process.Kill(); err != nil {
		return err
	}
	s.b.start(s.t)
	own = append(own, front)
	for i, c := range own {
		a := s.agents[i%len(s.agents)]
		e, err := a.expect(c.ref, "lost")
		if err != nil {
			return err
		}
		if e.Code != "session_lost" && e.Code != "service_gone" || e.Safe {
			return fmt.Errorf("%v: the broker has forgotten it, and its loss is %q, safe: %v", c, e, e.Safe)
		}
	}
	return s.granted(waiting)
}

// granted takes the grants of what waits, whatever their order, and releases each.
func (s *stage) granted(waiting []*claim) error {
	errs := make(chan error, len(waiting))
	for i, a := range s.agents {
		go func() {
			if _, err := a.expect(waiting[i].ref, "granted"); err != nil {
				errs <- err
				return
			}
			errs <- a.release(waiting[i])
		}()
	}
	var all []error
	for range waiting {
		all = append(all, <-errs)
	}
	return errors.Join(append(all, s.j.verdict())...)
}

// each has every agent hold a key of its own, for longer than any of this takes.
func (s *stage) each() (own []*claim, err error) {
	for _, a := range s.agents {
		c, _, err := a.hold(request{Keys: []string{"of-" + a.name}, TTL: 60_000})
		if err != nil {
			return nil, err
		}
		own = append(own, c)
	}
	return own, nil
}

func testBrokerFrozen(t *testing.T, of []*language) {
	s := newStage(t, of, 1, shortGrace)
	s.settled(s.silence(shortGrace))
}

// silence freezes the broker past the grace: every holder must have said that it lost its hold before the broker can go on
// and give it to another.
func (s *stage) silence(grace time.Duration) error {
	own, err := s.each()
	if err != nil {
		return err
	}
	if err := s.b.process.Freeze(); err != nil {
		return err
	}
	frozen := time.Now()
	for i, a := range s.agents {
		e, err := a.expect(own[i].ref, "lost")
		switch {
		case err != nil:
			return err
		case e.Code != "service_gone" && e.Code != "session_lost":
			return fmt.Errorf("%v: its loss is %q while the broker is frozen", own[i], e)
		case e.Safe:
			return fmt.Errorf("%v: it is lost, and its holder says that it is safe", own[i])
		case e.LateMS > lateness.Milliseconds() || e.at.Sub(frozen) > grace+lateness:
			return fmt.Errorf("%v: its loss was told %d ms after its deadline, %v after the broker froze", own[i], e.LateMS, e.at.Sub(frozen))
		case e.at.Sub(frozen) < grace/3:
			return fmt.Errorf("%v: its loss was told %v after the broker froze, long before its deadline", own[i], e.at.Sub(frozen))
		}
		e, err = a.ask("check", own[i], "checked")
		if err != nil {
			return err
		}
		if e.Safe {
			return fmt.Errorf("%v was lost, and a check says %q", own[i], e)
		}
	}
	if err := s.b.process.Thaw(); err != nil {
		return err
	}
	for i, loser := range s.agents {
		if err := s.givenBack(loser, own[i]); err != nil {
			return err
		}
		a := s.agents[(i+1)%len(s.agents)]
		c, _, err := a.hold(request{Keys: own[i].Keys})
		if err != nil {
			return err
		}
		if err := a.release(c); err != nil {
			return err
		}
	}
	return s.j.verdict()
}

// givenBack releases what was lost, until it is free: the broker may have found the pings of its absence before it looked at
// the clock, and so have kept the hold, and it may not be heard yet.
func (s *stage) givenBack(a *agent, c *claim) error {
	s.j.ends(c)
	return until(a.patience, fmt.Sprintf("%v is free", c), func() (bool, error) {
		if _, err := a.ask("release", c, "released", "failed"); err != nil {
			return false, err
		}
		k, err := s.b.key(c.Keys[0])
		return err == nil && len(k.Holders) == 0, err
	})
}

// stalledGrace leaves room between a link that is taken for dead, at most two pings after the last answer, and a deadline.
const stalledGrace = 6 * time.Second

func testStalled(t *testing.T, of []*language) {
	s := newStage(t, of, 2, stalledGrace)
	s.settled(s.stalled(stalledGrace))
}

// stalled freezes the broker until clients have given their connections up and tried others, and not for as long as the
// grace. What they sent in vain is found by the broker when it goes on, and must do no harm: no session ends, so a hold can
// only be lost to a clock that was looked at late, and every client goes on.
func (s *stage) stalled(grace time.Duration) error {
	own, err := s.each()
	if err != nil {
		return err
	}
	if err := s.b.process.Freeze(); err != nil {
		return err
	}
	<-time.After(grace * 6 / 10) // how long it is frozen is what this is about
	if err := s.b.process.Thaw(); err != nil {
		return err
	}
	if err := s.resumed(0); err != nil {
		return err
	}
	for i, a := range s.agents {
		e, err := a.ask("check", own[i], "checked", "lost")
		if err == nil && e.Event == "lost" && e.Code == "service_gone" {
			s.t.Logf("%s: busy: %v was lost", a.name, own[i])
			e, err = a.expect(own[i].ref, "checked")
			e.Safe = true
		}
		if err != nil {
			return err
		}
		if !e.Safe {
			return fmt.Errorf("stalled: the broker has kept the session, and %v says %q", own[i], e)
		}
		if err := s.givenBack(a, own[i]); err != nil {
			return err
		}
		if c, _, err := a.hold(own[i].request); err != nil {
			return err
		} else if err := a.release(c); err != nil {
			return err
		}
	}
	return s.j.verdict()
}
