package locked

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// mutant is a defect planted into the source.
type mutant struct {
	name, file string
	old, new   string // old is there exactly once
	test       string // that must fail
	slow       bool   // only in full doses
}

var mutants = []mutant{
	{name: "two have the lock", file: "lock.go", test: "TestLockExcludes", slow: true,
		old: "if s := l.word.Load(); s&taken == 0 && l.word.CompareAndSwap(s, s|taken) {\n\t\t\treturn nil", new: "if s := l.word.Load(); s&waiting == 0 && l.word.CompareAndSwap(s, s|taken) {\n\t\t\treturn nil"},
	{name: "newcomers overtake for ever", file: "lock.go", test: "TestLockStarvesNobody",
		old: "next.granted = next.impatient", new: "next.granted = false"},
	{name: "who gives up keeps what it was given", file: "lock.go", test: "TestLockPassesOn", slow: true,
		old: "if w.granted || !w.reads && l.pass() {", new: "if w.granted && !w.reads && l.pass() {"},
	{name: "readers wait in line", file: "lock.go", test: "TestLockSettles", slow: true,
		old: "for l.head != nil && (l.head.reads || next == nil) {", new: "for l.head != nil && next == nil {\n\t\tif readers != nil {\n\t\t\tbreak\n\t\t}"},
	{name: "releases are not counted", file: "lock.go", test: "TestLockCounts", slow: true,
		old: "\ts += release\n", new: ""},
	{name: "Load does not wait", file: "var.go", test: "TestVarReadsDuringUpdate", slow: true,
		old: "\tif v.lock.taken() {\n\t\t_ = v.lock.settle(context.Background()) // cannot fail without a context\n\t}\n", new: ""},
	{name: "a failed update stores", file: "var.go", test: "TestVarFailingUpdate", slow: true,
		old: "\tx, err := fn(old)\n\tif err != nil {\n", new: "\tx, err := fn(old)\n\tif err != nil {\n\t\tv.cell.put(x)\n"},
	{name: "numbers leave their word", file: "cell.go", test: "TestNumbersStayInTheirWord", slow: true,
		old: "func (c *cell[T]) put(v T) {\n\tif unsafe.Pointer(c.p.Load()) == unsafe.Pointer(&c.word) {", new: "func (c *cell[T]) put(v T) {\n\tif c.p.Load() == nil && c.word.Load() == 1 {"},
	{name: "entries that were taken out are used", file: "keymap.go", test: "TestKeyMapDeleteWhileWaiting", slow: true,
		old: "\tif e.extra.dead {\n", new: "\tif e.extra.dead && e.cell.full() {\n"},
	{name: "keys without a value stay", file: "keymap.go", test: "TestKeyMapModel",
		old: "\t\tp.index.remove(hash, e)\n", new: ""},
	{name: "two entries of one key", file: "keymap.go", test: "TestClaimLooksAgain", slow: true,
		old: "\tif e := p.index.find(hash, key); e != nil {\n\t\treturn e, false\n\t}\n", new: ""},
	{name: "creators do not look again", file: "keymap.go", test: "TestGetOrCreateLeaderFails", slow: true,
		old: "\tif v, ok := e.cell.get(); ok {\n\t\treturn v, nil\n\t}\n", new: ""},
	{name: "Store does not wait", file: "var.go", test: "TestVarStore", slow: true,
		old: "\tv.lock.lock(context.Background())\n\tv.cell.put(x)\n\tv.lock.unlock()\n", new: "\tv.cell.put(x)\n"},
	{name: "DeleteIf asks twice", file: "keymap.go", test: "TestDeleteIf", slow: true,
		old: "\tif !fn(v) {\n", new: "\tif !fn(v) && !fn(v) {\n"},
	{name: "DeleteIf takes out what it asks about", file: "keymap.go", test: "TestDeleteIfFails",
		old: "\tif !fn(v) {\n", new: "\te.cell.p.Store(nil)\n\tif !fn(v) {\n"},
	{name: "a search ends at what was removed", file: "index.go", test: "TestKeyMapModel", slow: true,
		old: "\t\tif e == nil {\n\t\t\treturn nil\n", new: "\t\tif e == nil || e == &t.gone {\n\t\t\treturn nil\n"},
	{name: "tables do not shrink", file: "index.go", test: "TestKeyMapMemory", slow: true,
		old: "len(t.slots) > smallest && x.live*8 < len(t.slots)", new: "x.live < 0"},
	{name: "readers of a Map do not look twice", file: "map.go", test: "TestSnapshotBeginsAnew",
		old: "return now&taken == 0 && now/release == before/release", new: "return now&taken == 0 || now/release == before/release"},
	{name: "steps are undone twice", file: "section.go", test: "TestMapModel", slow: true,
		old: "\t\tw.undone = true\n", new: ""},
	{name: "what an inner section wrote is forgotten", file: "section.go", test: "TestMapModel",
		old: "\tm.number++ // what follows", new: "\t// what follows"},
	{name: "a table is not put back", file: "section.go", test: "TestSectionFails", slow: true,
		old: "\t\t\tm.index.table.Store(w.full.table)\n", new: ""},
	{name: "sections are not void", file: "section.go", test: "TestSectionIsVoid", slow: true,
		old: "\ts.number = 0\n", new: ""},
	{name: "only transactions refuse", file: "nested.go", test: "TestMatrix", slow: true,
		old: "return inside.Kind != 0 && inside.Kind != held.Actor", new: "return inside.Kind == held.Transaction"},
	{name: "Add is not refused", file: "var.go", test: "TestMatrix",
		old: "\tif top := held.Who().Top(); refuses(top) {\n\t\tpanic(refusal(v.call(\"Add", new: "\tif top := held.Who().Top(); refuses(top) && top.Kind != held.Map {\n\t\tpanic(refusal(v.call(\"Add"},
}

// Each defect that is planted into the source fails the test that is there for it.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	for _, m := range mutants {
		if m.slow && os.Getenv("LATCHKEY_SOAK") == "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t)
		})
	}
}

func (m *mutant) check(t *testing.T) {
	binary, _ := trial.Plant(t, m.file, m.old, m.new)
	run := exec.CommandContext(t.Context(), binary, "-test.run=^"+m.test+"$", "-test.timeout=1m", "-rapid.nofailfile")
	text, err := run.CombinedOutput()
	caught := func(sign string) bool { return strings.Contains(string(text), sign) }
	if err == nil || !caught("FAIL: "+m.test) && !caught("deadlock") && !caught("test timed out") {
		t.Errorf("%s passes with the defect: %v\n%s", m.test, err, text)
	}
}
