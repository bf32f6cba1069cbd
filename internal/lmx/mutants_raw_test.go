//go:build unix

package lmx_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/internal/trial"
)

// mutant is a defect planted into our sources.
type mutant struct {
	name     string
	file     string // below the root of the module
	old, new string // old is there exactly once
	test     string // that must fail
	slow     bool   // only in full doses: building it takes long
}

// mutants are the defects that the npm broker of the version at hand does not have,
// and some that random histories must meet.
var mutants = []mutant{
	{
		name: "the first max sticks", test: "TestDefect05StickyMax", file: "internal/lmx/lock.go",
		old: "	if q.Limit > 0 {\n		k.max = q.Limit\n", new: "	if k.max > 0 {\n		q.Limit = k.max\n	} else if q.Limit > 0 {\n		k.max = q.Limit\n",
	},
	{
		name: "tokens start anew from the clock", test: "TestDefect06Tokens", file: "lease/internal/engine/engine.go", slow: true,
		old: "func (e *Engine) nextToken() uint64 {\n	e.token++\n",
		new: `var lastGrant, firstToken uint64

func (e *Engine) nextToken() uint64 {
	ms := uint64(e.now / 1e6)
	if firstToken == 0 {
		firstToken = e.token
	}
	if ms >= lastGrant+2000 {
		e.token = firstToken + ms
	}
	lastGrant = ms
	e.token++
`,
	},
	{
		name: "many keys are counted", test: "TestDefect08ManyKeysExclude", file: "internal/lmx/many.go",
		old: "Try: f.wait.False(), Detach: f.keep.True()}", new: "Try: f.wait.False(), Detach: f.keep.True(), Mode: lease.Counted, Limit: 5}",
	},
	{
		name: "many-key leases are counted out by release alone", test: "TestDefect11Gauges", file: "lease/internal/engine/hold.go", slow: true,
		old: "		if len(r.holds) > 1 {\n			e.stats.ManyHolds--", new: "		if len(r.holds) > 1 && how == released {\n			e.stats.ManyHolds--",
	},
	{
		name: "a try that is refused stays queued", test: "TestDefect12RefusedHTTP", file: "lease/internal/engine/acquire.go", slow: true,
		old: "	case q.Try:\n", new: "	case q.Try:\n		_ = e.wait(r, q, c, at, where)\n",
	},
	{
		name: "HTTP has no default ttl", test: "TestDefect13HTTPExpires", file: "internal/httpserve/locks.go", slow: true,
		old: "		req.TTL = defaultTTL\n", new: "		req.TTL = lease.Forever\n",
	},
	{
		name: "free keys are kept", test: "TestDefect17NothingToCollect", file: "internal/lmx/keys.go",
		old: "	if k.monitor == nil {\n		delete(s.keys, name)\n	}\n", new: "",
	},
	{
		name: "ended ids are kept", test: "TestDefect18NothingForEver", file: "internal/lmx/keys.go",
		old: "const maxEnded = 16_384", new: "const maxEnded = 1 << 30",
	},
	{
		name: "each frame is printed", test: "TestDefect21Quiet", file: "internal/lmx/conn.go", slow: true,
		old: "	f := &c.in\n", new: "	f := &c.in\n	println(string(line))\n",
	},
	{
		name: "any address will do for HTTP", test: "TestDefect23HTTPExposure", file: "cmd/latchkey/serve.go", slow: true,
		old: "if !o.insecure && !isLoopback(host)", new: `if l.flag != "--http" && !o.insecure && !isLoopback(host)`,
	},
	{
		name: "any address will do", test: "TestDefect25Loopback", file: "cmd/latchkey/serve.go", slow: true,
		old: "if !o.insecure && !isLoopback(host)", new: `if l.flag != "--listen" && !o.insecure && !isLoopback(host)`,
	},
	{
		name: "the largest max counts", test: "TestRandomHistories", file: "lease/internal/engine/queue.go",
		old: "k.limit != 0 && k.n+1 <= min(k.limit, r.limit)", new: "k.limit != 0 && k.n+1 <= max(k.limit, r.limit)",
	},
	{
		name: "an acknowledged grant can be rejected", test: "TestRandomHistories", file: "internal/lmx/lock.go",
		old: "r == nil || r.acked || r.many", new: "r == nil || r.many",
	},
	{
		name: "holds outlive their connection", test: "TestRandomHistories", file: "internal/lmx/conn.go", slow: true,
		old: "	if c.sess != nil {\n		c.sess.Suspend()\n	}\n", new: "",
	},
	{
		name: "tokens come twice", test: "TestRandomHistories", file: "lease/internal/engine/engine.go", slow: true,
		old: "func (e *Engine) nextToken() uint64 {\n	e.token++\n", new: "func (e *Engine) nextToken() uint64 {\n	e.token += e.stats.Granted % 2\n",
	},
}

// TestMutants shows that the tests of defects can fail where no other broker has the
// defect: each is planted into our sources, and the test of its number must fail.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the tests anew for each planted defect")
	}
	soak := os.Getenv("LATCHKEY_SOAK") != ""
	for _, m := range mutants {
		if m.slow && !soak {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t)
		})
	}
}

func (m *mutant) check(t *testing.T) {
	binary, overlay := trial.Plant(t, "../../"+m.file, m.old, m.new)
	run := exec.CommandContext(t.Context(), binary, "-test.run=^"+m.test+"$", "-test.timeout=2m")
	run.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false -overlay="+overlay) // for what the test builds
	text, err := run.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "FAIL: "+m.test) {
		t.Errorf("%s passes with the defect: %v\n%s", m.test, err, text)
	}
}
