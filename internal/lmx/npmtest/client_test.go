//go:build linux

package npmtest

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// programFiles are the test programs; each has cases of its own.
var programFiles = []string{"basics.js", "waiting.js", "semaphore.js", "ending.js", "load.js", "readers.js"}

// patience is how long a case may take on a busy machine; none takes a third of it.
const patience = 40 * time.Second

// The unmodified client against the program as it is built. The cases of a file run at once, and all files use one
// broker: whatever one of them does to its connections, the others must not feel it.
func TestClient(t *testing.T) {
	dir := needsPackage(t)
	broker := startOurs(t)
	for _, file := range programFiles {
		t.Run(strings.TrimSuffix(file, ".js"), func(t *testing.T) {
			t.Parallel()
			names, outcomes, said, err := job{dir: dir, program: file, patience: patience, against: broker}.run(t.Context())
			if err != nil || len(names) == 0 {
				t.Errorf("%s: %d cases, %v, and it said:\n%s", file, len(names), err, said)
			}
			for _, name := range names {
				t.Run(name, func(t *testing.T) {
					switch o, ended := outcomes[name]; {
					case !ended:
						t.Error("the program ended before this case did")
					case !o.OK:
						t.Error(o.Why)
					}
				})
			}
		})
	}
}

// The same cases against the package's own broker, a new one for each, so that no case suffers from another. Many
// must fail, or they prove nothing; which ones is the result.
func TestTheirBrokerFails(t *testing.T) {
	if !soak() {
		t.Skip("each case waits for what never comes: LATCHKEY_SOAK=1 runs them")
	}
	dir := needsPackage(t)
	total, failed := 0, 0
	for _, file := range programFiles {
		names, _, said, err := job{dir: dir, program: file, list: true}.run(t.Context())
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d cases, %v, and it said:\n%s", file, len(names), err, said)
		}
		for i, name := range names {
			o := againstTheirs(t, dir, file, name)
			total++
			if !o.OK {
				failed++
				t.Attr(fmt.Sprintf("npm-broker-fails-%s-%02d", strings.TrimSuffix(file, ".js"), i+1), name+": "+firstLine(o.Why))
			}
		}
	}
	t.Attr("npm-broker-fails", fmt.Sprintf("%d of %d cases", failed, total))
	if failed == 0 {
		t.Errorf("the npm broker passes all of %d cases: they can prove nothing", total)
	}
}

// againstTheirs runs one case against a new broker.
func againstTheirs(t *testing.T, dir, file, name string) (o outcome) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		j := job{dir: dir, program: file, only: name, patience: 15 * time.Second, against: startTheirs(t, dir)}
		_, outcomes, said, err := j.run(t.Context())
		ended := false
		if o, ended = outcomes[name]; !ended {
			o.Why = fmt.Sprintf("the program ended: %v, and it said: %s", err, said)
		}
	})
	return o
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
