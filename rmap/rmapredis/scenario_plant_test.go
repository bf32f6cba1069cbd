package rmapredis_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// plants are defects, each with the test that must fail of it. They are in order of weight: the first few are planted
// in every run of the tests, all of them in a soak.
var plants = []struct{ name, file, old, new, test string }{
	{"a resubscription proves that nothing was missed", "../copy.go",
		"	m.copy.up = true\n	m.doubt(nil)\n", "	m.copy.up = true\n	m.setState(Live, nil)\n", "TestP02SureGap"},
	{"positions of the same number are the same", "../../internal/feed/feed.go",
		"	if head == c.at {\n", "	if head.Generation == c.at.Generation && head.Number == c.at.Number {\n", "TestH01RollbackToTheSameNumber"},
	{"there is no heartbeat", "../keeper.go",
		"	k.beat = c.clock.now() + int64(m.opts.Heartbeat)\n", "	k.beat = c.clock.now() + int64(time.Hour)\n", "TestH02LostLastChange"},
	{"a life is adopted by an empty copy", "../../internal/feed/feed.go",
		"ch.Generation != c.at.Generation || ch.Nonce", "c.at.Exists() && ch.Generation != c.at.Generation || ch.Nonce", "TestS15ForeignGeneration"},
	{"what is removed at its deadline is not announced", "lua/prelude.lua",
		"  step(how .. #key .. ':' .. key)\n", "  if how ~= 'x' then step(how .. #key .. ':' .. key) end\n", "TestH03ExpiryWithoutAWrite"},
	{"any change follows any other", "../../internal/feed/feed.go",
		"ch.Number-1 == c.at.Number && ch.Prev == c.at.Nonce {", "ch.Generation == c.at.Generation {", "TestSoak"},
	{"a copy is always as good as new", "../lag.go",
		"	return time.Duration(m.copy.clock.now() - m.proved.Load())\n", "	return 0\n", "TestSoak"},
	{"lives are not told apart", "../../internal/feed/feed.go",
		"	if !ch.Exists() || ch.Generation != c.at.Generation || ch.Nonce == 0 {\n		return Reload\n	}\n	if ch.Number != 0 && ch.Number-1 == c.at.Number && ch.Prev == c.at.Nonce {",
		"	if ch.Generation != c.at.Generation || ch.Number != 0 && ch.Number-1 == c.at.Number && ch.Prev == c.at.Nonce {", "TestS02WritesPassTheOldNumbers"},
	{"an end is no reset", "../reload.go",
		"			event.Cause = CauseReset\n", "			event.Cause = CauseReload\n", "TestS01ExpiryThenOneWrite"},
	{"an entry outlives its deadline in the copy", "../copy.go",
		"	for _, at := range []int64{c.expires, c.deadline.first()} {\n", "	for _, at := range []int64{c.expires} {\n", "TestH03ExpiryWithoutAWrite"},
	{"a silent connection is trusted", "store.go",
		"Heartbeat: o.Heartbeat, Timeout: o.Pong", "Heartbeat: time.Hour, Timeout: o.Pong", "TestP05FrozenLink"},
	{"what was sent counts as not sent", "errors.go",
		"	return fmt.Errorf(\"%w: %w\", rmap.ErrUnknown, err)\n}\n\n// unsent", "	return fmt.Errorf(\"%w: %w\", rmap.ErrUnavailable, err)\n}\n\n// unsent", "TestH08OutcomesAreToldApart"},
	{"a newer format is read", "layout.go", "	case n > uint64(newest):\n", "	case n > 100:\n", "TestS24TwoVersions"},
	{"a newer format is written over", "lua/prelude.lua",
		"tonumber(version) > tonumber(VERSION)", "tonumber(version) > 100", "TestS24TwoVersions"},
	{"foreign data is written into", "lua/prelude.lua",
		"elseif redis.call('EXISTS', HASH) == 1 then\n  map.fail('FOREIGN')\n", "elseif false then\n  map.fail('FOREIGN')\n", "TestS16ForeignData"},
	{"SetAndWait does not wait", "../wait.go",
		"	err = m.waitFor(ctx, r)\n	if err == nil {\n", "	err = ctx.Err()\n	if err == nil {\n", "TestP10LostOwnNotice"},
	{"a map with nothing new is read anew after each loss", "../keeper.go",
		"		case meeting == feed.Current:\n", "		case meeting == feed.Current && !m.copy.rushed:\n", "TestH05NoReloadAfterAnEmptyLoss"},
	{"the log is never used", "../keeper.go", "		if try == 0 {\n", "		if try == loadTries {\n", "TestS05CutOff"},
}

const everyRun = 5

// TestPlantedDefects shows that these tests can fail.
func TestPlantedDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	for i, p := range plants {
		if i >= everyRun && os.Getenv("LATCHKEY_SOAK") == "" {
			break
		}
		t.Run(p.name, func(t *testing.T) {
			binary, _ := trial.Plant(t, p.file, p.old, p.new)
			run := exec.CommandContext(t.Context(), binary, "-test.run=^"+p.test+"$", "-test.timeout=60s")
			run.Env = append(os.Environ(), "LATCHKEY_SOAK=", envPlanted+"=1")
			out, err := run.CombinedOutput()
			if err == nil {
				t.Fatalf("%s passes", p.test)
			}
			if !strings.Contains(string(out), p.test) {
				t.Fatalf("it failed of something else:\n%s", out)
			}
		})
	}
}
