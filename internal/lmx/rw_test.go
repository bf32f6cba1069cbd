package lmx

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// KeysKept is of how many keys something is remembered.
func (s *Server) KeysKept() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.keys)
}

// The monitor is explored here as a whole: small systems of readers and writers
// of both generations, with a base lock that is a few lines long, in every order of
// their steps, with every connection ending and every base lock expiring at every
// point.

// machine is a monitor, or one that is wrong.
type machine interface {
	put(question) bool
	wake() []question
	discount(*Conn) bool
	lower(*Conn)
	leave(*Conn)
	state() *monitor
	clone() machine
}

// exact is the monitor as it is.
type exact struct{ *monitor }

func (e exact) state() *monitor { return e.monitor }
func (e exact) clone() machine  { return exact{e.monitor.clone()} }

func (m *monitor) clone() *monitor {
	return &monitor{writer: m.writer, readers: maps.Clone(m.readers), total: m.total, questions: slices.Clone(m.questions)}
}

// move is a step of a task.
type move uint8

const (
	lock1     move = iota // the base lock, for one
	lock10                // the base lock, for ten
	unlock                // it is free again, if it has not been lost
	question0             // from here on: the questions, in the order of ask
)

const (
	enter = question0 + move(mayWrite) + 1 + iota // what follows is done inside
	exit
	discount
	lower
)

func asks(a ask) move { return question0 + move(a) }

// programs are the tasks of both generations.
var programs = map[byte][]move{
	'r': {lock1, asks(enterRead), unlock, enter, exit, lock1, discount, unlock},
	'w': {lock1, asks(mayWrite), unlock, enter, exit, lock1, lower, unlock},
	'R': {asks(mayRead), lock10, asks(addReader), enter, exit, discount, unlock},
	'W': {lock1, asks(mayWrite), enter, exit, unlock, lower},
}

// system is a state: of the tasks, of the base lock, of the monitor.
type system struct {
	tasks   []task
	holders []grip // of the base lock, in order
	queue   []grip
	machine machine
}

// task is one reader or writer: old ones are written small.
type task struct {
	kind    byte
	conn    int
	at      int
	waiting bool
	gone    bool // its connection has ended
}

// grip is a hold of the base lock, or a wish for it.
type grip struct{ task, limit int }

func (t task) done() bool   { return t.gone || t.at == len(programs[t.kind]) }
func (t task) writes() bool { return t.kind == 'w' || t.kind == 'W' }
func (t task) inside() bool { return !t.gone && t.at > 0 && programs[t.kind][t.at-1] == enter }

// counted reports whether the monitor has to count it as a reader.
func (t task) counted() bool {
	done := programs[t.kind][:t.at]
	return !t.gone && !slices.Contains(done, discount) &&
		(slices.Contains(done, asks(enterRead)) || slices.Contains(done, asks(addReader)))
}

// explorer goes through all states of a system.
type explorer struct {
	conns    []*Conn
	breaks   bool // connections end
	expires  bool // base locks expire
	keepBase bool // wrong: a question that waits keeps the base lock
	seen     map[string]bool
	fault    string
	path     []string
}

// explore returns how many states there are, and what is wrong with the first one
// that is.
func (e *explorer) explore(kinds string, conns []int, m machine) (int, string) {
	s := system{machine: m}
	for i := range kinds {
		s.tasks = append(s.tasks, task{kind: kinds[i], conn: conns[i]})
		e.conns = append(e.conns, &Conn{})
	}
	e.seen = map[string]bool{}
	e.visit(s)
	return len(e.seen), e.fault
}

func (e *explorer) visit(s system) {
	k := e.encode(s)
	if e.fault != "" || e.seen[k] {
		return
	}
	e.seen[k] = true
	if what := e.wrong(s); what != "" {
		e.fault = what + ": " + strings.Join(e.path, ", ")
		return
	}
	stuck := true
	for i, t := range s.tasks {
		if !t.done() && !t.waiting {
			stuck = false
			e.next(s, fmt.Sprintf("%c%d:%d", t.kind, i, t.at), func(s *system) string { return e.step(s, i) })
		}
	}
	if stuck {
		e.fault = e.settled(s)
	}
	if e.breaks {
		for c := range e.conns {
			if slices.ContainsFunc(s.tasks, func(t task) bool { return t.conn == c && !t.done() }) {
				e.next(s, fmt.Sprintf("end of %d", c), func(s *system) string { return e.end(s, c) })
			}
		}
	}
	if e.expires {
		for i := range s.holders {
			e.next(s, fmt.Sprintf("expiry of %d", s.holders[i].task), func(s *system) string {
				s.holders = slices.Delete(s.holders, i, i+1)
				s.grant()
				return ""
			})
		}
	}
}

// next visits the state after a step.
func (e *explorer) next(s system, name string, step func(*system) string) {
	if e.fault != "" {
		return
	}
	e.path = append(e.path, name)
	n := system{tasks: slices.Clone(s.tasks), holders: slices.Clone(s.holders), queue: slices.Clone(s.queue), machine: s.machine.clone()}
	what := step(&n)
	if what == "" {
		what = e.wake(&n)
	}
	if what != "" {
		e.fault = what + ": " + strings.Join(e.path, ", ")
	} else {
		e.visit(n)
	}
	e.path = e.path[:len(e.path)-1]
}

