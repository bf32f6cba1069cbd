package rmap_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// A mutant is a defect, and the tests of which each must notice it.
type mutant struct {
	name, file, old, new string
	tests                []string
}

// mutants are in order of weight: the first few are planted in every run of the tests, all of them in a soak.
var mutants = []mutant{
	{"what was before is not looked at", "../internal/feed/feed.go", " && ch.Prev == c.at.Nonce", "",
		[]string{"TestSimulation"}},
	{"a reading forgets what came meanwhile", "reload.go", "			follow = append(follow, ch)\n", "			_ = follow\n",
		[]string{"TestSimulation", "TestReloadIsExact"}},
	{"a proof counts from its end", "keeper.go", "m.proved.Store(began)", "_ = began; m.proved.Store(c.clock.now())",
		[]string{"TestSimulation"}},
	{"a new connection is trusted", "copy.go", "	m.copy.up = true\n	m.doubt(nil)\n",
		"	m.copy.up = true\n	if m.copy.joined {\n		m.setState(Live, nil)\n		return\n	}\n	m.doubt(nil)\n",
		[]string{"TestSimulation"}},
	{"a reading goes on over another connection", "copy.go", "		p.lose() // what is being read", "		_ = p // what is being read",
		[]string{"TestReloadOverAFailover"}},
	{"the log is believed", "reload.go", "		if cursor.Judge(at) != feed.Next {\n			changes = changes[:i]\n			break\n		}\n",
		"		_ = i\n", []string{"TestSimulation"}},
	{"half of the log will do", "reload.go", "return changes, cursor.Meet(feed.Position(from), feed.Position(head)) != feed.Apart",
		"return changes, len(changes) > 0", []string{"TestHalfALog"}},
	{"a reading need not meet the head", "reload.go", "if !met || read.newest", "if read.newest",
		[]string{"TestSimulation"}},
	{"a store that went elsewhere is read on", "reload.go", "			return errMoved // the store was elsewhere", "			// the store was elsewhere",
		[]string{"TestReloadThereAndBack"}},
	{"the heartbeat waits for silence", "copy.go", "		m.apply(ch)\n		m.publish()\n	case feed.Duplicate:",
		"		m.apply(ch)\n		m.publish()\n		m.proved.Store(c.clock.now())\n	case feed.Duplicate:", []string{"TestSimulation"}},
	{"there is no heartbeat", "keeper.go", "compare := c.up && (now >= k.beat || ", "compare := c.up && (k.beat == 0 || ",
		[]string{"TestSimulation", "TestSilentLossIsFound", "TestSilentRollback"}},
	{"entries are shown past their deadline", "copy.go", "[]int64{c.expires, c.deadline.first()}", "[]int64{c.expires}",
		[]string{"TestSimulation", "TestEntryHiddenAtDeadline"}},
	{"a map is shown past its deadline", "copy.go", "[]int64{c.expires, c.deadline.first()}", "[]int64{c.deadline.first()}",
		[]string{"TestSimulation", "TestLateExtension"}},
	{"more time comes too late", "copy.go", "	if c.over && (c.expires == 0 || c.expires > c.clock.store(c.clock.now())) {",
		"	if false {", []string{"TestSimulation"}},
	{"a clear is not told", "copy.go", "		m.tell(Event[K, V]{Cause: CauseReset, Revision: r})\n", "", []string{"TestSimulation"}},
	{"what is hidden is told", "copy.go", "		c.subs = nil // they were told", "		_ = subs // they were told",
		[]string{"TestSimulation", "TestLateChangeOfAnEndedMap"}},
	{"a change is told before it is shown", "watch.go", "		c.told = append(c.told, e)\n", "		c.told = append(c.told, e)\n		m.deliver()\n",
		[]string{"TestSimulation"}},
	{"where the copy stood is not asked", "keeper.go", "meeting := c.cursor.Meet(from, at)", "_ = from; meeting := c.cursor.Meet(feed.Position{}, at)",
		[]string{"TestSimulation", "TestSilentRollback"}},
	{"a gap is no reason to doubt", "copy.go", "		c.stats.Strange++\n		m.doubt(nil)\n", "		c.stats.Strange++\n",
		[]string{"TestGapIsCaughtUp"}},
	{"Sync takes any proof", "keeper.go", "	k.finish(nil)\n", "	k.take()\n	k.finish(nil)\n", []string{"TestSimulation"}},
	{"removals have all the time", "keeper.go", "context.WithTimeout(ctx, time.Duration(max(k.beat-c.clock.now(), 0)))",
		"context.WithCancel(ctx)", []string{"TestPurge"}},
	{"nobody is let through the jitter", "keeper.go", "			if asked {\n				return\n			}\n", "			_ = asked\n",
		[]string{"TestJitterIsSkipped"}},
	{"the end of a map mends it", "copy.go", "if m.copy.up && (m.copy.state", "if (m.copy.state", []string{"TestEndWhileCutOff"}},
	{"a clock that was set back is not seen", "clock.go", "asked >= 0 && c.known &&", "false && c.known &&", []string{"TestClockSetBack"}},
}

// TestMutants shows that the tests can fail: each defect is planted into the sources, and its tests must notice.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	planted := mutants[:2]
	if os.Getenv("LATCHKEY_SOAK") != "" {
		planted = mutants
	}
	for _, m := range planted {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) { m.check(t) })
	}
}

func (m *mutant) check(t *testing.T) {
	binary, _ := trial.Plant(t, m.file, m.old, m.new)
	for _, test := range m.tests {
		run := exec.CommandContext(t.Context(), binary, "-test.run=^"+test+"$", "-test.timeout=60s")
		run.Env = append(os.Environ(), "LATCHKEY_SOAK=", "LATCHKEY_SEED=")
		if text, err := run.CombinedOutput(); err == nil || !strings.Contains(string(text), test) {
			t.Errorf("%s passes with the defect: %v\n%s", test, err, text)
		}
	}
}
