package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func testCancel(t *testing.T, of []*language) {
	s := newStage(t, of, 1, longGrace)
	s.settled(s.takenBack())
}

// takenBack has agents give up in every way, and sees that nothing of it stays at the broker.
func (s *stage) takenBack() error {
	for i, a := range s.agents {
		holder := s.agents[(i+1)%len(s.agents)]
		if err := errors.Join(s.givenUp(a, holder), s.crossed(a, holder), s.j.verdict()); err != nil {
			return err
		}
	}
	return nil
}

// givenUp cancels a request that waits, tries what is held, and waits for a bounded time.
func (s *stage) givenUp(a, holder *agent) error {
	r := request{Keys: []string{"held"}}
	c, _, err := holder.hold(r)
	if err != nil {
		return err
	}
	waits, err := a.queue(r, 0)
	if err != nil {
		return err
	}
	e, err := a.ask("cancel", waits, "granted", "failed")
	if err != nil {
		return err
	}
	if e.Code != "cancelled" {
		return fmt.Errorf("%v was cancelled and says %q", waits, e)
	}
	k, err := s.b.key("held")
	if err != nil {
		return err
	}
	if k.Waiting != 0 {
		return fmt.Errorf("cancel: %v was cancelled, and %d requests still wait", waits, k.Waiting)
	}
	for want, r := range map[string]request{"busy": {Keys: r.Keys, Try: true}, "timeout": {Keys: r.Keys, Wait: 50}} {
		c, err := a.acquire(r)
		if err != nil {
			return err
		}
		e, err := a.expect(c.ref, "granted", "failed")
		if err != nil {
			return err
		}
		if e.Code != want {
			return fmt.Errorf("%v: the key is held, and it says %q, want %s", c, e, want)
		}
	}
	if err := holder.release(c); err != nil {
		return err
	}
	c, _, err = a.hold(request{Keys: r.Keys, Try: true}) // a release leaves the key free at once
	if err != nil {
		return err
	}
	return a.release(c)
}

