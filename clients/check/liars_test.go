package check

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// liarPatience is short: a lie by silence is seen when it is over.
const liarPatience = 3 * time.Second

// TestLiars shows that the scenarios fail when an agent lies: each defect is planted in what one agent in Go says.
func TestLiars(t *testing.T) {
	golang := languages[:1]
	for _, liar := range []struct {
		name  string
		each  int
		grace time.Duration
		twist func(event) []event
		run   func(s *stage) error
		want  string
	}{
		{"says that it has what it waits for", 2, longGrace, eager, (*stage).inOrder, "exclusion: "},
		{"has tokens that go back", 3, longGrace, backwards(), func(s *stage) error { return s.contend(1, 2, 20) }, "tokens: .*(before it was asked for|after one of)"},
		{"has the same token twice", 3, longGrace, stuck(), func(s *stage) error { return s.contend(1, 2, 20) }, "tokens: .* both have"},
		{"has a token that is nothing", 3, longGrace, zero, func(s *stage) error { return s.contend(1, 1, 5) }, "tokens: .* has the token 0"},
		{"is granted in another order", 2, longGrace, swapped, (*stage).inOrder, "order: "},
		{"claims to be safe when it wakes", 2, shortGrace, confident, func(s *stage) error { return s.pairs(s.frozen) }, "frozen: .* safe"},
		{"reckons its loss from when it wakes", 2, shortGrace, punctual, func(s *stage) error { return s.pairs(s.frozen) }, "frozen: .* by the formula"},
		{"never hears of its loss", 1, shortGrace, silent("lost"), func(s *stage) error { return s.silence(shortGrace) }, `says \[lost\]`},
		{"tells a loss late", 1, shortGrace, late, func(s *stage) error { return s.silence(shortGrace) }, "after its deadline"},
		{"loses what it holds when the broker remembers it", 1, longGrace, nervous(), (*stage).outlive, `says "lost session_lost"`},
		{"sees events twice", 1, longGrace, double("seen"), (*stage).watched, "watch: "},
	} {
		t.Run(liar.name, func(t *testing.T) {
			t.Parallel()
			args := durable(t)
			s := newStage(t, golang, liar.each, liar.grace, args...)
			last := s.agents[len(s.agents)-1]
			if strings.HasSuffix(liar.name, "when it wakes") {
				last = s.agents[0] // the first half is frozen
			}
			for _, a := range s.agents {
				a.patience = liarPatience
			}
			last.lie(liar.twist)
			err := errors.Join(liar.run(s), s.j.verdict())
			if err == nil || !regexp.MustCompile(liar.want).MatchString(err.Error()) {
				t.Errorf("got %v, want a match of %q", err, liar.want)
			}
		})
	}
}

// TestLiarsOfProcess shows the same of what is seen at the broker and of the process.
func TestLiarsOfProcess(t *testing.T) {
	t.Run("keeps waiting after a cancel", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, languages[:1], 2, longGrace)
		a, holder := s.agents[0], s.agents[1]
		a.patience = liarPatience
		a.deaf = "cancel"
		a.lie(func(e event) []event {
			if e.Event == "queued" {
				return []event{e, {Event: "failed", Ref: e.Ref, Code: "cancelled", at: e.at}}
			}
			return []event{e}
		})
		wants(t, s.givenUp(a, holder), "cancel: .* still wait")
	})
	t.Run("says that it has closed and goes on", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, languages[:1], 2, longGrace)
		a := s.agents[0]
		a.patience = liarPatience
		a.deaf = "close"
		a.take(event{Event: "closed"})
		wants(t, s.closed(), "has not ended")
	})
	t.Run("is granted before the grace is over", func(t *testing.T) {
		t.Parallel()
		s := newStage(t, languages[:1], 2, shortGrace)
		wants(t, s.killed(s.agents[0], s.agents[1], time.Minute), "whose grace is 1m0s") // a broker that is too fast
	})
}

func wants(t *testing.T, err error, pattern string) {
	t.Helper()
	if err == nil || !regexp.MustCompile(pattern).MatchString(err.Error()) {
		t.Errorf("got %v, want a match of %q", err, pattern)
	}
}

// eager says of what waits that it was granted too, with a token that nobody has.
func eager(e event) []event {
	if e.Event != "queued" {
		return []event{e}
	}
	return []event{e, {Event: "granted", Ref: e.Ref, Tokens: map[string]int64{"queue": 1 << 52}, at: e.at}}
}

// backwards counts down.
func backwards() func(event) []event {
	top := int64(1 << 50)
	return func(e event) []event {
		for k := range e.Tokens {
			top--
			e.Tokens[k] = top
		}
		return []event{e}
	}
}

// stuck repeats the first token.
func stuck() func(event) []event {
	var first int64
	return func(e event) []event {
		for k, token := range e.Tokens {
			if first == 0 {
				first = token
			}
			e.Tokens[k] = first
		}
		return []event{e}
	}
}

func zero(e event) []event {
	for k := range e.Tokens {
		e.Tokens[k] = 0
	}
	return []event{e}
}

// swapped takes the first two requests for one another.
func swapped(e event) []event {
	if e.Event == "granted" {
		switch e.Ref {
		case "r1":
			e.Ref = "r2"
		case "r2":
			e.Ref = "r1"
		}
	}
	return []event{e}
}

// confident finds itself safe whatever happens.
func confident(e event) []event {
	e.Safe = true
	return []event{e}
}

func silent(of string) func(event) []event {
	return func(e event) []event {
		if e.Event == of {
			return nil
		}
		return []event{e}
	}
}

func late(e event) []event {
	if e.Event == "lost" {
		e.LateMS += 2 * lateness.Milliseconds()
	}
	return []event{e}
}

// punctual finds every loss at its deadline.
func punctual(e event) []event {
	e.LateMS = 0
	return []event{e}
}

// nervous takes the first look at the clock for a loss.
func nervous() func(event) []event {
	return func(e event) []event {
		if e.Event == "checked" {
			return []event{{Event: "lost", Ref: e.Ref, Code: "session_lost", at: e.at}, e}
		}
		return []event{e}
	}
}

func double(of string) func(event) []event {
	return func(e event) []event {
		if e.Event == of {
			return []event{e, e}
		}
		return []event{e}
	}
}
