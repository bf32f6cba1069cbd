package actor_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// mutants are defects and the test that each must fail. The first few are planted in
// every run, all of them in a soak.
var mutants = []struct{ name, file, old, new, test string }{
	{"the last to wait is the first to be let in", "mailbox.go", "		s := m.first\n		m.unlinkLocked(s)\n		m.pushLocked", "		s := m.last\n		m.unlinkLocked(s)\n		m.pushLocked", "TestFirstComeFirstServed"},
	{"senders that wait are not refused", "mailbox.go", "	for m.first != nil {\n		s := m.first\n		m.unlinkLocked(s)\n		s.refused", "	for false {\n		s := m.first\n		m.unlinkLocked(s)\n		s.refused", "TestClose"},
	{"the circle is not looked for", "nested.go", "if circle == nil {", "if circle == nil || len(circle) > 1 {", "TestCircle"},
	{"an ask that was given up runs", "send.go", "return r.state.CompareAndSwap(queued, running) }", "return r.state.Swap(running) != over }", "TestGivenUp"},
	{"closing drops what is queued", "mailbox.go", "	m.closed = true\n", "	m.closed = true\n	m.tail.Store(m.head.Load())\n	m.upto = m.tail.Load()\n", "TestClose"},
	{"the last report is lost", "core.go", "if err := c.unseen; err != nil {", "if err := c.unseen; err != nil && !c.closed {", "TestMapUnhashable"},
	{"room is one too many", "mailbox.go", "if m.first == nil && m.tail.Load()-m.head.Load() < m.limit {", "if m.first == nil && m.tail.Load()-m.head.Load() <= m.limit {", "TestFull"},
	{"a room that is free is not given on", "mailbox.go", "	if m.waiting.Load() > 0 {", "	if m.waiting.Load() > 1 {", "TestOrder"},
	{"edges of the past count", "nested.go", "if path == nil || same(path) {", "if path == nil || len(path) > 0 {", "TestNoCircleOfThePast"},
	{"the edge of an ask is left to the caller", "send.go", "		r.from.proceed() // the caller is known to wait here: see node\n", "", "TestAnsweredIsNoCircle"},
	{"the edge of a tell is left to the caller", "mailbox.go", "	if s.from != nil {\n		s.from.proceed()\n	}\n	s.ready", "	s.ready", "TestAnsweredIsNoCircle"},
	{"the edge of a future is left to the caller", "future.go", "owner.await(f.from, f.done,", "owner.await(f.from, nil,", "TestAnsweredIsNoCircle"},
	{"the edge of a future is left behind", "future.go", "owner.await(f.from, f.done, \"to wait for\"); err != nil {\n			return none, err\n		}\n		defer owner.proceed()\n", "owner.await(f.from, nil, \"to wait for\"); err != nil {\n			return none, err\n		}\n", "TestNoCircleAfterwards"},
	{"the edge is set after the look", "nested.go", "	n.waits.Store(&edge{to, over})\n	circle := n.circle()\n", "	circle := n.circle()\n	n.waits.Store(&edge{to, over})\n", "TestCircle"},
	{"Goexit ends the owner", "core.go", "		c.start()\n	}()\n	if err := c.unseen", "	}()\n	if err := c.unseen", "TestDidNotReturn"},
	{"a panic is swallowed", "core.go", "		c.broken(&PanicError{v, debug.Stack()})\n", "		c.current = entry[S]{}\n", "TestReported"},
	{"errors of tells are swallowed", "core.go", "		if err != nil {\n			c.report(err)\n		}\n	}\n", "		_ = err\n	}\n", "TestReported"},
	{"a message is run again after a panic", "core.go", "	was := c.current\n", "	was := c.current\n	c.head.Add(^uint64(0))\n	c.ring[c.head.Load()&uint64(len(c.ring)-1)] = was\n", "TestCloseAtRandomMoments"},
	{"messages run from behind", "mailbox.go", "	at := &m.ring[h&uint64(len(m.ring)-1)]\n", "	if m.upto-h > 1 && h%2 == 0 {\n		a, b := &m.ring[h&uint64(len(m.ring)-1)], &m.ring[(h+1)&uint64(len(m.ring)-1)]\n		*a, *b = *b, *a\n	}\n	at := &m.ring[h&uint64(len(m.ring)-1)]\n", "TestOrder"},
	{"tells are lost", "map.go", "		s[key] += n\n", "		if _, ok := s[key]; ok || len(s) == 0 {\n			s[key] += n\n		}\n", "TestMapHistories"},
	{"the owner is not inside of its message", "core.go", "	me := held.Who().Enter(held.Frame{Kind: held.Actor, Of: unsafe.Pointer(&c.node)})\n	returned", "	me := held.Who()\n	returned", "TestConstructor"},
	{"locks are no obstacle", "nested.go", "	case waits:\n", "	case waits && top.Kind == held.Var:\n", "TestMatrix"},
	{"the last act is left out", "core.go", "	for c.next(&c.current) || c.part(&c.current) {\n", "	for c.next(&c.current) {\n", "TestLastAct"},
	{"the last act comes with the first pause", "part.go", "c.parting == nil || c.found != ended {", "c.parting == nil {", "TestLastAct"},
	{"the last act's error is told twice", "part.go", "	if c.closers > 0 {\n", "	if c.closers > 5 {\n", "TestLastActFails"},
	{"who gave up in Close counts as told", "part.go", "	c.closers--\n", "", "TestLastActUnseen"},
	{"the last act's panic is not reported", "core.go", "c.found == ended && c.unseen == nil {", "c.found == ended {", "TestLastActUnseen"},
	{"the name is said twice", "errors.go", "; ok && e.name == n.name {", "; ok && e.name != n.name {", "TestLastActUnseen"},
	{"nobody ends the forgotten", "object.go", "func(c *core[*T]) { c.shut() }", "func(*core[*T]) {}", "TestForgotten"},
}

const everyRun = 5

// TestMutants shows that the tests can fail: each defect is planted into our sources,
// and its test must fail.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	for i, m := range mutants {
		if i >= everyRun && os.Getenv("LATCHKEY_SOAK") == "" {
			break
		}
		t.Run(m.name, func(t *testing.T) {
			binary, _ := trial.Plant(t, m.file, m.old, m.new)
			out, err := exec.CommandContext(t.Context(), binary, "-test.run=^"+m.test+"$", "-test.timeout=10s").CombinedOutput()
			if err == nil {
				t.Errorf("%s passes with the defect:\n%s", m.test, out)
			}
		})
	}
}
