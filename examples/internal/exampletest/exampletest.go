// Package exampletest runs the examples as programs in tests. The test binary is the program: it becomes the example
// when it is started with an environment variable, so that the example's own copies of itself work too.
package exampletest

import (
	"os"
	"os/exec"
	"testing"
)

const asProgram = "LATCHKEY_EXAMPLE_AS_PROGRAM"

// Main is for TestMain: it runs the tests, or main where a test started this process as the program.
func Main(m *testing.M, main func()) {
	if os.Getenv(asProgram) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Run runs the example with more variables in its environment, shows what it prints in the test's log, and fails the
// test when it exits with another status than zero.
func Run(t *testing.T, env ...string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	// The race detector would make each of the processes wait a second before it ends.
	cmd.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// Need skips the test where a program is missing, and names the Debian package that has it; with CI=true it fails.
func Need(t *testing.T, program, debian string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	const missing = "%s is missing: install the Debian package %s"
	if os.Getenv("CI") == "true" {
		t.Fatalf(missing, program, debian)
	}
	t.Skipf(missing, program, debian)
}
