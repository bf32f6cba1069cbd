package stm_test

import (
	"errors"
	"maps"
	"testing"

	"github.com/latchkey-go/latchkey/stm"
	"pgregory.net/rapid"
)

// A step of a program: what a transaction's function does, with its own steps inside.
type step struct {
	kind  string // get, set, add, put, now, hook, sweep, nested, view, read, orelse
	v, x  int
	inner []step
	other []step
	fails error
}

// steps draws a program. Its functions touch many variables, so that the logs get
// long.
func steps(t *rapid.T, depth int) []step {
	kinds := []string{"get", "set", "add", "put", "now", "hook", "sweep", "nested", "view", "read", "orelse"}
	if depth == 0 {
		kinds = kinds[:7]
	}
	out := make([]step, rapid.IntRange(0, 12).Draw(t, "steps"))
	for i := range out {
		s := &out[i]
		s.kind = rapid.SampledFrom(kinds).Draw(t, "kind")
		s.v, s.x = rapid.IntRange(0, modelVars-1).Draw(t, "v"), rapid.IntRange(0, 99).Draw(t, "x")
		switch s.kind {
		case "nested", "orelse":
			s.inner = steps(t, depth-1)
			s.fails = rapid.SampledFrom([]error{nil, errMine, stm.Retry}).Draw(t, "fails")
			if s.kind == "orelse" {
				s.other = steps(t, depth-1)
			}
		}
	}
	return out
}

const modelVars = 40

// model is what a program makes of variables, computed by copying them all for each
// function inside of another.
type model struct {
	vars  map[int]int
	hooks []int
}

func (m model) clone() model { return model{maps.Clone(m.vars), append([]int(nil), m.hooks...)} }

func (m *model) run(program []step) {
	for _, s := range program {
		switch s.kind {
		case "set", "put":
			m.vars[s.v] = s.x
		case "add", "now":
			m.vars[s.v] += s.x
		case "sweep":
			for i := range s.v {
				m.vars[i] += s.x
			}
		case "hook":
			m.hooks = append(m.hooks, s.x)
		case "nested", "orelse":
			inner := m.clone()
			inner.run(s.inner)
			if s.fails == nil {
				*m = inner
			} else if s.kind == "orelse" && errors.Is(s.fails, stm.Retry) {
				m.run(s.other)
			}
		}
	}
}

// real runs a program in a transaction, and a model beside it step by step.
func (m *model) real(t *rapid.T, tx stm.Tx, vars []stm.Var[int], program []step, hook func(int)) {
	for i, s := range program {
		switch s.kind {
		case "set":
			vars[s.v].Set(tx, s.x)
		case "add":
			stm.Add(tx, &vars[s.v], s.x)
		case "now":
			stm.AddNow(&vars[s.v], s.x)
		case "put":
			stm.SetNow(&vars[s.v], s.x)
		case "sweep":
			for i := range s.v {
				stm.Add(tx, &vars[i], s.x)
			}
		case "hook":
			tx.AfterCommit(func() { hook(s.x) })
		case "view":
			_ = stm.View(tx.Context(), func(tx stm.Tx) error { vars[s.v].Get(tx); return nil })
		case "read":
			got, err := stm.Read(tx.Context(), func(tx stm.Tx) (int, error) { return vars[s.v].Get(tx), nil })
			if err != nil || got != m.vars[s.v] {
				t.Fatalf("Read returns %d, %v, want %d", got, err, m.vars[s.v])
			}
		case "nested":
			inner := m.clone()
			err := stm.Atomically(tx.Context(), func(tx stm.Tx) error {
				inner.real(t, tx, vars, s.inner, hook)
				return s.fails
			})
			if err != s.fails {
				t.Fatalf("a nested transaction returns %v, want %v", err, s.fails)
			}
		case "orelse":
			first, second := m.clone(), m.clone()
			err := stm.OrElse(tx,
				func(tx stm.Tx) error { first.real(t, tx, vars, s.inner, hook); return s.fails },
				func(tx stm.Tx) error { second.real(t, tx, vars, s.other, hook); return nil })
			if (err != nil) != (s.fails == errMine) {
				t.Fatalf("OrElse returns %v when its first function fails with %v", err, s.fails)
			}
		}
		m.run(program[i : i+1])
		for v := range vars {
			if v%7 == s.v%7 && vars[v].Get(tx) != m.vars[v] {
				t.Fatalf("after %+v variable %d is %d, want %d", s, v, vars[v].Get(tx), m.vars[v])
			}
		}
	}
}

// Whatever functions do inside of functions, a transaction sees what the model sees
// after each step, and leaves what the model leaves.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		vars := make([]stm.Var[int], modelVars)
		m := model{vars: map[int]int{}}
		for range 3 {
			program := steps(t, 3)
			fails := rapid.SampledFrom([]error{nil, nil, errMine}).Draw(t, "fails")
			after := m.clone()
			var called []int
			err := stm.Atomically(t.Context(), func(tx stm.Tx) error {
				after.real(t, tx, vars, program, func(x int) { called = append(called, x) })
				return fails
			})
			if err != fails {
				t.Fatalf("the transaction returns %v, want %v", err, fails)
			}
			if fails == nil {
				m.vars = after.vars
			} else {
				after.hooks = nil
			}
			if len(called) != len(after.hooks) {
				t.Fatalf("hooks called: %v, want %v", called, after.hooks)
			}
			for i := range called {
				if called[i] != after.hooks[i] {
					t.Fatalf("hooks called: %v, want %v", called, after.hooks)
				}
			}
			for v := range vars {
				if got := vars[v].Load(); got != m.vars[v] {
					t.Fatalf("variable %d holds %d, want %d", v, got, m.vars[v])
				}
			}
		}
	})
}
