//go:build unix

package siege

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// A defect is planted in the product, or in the loader, which has its part to play; said is what the siege must say.
type defect struct{ name, file, old, new, said string }

// defects are in order of how soon they show: the first is planted in every run of the tests, all of them in a soak.
func defects() []defect {
	const older = "was finished before"
	return []defect{
		{"an invalidation does not wait", "../../invalidate.go", "if c.o.Bounded || len(members) == 0 {", "if true {", older},
		{"memory needs no position", "../../memory.go", " || int64(t) >= r.shard.until.Load()", "", older},
		{"the replica is read though the primary must be", "work_test.go", "if min == 0 {\n\t\tvar near", "if min != hotcache.Fresh {\n\t\tvar near", ""},
		{"copies have no stamp", "../core/front.go", "f.Holds(now, fl.home, fl.key, c.Stamp)", "true", older},
		{"there are no floors", "../../hotcacheredis/lua/prelude.lua", "  if not text then\n    return NONE, false", "  if true then\n    return NONE, false", older},
		{"a young node trusts the replica", "../../hotcacheredis/lua/ask.lua", "now - born < ttl or ", "", older},
		{"a lease outlives an invalidation", "../../hotcacheredis/lua/invalidate.lua", "if load and (load.why", "if false and (load.why", older},
		{"a flight outlives an invalidation", "../core/hear.go", "fl := f.open[inv.Key]; fl != nil", "fl := f.open[inv.Key]; fl != nil && false", older},
		{"a delivery that failed is done", "../../outbox/round.go", "case d.err == nil:", "case true:", "the caches were told of"},
		{"a lease lasts for ever", "../../hotcacheredis/lua/fill.lua", "call('DEL', LOAD)\nif below", "call('PERSIST', LOAD)\nif below", "context deadline exceeded"},
		{"a connection is left", "../../hotcacheredis/node.go", "\tif n.own {\n", "\tif false {\n", "goroutines are left"},
	}
}

// TestDefects sees the siege fail.
func TestDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds everything anew for each defect")
	}
	all, span := defects(), "60s"
	if os.Getenv("LATCHKEY_SOAK") == "" {
		all = all[:1]
	}
	for _, d := range all {
		t.Run(strings.ReplaceAll(d.name, " ", "-"), func(t *testing.T) {
			binary, _ := trial.Plant(t, d.file, d.old, d.new)
			cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestSiege$", "-test.v", "-test.timeout=5m")
			// With this seed processes trust their memory for long and write fast, which shows most.
			cmd.Env = append(os.Environ(), envDose+"="+span, envSeed+"=1")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), d.said) {
				t.Errorf("the siege passes with it, or does not say %q: %v\n%.4000s", d.said, err, out)
			}
		})
	}
}
