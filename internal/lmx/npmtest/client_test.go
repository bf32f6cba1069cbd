//go:build linux

package npmtest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// programFiles are the test programs; each has cases of its own.
var programFiles = []string{"basics.js", "waiting.js", "semaphore.js", "ending.js", "load.js", "readers.js", "planted.js"}

// patience is how long a case may take on a busy machine; none takes a tenth of it on one that is not.
const patience = 3 * time.Minute

// The unmodified client against the program as it is built. The cases of a file run at once, and all files use one
// broker: whatever one of them does to its connections, the others must not feel it.
func TestClient(t *testing.T) {
	t.Parallel()
	dir := needsPackage(t)
	broker := startOurs(t)
	for _, file := range programFiles {
		t.Run(strings.TrimSuffix(file, ".js"), func(t *testing.T) {
			t.Parallel()
			job{dir: dir, program: file, patience: patience, against: broker}.allPass(t)
		})
	}
}

// Brokers that end and come back. The program starts them itself.
func TestRestart(t *testing.T) {
	dir := needsPackage(t)
	t.Parallel()
	var ports []string
	for len(ports) < 3 {
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		if p := strconv.Itoa(port); !slices.Contains(ports, p) {
			ports = append(ports, p)
		}
	}
	job{dir: dir, program: "restart.js", patience: patience, against: target{addr: "127.0.0.1:0"},
		env: []string{"LMX_PROGRAM=" + os.Getenv(envProgram), "LMX_PORTS=" + strings.Join(ports, ",")}}.allPass(t)
}

// allPass runs a program and makes a test of each of its cases.
func (j job) allPass(t *testing.T) {
	t.Helper()
	names, outcomes, said, err := j.run(t.Context())
	if err != nil || len(names) == 0 {
		t.Errorf("%s: %d cases, %v, and it said:\n%s", j.program, len(names), err, said)
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
}

// quickFailures are cases that the package's own broker fails without waiting for anything, by file.
var quickFailures = map[string][]string{
	"basics.js":    {"force with a foreign id is refused", "lock info is true", "ls is true"},
	"semaphore.js": {"different max on one key", "a max sticks to no idle key"},
	"ending.js": {"client.close frees its keys alone", "SIGKILL frees its keys alone", "keepLocksAfterDeath with a lock",
		"a kept lock ends with its ttl"},
}

// Cases that nothing fails prove nothing. These are run against the package's own broker, a new one for each so that
// none suffers from another, and must fail there. In full doses all cases are run, and which ones fail is the result.
func TestTheirBrokerFails(t *testing.T) {
	dir := needsPackage(t)
	t.Parallel()
	total, failed := 0, 0
	for _, file := range programFiles {
		names := quickFailures[file]
		if file == "planted.js" { // about our checkers, not about a broker
			continue
		}
		if soak() {
			var said string
			var err error
			names, _, said, err = job{dir: dir, program: file, list: true}.run(t.Context())
			if err != nil || len(names) == 0 {
				t.Fatalf("%s: %d cases, %v, and it said:\n%s", file, len(names), err, said)
			}
		}
		for i, name := range names {
			o := againstTheirs(t, dir, file, name)
			total++
			if !o.OK {
				failed++
				t.Attr(fmt.Sprintf("npm-broker-fails-%s-%02d", strings.TrimSuffix(file, ".js"), i+1), name+": "+firstLine(o.Why))
			} else if slices.Contains(quickFailures[file], name) {
				t.Errorf("the npm broker passes %q, so that case cannot fail any more", name)
			}
		}
	}
	t.Attr("npm-broker-fails", fmt.Sprintf("%d of %d cases", failed, total))
	if failed == 0 {
		t.Errorf("the npm broker passes all of %d cases: they prove nothing", total)
	}
}

// againstTheirs runs one case against a new broker.
func againstTheirs(t *testing.T, dir, file, name string) (o outcome) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		j := job{dir: dir, program: file, only: name, patience: time.Minute, against: startTheirs(t, dir)}
		_, outcomes, said, err := j.run(t.Context())
		ended := false
		if o, ended = outcomes[name]; !ended {
			o.Why = fmt.Sprintf("the program ended: %v, and it said: %s", err, said)
			if !soak() { // the package may end its process, but not in these cases
				t.Error(o.Why)
			}
		}
	})
	return o
}

// firstLine is what fits into an attribute.
func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.ReplaceAll(s, "\r", "\n"), "\n")
	return line
}