// crossed cancels a request at the very time at which it is granted.
func (s *stage) crossed(a, holder *agent) error {
	r := request{Keys: []string{"crossed"}}
	for range 5 {
		c, _, err := holder.hold(r)
		if err != nil {
			return err
		}
		waits, err := a.queue(r, 0)
		if err != nil {
			return err
		}
		s.j.ends(c)
		if err := holder.tell(command{"do": "release", "ref": c.ref}); err != nil {
			return err
		}
		if err := a.cancel(waits); err != nil {
			return err
		}
		e, err := a.expect(waits.ref, "granted", "failed")
		if err != nil {
			return err
		}
		if e.Event == "granted" {
			err = a.settle(waits)
		} else if e.Code != "cancelled" {
			err = fmt.Errorf("%v was cancelled and says %q", waits, e)
		}
		if err != nil {
			return err
		}
		if _, err := holder.expect(c.ref, "released"); err != nil {
			return err
		}
		err = until(a.patience, "cancel: nobody holds or awaits what was taken back", func() (bool, error) {
			k, err := s.b.key("crossed")
			return len(k.Holders) == 0 && k.Waiting == 0, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func testWatch(t *testing.T, of []*language) {
	s := newStage(t, of, 1, longGrace)
	s.settled(s.watched())
}

// watched has every agent watch what each does in turn.
func (s *stage) watched() error {
	for _, a := range s.agents {
		if err := a.tell(command{"do": "watch", "prefix": "seen-"}); err != nil {
			return err
		}
		if _, err := a.expect("", "watching"); err != nil {
			return err
		}
	}
	for i, a := range s.agents {
		other := s.agents[(i+1)%len(s.agents)]
		key := "seen-" + a.name
		c, _, err := a.hold(request{Keys: []string{key}})
		if err != nil {
			return err
		}
		next, err := other.queue(request{Keys: []string{key}}, 0)
		if err != nil {
			return err
		}
		elsewhere, _, err := other.hold(request{Keys: []string{"unseen-" + a.name}})
		if err != nil {
			return err
		}
		if err := errors.Join(other.release(elsewhere), a.release(c)); err != nil {
			return err
		}
		if _, err := other.expect(next.ref, "granted"); err != nil {
			return err
		}
		if err := other.release(next); err != nil {
			return err
		}
		want := []event{
			{Kind: "granted", Key: key, Token: c.tokens[key]}, {Kind: "queued", Key: key},
			{Kind: "released", Key: key, Token: c.tokens[key]}, {Kind: "granted", Key: key, Token: next.tokens[key]},
			{Kind: "released", Key: key, Token: next.tokens[key]},
		}
		for _, watcher := range s.agents {
			for _, w := range want {
				e, err := watcher.expect("", "seen")
				if err != nil {
					return err
				}
				if e.Kind != w.Kind || e.Key != w.Key || e.Token != w.Token {
					return fmt.Errorf("watch: %s saw %s of %s with %d, want %s of %s with %d",
						watcher.name, e.Kind, e.Key, e.Token, w.Kind, w.Key, w.Token)
				}
			}
		}
	}
	return s.j.verdict()
}

func testClose(t *testing.T, of []*language) {
	s := newStage(t, of, 2, longGrace)
	s.must(s.closed())
	s.must(s.b.idle(patience, 0))
}

// closed ends agents that hold and wait, one half by command and the other by the end of their input.
func (s *stage) closed() error {
	for i, a := range s.agents {
		told := i < len(s.agents)/2
		own, _, err := a.hold(request{Keys: []string{"of-" + a.name}, Mode: "shared"})
		if err != nil {
			return err
		}
		other := s.agents[(i+1)%len(s.agents)]
		if i+1 < len(s.agents) { // it waits for what the next one holds
			if _, _, err := other.hold(request{Keys: []string{"next-" + a.name}}); err != nil {
				return err
			}
			waits, err := a.queue(request{Keys: []string{"next-" + a.name}}, 0)
			if err != nil {
				return err
			}
			if err := a.finish(told); err != nil {
				return err
			}
			if said := a.pending(waits.ref); len(said) != 1 || said[0].Event != "failed" || said[0].Code != "closed" {
				return fmt.Errorf("%v: its client was closed, and it says %v", waits, said)
			}
		} else if err := a.finish(told); err != nil {
			return err
		}
		if slices.ContainsFunc(a.pending(own.ref), func(e event) bool { return e.Event != "lost" || e.Code != "closed" }) {
			return fmt.Errorf("%v: its client was closed, and it says %v", own, a.pending(own.ref))
		}
		k, err := s.b.key("of-" + a.name)
		if err != nil {
			return err
		}
		if len(k.Holders) > 0 {
			return fmt.Errorf("close: %s has said goodbye, and %v is still held", a.name, own)
		}
	}
	return s.j.verdict()
}

func testCloseUnheard(t *testing.T, of []*language) {
	s := newStage(t, of, 1, shortGrace)
	s.must(s.closedUnheard())
	s.must(s.b.idle(patience, 0))
}

// closedUnheard ends agents while the broker is frozen, with a release and a renewal that it has not answered: neither keeps
// an agent, and what they held is free when the broker goes on and the sessions' grace is over.
func (s *stage) closedUnheard() error {
	own, err := s.each()
	if err != nil {
		return err
	}
	for _, a := range s.agents {
		if _, _, err := a.hold(request{Keys: []string{"more-of-" + a.name}}); err != nil {
			return err
		}
	}
	if err := s.b.process.Freeze(); err != nil {
		return err
	}
	for i, a := range s.agents {
		s.j.ends(own[i])
		if err := a.tell(command{"do": "renew", "ref": own[i].ref}); err != nil {
			return err
		}
		if err := a.tell(command{"do": "release", "ref": own[i].ref}); err != nil {
			return err
		}
	}
	for _, a := range s.agents {
		if err := a.finish(true); err != nil {
			return err
		}
	}
	return errors.Join(s.b.process.Thaw(), s.j.verdict())
}

func testUnixSocket(t *testing.T, of []*language) {
	dir, err := os.MkdirTemp("", "lk") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	s := newStage(t, nil, 0, longGrace, "--unix", path)
	s.add(of, 1, "unix:"+path, longGrace)
	s.must(s.inOrder())
	s.must(s.closed())
	s.must(s.b.idle(patience, 0))
}

func testBench(t *testing.T, of []*language) {
	s := newStage(t, of, 1, longGrace)
	for _, a := range s.agents {
		for _, n := range []int{1, 64} {
			s.must(a.counts(n))
		}
	}
	s.must(s.b.idle(patience, len(s.agents)))
}

// counts has an agent measure itself, for longer where a busy machine leaves it no time for a single pair.
func (a *agent) counts(n int) error {
	for ms := 100; ; ms *= 10 {
		if err := a.tell(command{"do": "bench", "key": "bench-" + a.name, "in_flight": n, "ms": ms}); err != nil {
			return err
		}
		e, err := a.expect("", "bench")
		switch {
		case err != nil:
			return err
		case e.Errors != 0 || e.Pairs == 0 && ms >= 10_000:
			return fmt.Errorf("%s: %d pairs and %d errors in %d ms with %d in flight", a.name, e.Pairs, e.Errors, ms, n)
		case e.Pairs > 0:
			return nil
		}
	}
}