// step takes the next step of a task.
func (e *explorer) step(s *system, i int) string {
	t := &s.tasks[i]
	conn := e.conns[t.conn]
	switch m := programs[t.kind][t.at]; m {
	case lock1, lock10:
		limit := 1
		if m == lock10 {
			limit = 10
		}
		t.waiting = true
		s.queue = append(s.queue, grip{i, limit})
		s.grant()
		return ""
	case unlock:
		s.holders = slices.DeleteFunc(s.holders, func(g grip) bool { return g.task == i })
		s.grant()
	case discount:
		s.machine.discount(conn)
	case lower:
		s.machine.lower(conn)
	case enter, exit:
	default:
		q := question{conn: conn, echo: fmt.Sprint(i), ask: ask(m - question0)}
		if !s.machine.put(q) {
			t.waiting = true
			e.giveUp(s, t.conn)
			return ""
		}
	}
	t.at++
	return ""
}

// giveUp gives up the base locks of a connection, as the broker does for a question
// that waits.
func (e *explorer) giveUp(s *system, conn int) {
	if !e.keepBase {
		s.holders = slices.DeleteFunc(s.holders, func(g grip) bool { return s.tasks[g.task].conn == conn })
		s.grant()
	}
}

// grant grants the base lock in order, to as many as the smallest limit allows.
func (s *system) grant() {
	for len(s.queue) > 0 {
		limit := s.queue[0].limit
		for _, g := range s.holders {
			limit = min(limit, g.limit)
		}
		if len(s.holders)+1 > limit {
			return
		}
		t := &s.tasks[s.queue[0].task]
		t.waiting = false
		t.at++
		s.holders = append(s.holders, s.queue[0])
		s.queue = slices.Delete(s.queue, 0, 1)
	}
}

// end ends a connection.
func (e *explorer) end(s *system, conn int) string {
	for i := range s.tasks {
		if s.tasks[i].conn == conn {
			s.tasks[i].gone, s.tasks[i].waiting = true, false
		}
	}
	gone := func(g grip) bool { return s.tasks[g.task].conn == conn }
	s.holders = slices.DeleteFunc(s.holders, gone)
	s.queue = slices.DeleteFunc(s.queue, gone)
	s.grant()
	s.machine.leave(e.conns[conn])
	return ""
}

// wake brings the answers that a step made possible.
func (e *explorer) wake(s *system) string {
	for _, q := range s.machine.wake() {
		i := int(q.echo[0] - '0')
		t := &s.tasks[i]
		if t.gone || !t.waiting || programs[t.kind][t.at] != asks(q.ask) {
			return fmt.Sprintf("task %d is answered what it did not ask", i)
		}
		t.waiting = false
		t.at++
	}
	return ""
}

// wrong says what is wrong with a state.
func (e *explorer) wrong(s system) string {
	in, writers, counted, asked := 0, 0, 0, 0
	for _, t := range s.tasks {
		if t.inside() {
			in++
			if t.writes() {
				writers++
			}
		}
		if t.counted() {
			counted++
		}
		if t.waiting && programs[t.kind][t.at] >= question0 {
			asked++
		}
	}
	m := s.machine.state()
	switch {
	case writers > 0 && in > 1:
		return "a writer is beside somebody"
	case m.total != counted:
		return fmt.Sprintf("the monitor counts %d readers of %d", m.total, counted)
	case len(m.questions) != asked:
		return fmt.Sprintf("the monitor keeps %d questions of %d", len(m.questions), asked)
	}
	return ""
}

// settled says what is wrong with a state in which nothing moves.
func (e *explorer) settled(s system) string {
	for i, t := range s.tasks {
		if !t.done() {
			return fmt.Sprintf("task %d (%c) waits for ever at %d: %s", i, t.kind, t.at, strings.Join(e.path, ", "))
		}
	}
	if len(s.holders)+len(s.queue) > 0 || !s.machine.state().quiet() {
		return "all is over, and something is kept: " + strings.Join(e.path, ", ")
	}
	return ""
}

func (e *explorer) encode(s system) string {
	b := make([]byte, 0, 64)
	for _, t := range s.tasks {
		x := byte(t.at) << 2
		if t.waiting {
			x |= 1
		}
		if t.gone {
			x |= 2
		}
		b = append(b, x)
	}
	for _, g := range s.holders {
		b = append(b, byte(g.task), byte(g.limit))
	}
	b = append(b, 255)
	for _, g := range s.queue {
		b = append(b, byte(g.task))
	}
	m := s.machine.state()
	b = append(b, 255, byte(slices.Index(e.conns, m.writer)))
	for _, c := range e.conns {
		b = append(b, byte(m.readers[c]))
	}
	for _, q := range m.questions {
		b = append(b, q.echo...)
	}
	return string(b)
}

// layouts are which tasks share a connection.
var layouts = [][]int{{0, 1, 2, 3}, {0, 1, 0, 1}, {0, 0, 1, 2}, {0, 1, 2, 2}, {0, 0, 0, 0}}

// generations are two writers and two readers each.
var generations = []string{"wwrr", "wwrR", "wwRR", "wWrr", "wWrR", "wWRR", "WWrr", "WWrR", "WWRR"}

func TestMonitorExplored(t *testing.T) {
	soak := os.Getenv("LATCHKEY_SOAK") != ""
	states := 0
	for g, kinds := range generations {
		for l, conns := range layouts {
			if quick := l == 0 && g%4 == 0 || l == 3 && g == 2; !soak && !quick { // the others take ten times as long
				continue
			}
			e := &explorer{breaks: true, expires: soak || g == 2 || g == 4}
			n, fault := e.explore(kinds, conns, exact{&monitor{}})
			if states += n; fault != "" {
				t.Errorf("%s over %v: %s", kinds, conns, fault)
			}
		}
	}
	t.Logf("%d states", states)
}
