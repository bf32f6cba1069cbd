package stm_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// A mutant is a defect, and the test that must notice it.
type mutant struct {
	name, file, old, new, test string
}

// mutants are in order of weight: the first few are planted in every run of the
// tests, all of them in a soak.
var mutants = []mutant{
	{"reads are not checked again", "run.go",
		"		if e.core.settled() != e.value {\n			r.conflict()\n		}\n	}\n	r.own()", "	}\n	r.own()", "TestOpacity"},
	{"checks do not look at locks", "run.go",
		"		if e.core.settled() != e.value {\n			r.conflict()\n		}\n	}\n	r.own()",
		"		if e.core.load() != e.value {\n			r.conflict()\n		}\n	}\n	r.own()", "TestReaderSeesLocks"},
	{"a commit does not check its reads", "commit.go",
		"l&publishing != 0 && l != mine || e.core.load() != e.value", "l&publishing != 0 && l != mine", "TestHistory"},
	{"a commit does not look at others' locks", "commit.go",
		"l&publishing != 0 && l != mine || e.core.load()", "l == 0 && l == mine || e.core.load()", "TestSkewStepByStep"},
	{"a transaction that recovers commits", "stm.go", "	case r.doomed: //", "	case false: //",
		"TestTrapSwallowedPanic"},
	{"big checks do not look at locks", "run.go",
		"if e := &r.reads.entries[i]; e.core.settled() != e.value {",
		"if e := &r.reads.entries[i]; e.core.load() != e.value {", "TestBigSeesEarlierLocks"},
	{"stamps are not looked at", "run.go", "if c.stamp.Load() <= r.clock {", "if true {", "TestOpacity"},
	{"commits do not stamp", "core.go", "c.stamp.Store(stamp)", "_ = stamp", "TestOpacity"},
	{"overwritten values are not restored", "run.go",
		"r.writes.entries[r.undo[i].place].value = r.undo[i].value", "_ = i", "TestModel"},
	{"what is kept is not given back", "run.go", "core.lock.CompareAndSwap(r.word(), 0)", "core.lock.CompareAndSwap(r.word(), r.word())", "TestKept"},
	{"a wait does not look again", "wait.go",
		"if reads[i].core.load() != reads[i].value {", "if false {", "TestAwaitLooksAgain"},
	{"one is woken", "wait.go", "		default: // woken already\n		}", "		default: // woken already\n		}\n		break", "TestRetryWakesAll"},
	{"a panic leaves the gate closed", "stm.go", "r.leave() // and it", "r.me.Leave() // and it", "TestEnds"},
	{"what is set at once wakes nobody", "now.go", "	c.wake()\n", "", "TestSetNow"},
	{"what is set at once does not join", "now.go", "Kind != held.Transaction", "Kind != 0xff", "TestModel"},
	{"what is set at once overtakes a commit", "now.go", "return c.lock.CompareAndSwap(0, publishing) ||", "return true ||", "TestSetNowWaits"},
	{"a Tx outlives its attempt", "run.go", "	r.gen.Add(1)\n", "", "TestTxAfterItsEnd"},
}

// TestMutants shows that the tests can fail: each defect is planted into the sources,
// and its test must notice.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	planted := mutants[:5]
	if os.Getenv("LATCHKEY_SOAK") != "" {
		planted = mutants
	}
	for _, m := range planted {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) { m.check(t) })
	}
}

func (m *mutant) check(t *testing.T) {
	binary, _ := trial.Plant(t, m.file, m.old, m.new)
	run := exec.CommandContext(t.Context(), binary, "-test.run=^"+m.test+"$", "-test.timeout=10s", "-rapid.nofailfile")
	run.Env = append(os.Environ(), "LATCHKEY_SOAK=")
	if text, err := run.CombinedOutput(); err == nil || !strings.Contains(string(text), m.test) {
		t.Errorf("%s passes with the defect: %v\n%s", m.test, err, text)
	}
}
