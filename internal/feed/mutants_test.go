package feed_test

import (
	"cmp"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// A mutant is a defect, and the tests of which each must notice it.
type mutant struct {
	name, old, new string
	tests          []string
	file           string // feed.go when empty
}

// mutants are in order of weight: the first few are planted in every run of the tests, all of them in a soak.
var mutants = []mutant{
	{"a store that went back is current", "head.Number < asked.Number && c.passed(asked) == yes", "false",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"a change follows any other", " && ch.Prev == c.at.Nonce", "",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"heads are told apart by number", "if head == c.at {", "if head.Number == c.at.Number {",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"a generation is adopted when nothing is held", "ch.Generation != c.at.Generation || ch.Nonce", "c.at.Exists() && ch.Generation != c.at.Generation || ch.Nonce",
		[]string{"TestUniverse", "TestStaleLife"}, ""},
	{"nonces are not looked at", "c.recent[p.Number%Remembered] != p.Nonce", "c.recent[p.Number%Remembered] == p.Nonce+p.Generation",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"generations are not looked at", "!p.Exists() || p.Generation != c.at.Generation || p.Number", "p.Number",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"a duplicate is told by its number", "if c.passed(ch.Position) == yes {", "if ch.Number <= c.at.Number {",
		[]string{"TestUniverse"}, ""},
	{"what is forgotten was never there", "	if p.Number < c.oldest {\n		return unknown\n	}\n", "",
		[]string{"TestUniverse", "TestRemembered", "TestAhead"}, ""},
	{"one nonce too many is remembered", "if ch.Number-c.oldest >= Remembered {", "if ch.Number-c.oldest > Remembered {",
		[]string{"TestRemembered"}, ""},
	{"one nonce too few is remembered", "c.oldest = ch.Number - Remembered + 1", "c.oldest = ch.Number - Remembered + 2",
		[]string{"TestRemembered", "TestAhead"}, ""},
	{"a cursor forgets what it is told", "	c.recent[ch.Number%Remembered] = ch.Nonce\n", "",
		[]string{"TestUniverse", "TestRemembered", "TestSteady"}, ""},
	{"a new reading keeps what was known", "*c = Cursor{at: p, oldest: p.Number}", "c.at = p",
		[]string{"TestUniverse"}, ""},
	{"a clear is no reset", "return cleared > c.at.Number", "return false",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"a clear that was seen is a reset", "return cleared > c.at.Number", "return cleared >= c.at.Number",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"going back to the same number is no reset", "to.Number == c.at.Number && to.Nonce != c.at.Nonce", "false",
		[]string{"TestUniverse", "TestEverySchedule"}, ""},
	{"a new life is no reset", "to.Generation != c.at.Generation || to.Number", "to.Number",
		[]string{"TestUniverse", "TestEverySchedule", "TestLongSchedules"}, ""},
	{"a first reading is a reset", "	if !c.at.Exists() {\n		return false //", "	if !c.at.Exists() {\n		return true //",
		[]string{"TestUniverse"}, ""},
	{"what is older than remembered is not covered", "c.passed(p) != no", "c.passed(p) == yes",
		[]string{"TestUniverse", "TestRemembered"}, ""},
	{"a change needs no name", " || ch.Nonce == 0 {", " {", []string{"TestUniverse"}, ""},
	{"number 0 follows the last", "ch.Number != 0 && ", "", []string{"TestLastNumbers"}, ""},

	// A follower that does not do all that it must is rejected too.
	{"the second head is not looked at", "if !ok || c.Meet(w.asked, w.head.at) != feed.Current {", "if !ok {",
		[]string{"TestEverySchedule", "TestLongSchedules"}, "follower_test.go"},
	{"what came during the reading is forgotten", "			data = s.op.do(data, s.at.Nonce)\n", "",
		[]string{"TestEverySchedule", "TestLongSchedules"}, "follower_test.go"},
	{"a reading outlives its subscription", "ok := !w.lost || !w.wentBack", "ok := true",
		[]string{"TestEverySchedule"}, "follower_test.go"},
	{"what cannot follow is no reason to ask", "if w.stage == quiet && !reading {", "if false {",
		[]string{"TestUnheard"}, "follower_test.go"},
	{"entries of nothing are taken", "if !w.head.at.Exists() { // there", "if false { // there",
		[]string{"TestNothingToRead"}, "follower_test.go"},
}

// TestMutants shows that the tests can fail: each defect is planted into the source, and each of its tests must
// notice.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	planted := mutants[:8]
	if os.Getenv("LATCHKEY_SOAK") != "" {
		planted = mutants
	}
	for _, m := range planted {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			binary, _ := trial.Plant(t, cmp.Or(m.file, "feed.go"), m.old, m.new)
			for _, test := range m.tests {
				run := exec.CommandContext(t.Context(), binary, "-test.run=^"+test+"$", "-test.timeout=20s")
				run.Env = append(os.Environ(), "LATCHKEY_SOAK=")
				if text, err := run.CombinedOutput(); err == nil || !strings.Contains(string(text), "--- FAIL: "+test) {
					t.Errorf("%s passes with the defect: %v\n%s", test, err, text)
				}
			}
		})
	}
}
