package main

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// The pinned files say which version, with a hash for each part, and no address:
// where packages come from is the machine's business.
func TestNPMFilesPin(t *testing.T) {
	for _, name := range []string{"npm/package.json", "npm/package-lock.json"} {
		text, err := fs.ReadFile(npmFiles, name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `"live-mutex": "`+npmVersion+`"`) || strings.Contains(string(text), "://") {
			t.Errorf("%s does not pin %s, or names an address", name, npmVersion)
		}
		if strings.Contains(name, "lock") && strings.Count(string(text), `"integrity"`) < 5 {
			t.Errorf("%s has few hashes", name)
		}
	}
}

// testEnv is an environment for rows of a few milliseconds.
func testEnv(t *testing.T) *env {
	t.Helper()
	e, cleanUp, err := newEnv(options{rounds: 2, length: 20 * time.Millisecond, quick: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.finish(); err != nil {
			t.Error(err)
		}
		cleanUp()
	})
	return e
}

// Every load runs on both brokers and passes the checks.
func TestLoadsOnBothBrokers(t *testing.T) {
	e := testEnv(t)
	theirs, err := e.lmxNPM(t.Context(), npmBroker)
	var left leftOut
	if errors.As(err, &left) && os.Getenv("CI") != "true" {
		t.Skip(left.reason)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := e.buildBroker(t.Context()); err != nil {
		t.Fatal(err)
	}
	own, err := e.lmxOurs(t.Context(), ours)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []lmxLoad{
		{connections: 1, keys: 1}, {connections: 1, keys: many}, {connections: waiters, keys: 1},
		{connections: waiters, keys: 1, contest: true}, {connections: 1, keys: many, held: 200},
	} {
		for _, b := range []*lmxBroker{theirs, own} {
			testLoad(t, e, b, l)
		}
	}
}

func testLoad(t *testing.T, e *env, b *lmxBroker, l lmxLoad) {
	r, arm, err := e.lmxArm(t.Context(), b, l)
	if err != nil {
		t.Fatalf("%v: %v", l, err)
	}
	res, err := rounds.Run(t.Context(), rounds.Row{Arms: []rounds.Arm{arm}, Ours: b.name, Value: rounds.Rate, Unit: "pairs/s"}, e.rounds)
	if err != nil {
		t.Fatalf("%v: %v", l, err)
	}
	t.Logf("%v: %.0f pairs/s", arm.Setting, res.Arms[0].Value.Median)
	for i, n := range r.grants {
		if n == 0 {
			t.Errorf("%v: connection %d was granted nothing", l, i)
		}
	}
}
