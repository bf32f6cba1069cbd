package core

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// A mutant is a defect, and the test that must notice it: TestHistories when none is named.
type mutant struct {
	name, file, old, new, test string
}

// mutants are in order of weight: the first few are planted in every run of the tests, all of them in a soak.
var mutants = []mutant{
	{"the floor is not looked at", "home.go", "if f.Item.Version < fl.version {", "if false {", ""},
	{"a flight outlives an invalidation", "hear.go", "fl := f.open[inv.Key]; fl != nil", "fl := f.open[inv.Key]; fl != nil && false", ""},
	{"memory outlives its trust", "sight.go", "return s.proof + d\n", "return s.proof + 10*d\n", ""},
	{"a copy needs no sight of its home", "front.go", "f.Holds(now, fl.home, fl.key, c.Stamp)", "true", ""},
	{"a lease outlives an invalidation", "home.go", "; ok && (version == 0 || l.min < version) {", "; ok && key == \"\" {", ""},
	{"a late fill is taken", "home.go", "!ok || l.token != f.Token || l.until <= now {\n\t\tr.Refusal", "!ok {\n\t\tr.Refusal", ""},
	{"a young node trusts replicas", "home.go", " || now-h.born < h.rules.FloorTTL", "", ""},
	{"a floor hides another", "home.go", "floor{max(old.version, version), old.unnamed || version == 0}", "floor{max(old.version, version), version == 0}", "TestNamedAndUnnamed"},
	{"a floor without a version hides one with", "home.go", "floor{max(old.version, version), old.unnamed || version == 0}",
		"map[bool]floor{true: {0, true}, false: {max(old.version, version), false}}[old.unnamed || version == 0]", ""},
	{"a flight is joined without proof", "front.go", " && f.Current(now, home))", ")", ""},
	{"copies and flights outlive the trust", "sight.go", "return s.proved && now < s.proof+d", "return s.proved", ""},
	{"a flight of the blind time is joined", "hear.go", "f.closeNode(node) // what", "// what", "TestFlightOfTheBlindTime"},
	{"what was forgotten is held", "sight.go", " || at.Number < s.forgotten", "", ""},
	{"generations are not told apart", "sight.go", "!s.known || at.Generation != s.cursor.At().Generation ||", "!s.known ||", ""},
	{"proof counts from the answer", "hear.go", "s.Meet(asked, head, sent)", "s.Meet(asked, head, now)", ""},
	{"a feed that broke is trusted", "hear.go", "f.nodes[node].sight.Lose()\n", "", "TestLost"},
	{"a head of a feed that broke is met", "hear.go", "sent < f.nodes[node].lost", "false", "TestHeadOfAFeedThatIsLost"},
	{"memory is not told", "hear.go", "f.do(Action{Do: DoDrop, Key: inv.Key})", "_ = DoDrop", ""},
	{"memory is not told of a loss", "hear.go", "f.do(Action{Do: DoDropNode, Node: node})", "_ = DoDropNode", ""},
	{"an invalidated item is served as stale", "home.go", "h.items.remove(key)\n\t}\n\tif l, ok",
		"k.since, k.times.Soft, k.times.Hard = now, 0, 0\n\t}\n\tif l, ok", ""},
	{"a row that was missing stays so", "home.go", "(version == 0 || k.item.Version < version)", "!k.item.Absent && (version == 0 || k.item.Version < version)", ""},
	{"a load without versions is never new enough", "front.go", "reached, item.Version = Fresh, fl.floor", "reached, item.Version = Fresh, 0", ""},
	{"a load without versions counts as what a reader wants", "front.go", "reached, item.Version = Fresh, fl.floor", "reached, item.Version = Fresh, max(fl.floor, fl.min.named())", "TestLoadsForWhoWantsMore"},
	{"who wants more than there is gets less", "serve.go", "if min.named() <= reached {", "if min.named() <= reached || true {", "TestLoadsForWhoWantsMore"},
	{"a load past a node is joined", "past.go", "if !first.loading {\n\t\tnext = first", "if true {\n\t\tnext = first", ""},
	{"a load past a node may read a replica", "past.go", "true, 0, Fresh, Fresh, nil", "true, 0, Fresh, 0, nil", ""},
	{"what the home refused is kept", "front.go", "r.Refusal == Stored && fl.stale", "fl.stale", ""},
	{"what is heard before a head is forgotten", "sight.go", "	s.cursor.Advance(inv.Change)\n\ts.note(inv.Key, inv.Number)\n\treturn lost", "	s.Lose()\n\treturn lost", ""},
	{"a head of the generation before is met", "sight.go", "at.Generation != asked.Generation && at", "false && at", "TestLateHead"},
	{"a late head passes over own invalidations", "sight.go", "if s.behind(head, sent) {\n\t\ts.Lose()", "if false {\n\t\ts.Lose()",
		"TestLateHeadAndOwnInvalidation"},
	{"a late head that was heard passes over own invalidations", "sight.go", "if !s.proved && s.behind(head, sent) {", "if false {",
		"TestLateHeadAndOwnInvalidation"},
	{"own invalidations tell of no generation", "sight.go", "	default:\n\t\ts.Lose()\n\t\treturn true\n", "", "TestNodeInAnotherGeneration"},
	{"own invalidations are not noted", "sight.go", "case inv.Generation == s.cursor.At().Generation:\n\t\ts.note(inv.Key, inv.Number)",
		"case inv.Generation == s.cursor.At().Generation:", ""},
	{"the row as it was is the row as it is", "front.go", "(fl.min != Fresh || min == 0) && ", "", ""},
	{"an older item replaces a newer", "home.go", "there && k.item.Version > f.Item.Version", "there && false", "TestFill"},
	{"a least version is not asked for", "home.go", " || k.item.Version < q.Min {", " {", ""},
	{"a wake is waited for for ever", "timer.go", "	f.at(now+max(retry, time.Millisecond), fl, timerRetry)\n", "", ""},
	{"a probe never ends", "past.go", "	n.probing = false\n", "", ""},
	{"a head ends no outage", "hear.go", "	f.vouch(node, sent)\n", "", "TestHeadEndsOutage"},
	{"heads end every outage", "past.go", " && !n.vouched", "", "TestHeadEndsOutage"},
	{"a lease whose fill failed is kept", "front.go", "		f.do(Action{Do: DoFail, Node: fl.home, Key: fl.key, Token: fl.token})\n", "", "TestFullNode"},
	{"a turn never ends", "turn.go", "	f.loads--\n", "", "TestTurns"},
	{"who waits for a turn is lost", "turn.go", "		f.turns = append(f.turns, fl)\n", "", ""},
	{"who has lost a lease loads all the same", "turn.go", "		if lost {\n", "		if false {\n", "TestTurnWithoutLease"},
	{"a lease that is shed is kept", "turn.go", "	f.do(Action{Do: DoFail, Node: fl.home, Key: fl.key, Token: fl.token})\n", "", "TestTurns"},
	{"a row that does not decode is had at any version", "front.go", "f.read(now, id, key, Fresh, min)", "f.read(now, id, key, Fresh, 0)", "TestReload"},
	{"who waits behind a load past a node is lost", "past.go", "		f.queue = append(f.queue, next)\n\t}\n\tfor", "	}\n\tfor", ""},
	{"a lease is not renewed", "turn.go", "	f.at(now+f.set.LeaseTTL/3, fl, timerRenew)\n", "", "TestRenewal"},
	{"a dead filler's lease lasts", "home.go", "if held && l.until <= now {", "if false {", ""},
	{"a failure is remembered for ever", "home.go", "if ok && f.until <= now {\n\t\tdelete(h.failed, key)\n\t\treturn f, false", "if false {\n\t\treturn f, false", ""},
	{"waiters load one after the other", "timer.go", "if other.min == fl.min {", "if false {", "TestWaitersShare"},
	{"hot is what is counted at most", "hot.go", "busy && float64(c.Least()) >= enter && len", "busy && float64(c.Count) >= enter && len", "TestHotRuleUsesTheLowerBound"},
	{"hot keys leave at the share", "hot.go", ">= enter/2 {", ">= enter {", "TestHotRule"},
	{"hot keys leave at once", "hot.go", "k.cold >= coldWindows", "k.cold >= 1", "TestHotRule"},
	{"an idle fleet has hot keys", "hot.go", "busy := h.fleet.Total >= h.set.Least", "busy := true", "TestHotRule"},
	{"everybody decides alone", "hot.go", "r.kind != reportSet && r.from != h.set.Me", "false", "TestHotRuleCountsTheFleet"},
	{"a part of a window counts as one", "hot.go", "heard{r.Scale(uint64(h.set.Window), uint64(r.over)),", "heard{r.Summary,", "TestHotReportsAreEarly"},
	{"a hot key waits for the end of its window", "hot.go", "	h.hurried = true\n", "	return nil\n", "TestHotReportsAreEarly"},
	{"the busier of two is read", "hot.go", ".load(now, h.memory()) < h", ".load(now, h.memory()) > h", "TestPick"},
	{"a stalled node is read", "load.go", "usual + max(0, float64(l.flying)-2*usual-2)", "usual", "TestPick"},
	{"a slow node is read", "load.go", "max(now-asked, leastAnswer)", "leastAnswer", "TestPick"},
	{"all refresh a copy at once", "hot.go", "due := k.refresh != 0 &&", "due := k.refresh == 0 ||", "TestRefreshIsSpread"},
	{"copies are not put by who fills", "front.go", "	f.putCopies(fl, Copy", "	_ = (Copy", "TestCopiesOfFills"},
	{"a new key counts from nothing", "topk.go", "t.counters[c].key, t.counters[c].err = key, b.count", "t.counters[c].key, t.counters[c].err = key, 0", "TestTopKBounds"},
	{"what another part may have seen is left out", "topk.go", "most := max(add(out.Missing, k.most), k.least)", "most := max(k.most, k.least)", "TestMergeBounds"},
	{"keys that are cut were not counted", "topk.go", "s.Missing = max(s.Missing, s.Keys[n].Count)", "_ = n", "TestTopKBounds"},
	{"keys that do not fit were not counted", "report.go", "missing = max(missing, c.Count)", "_ = c", "TestReportIsRead"},
}

// TestMutants shows that the tests can fail: each defect is planted into the source, and its test must notice.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	planted := mutants[:5]
	if os.Getenv("LATCHKEY_SOAK") != "" {
		planted = mutants
	}
	for _, m := range planted {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			binary, _ := trial.Plant(t, m.file, m.old, m.new)
			test, most := m.test, "-core.most=3000"
			if test == "" {
				test = "TestHistories"
			}
			run := exec.CommandContext(t.Context(), binary, "-test.run=^"+test+"$", "-test.timeout=300s", most)
			run.Env = append(os.Environ(), "LATCHKEY_SOAK=")
			if text, err := run.CombinedOutput(); err == nil || !strings.Contains(string(text), "--- FAIL: "+test) {
				t.Errorf("%s passes with the defect: %v\n%.2000s", test, err, text)
			}
		})
	}
}
