//go:build linux

// Package crashtest ends real processes without a farewell and looks at what is left. Brokers are the program as it is
// built, clients are copies of the test binary; both are killed with SIGKILL and frozen with SIGSTOP while they are at
// work, and disks are filled. What clients saw is written down as it happens, by each process in a file of its own, with
// times of the clock that all processes of a machine share; in the end a checker goes through all of it. It has tests only.
package crashtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// The environment of processes that the tests start: what this binary is to be, and where the program is.
const (
	envClient  = "LATCHKEY_CRASHTEST_CLIENT"
	envProgram = "LATCHKEY_CRASHTEST_PROGRAM"
)

func TestMain(m *testing.M) {
	if config := os.Getenv(envClient); config != "" {
		if err := clientMain(config); err != nil {
			fmt.Fprintln(os.Stderr, "client:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if offset := os.Getenv(envTrace); offset != "" {
		code, err := traceMain(offset)
		if err != nil {
			fmt.Fprintln(os.Stderr, "trace:", err)
		}
		os.Exit(code)
	}
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

// testMain builds the program before the tests, unless a test started this process and has built it.
func testMain(m *testing.M) (code int, err error) {
	if os.Getenv(envProgram) != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "latchkey-crashtest")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "latchkey")
	args := []string{"build", "-buildvcs=false", "-o", path}
	if soak() {
		args = append(args, "-race")
	}
	build := exec.Command("go", append(args, "github.com/latchkey-go/latchkey/cmd/latchkey")...)
	if text, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the program: %w\n%s", err, text)
	}
	// The tests wait for processes most of the time: on few cores, too, several go on at once.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		return 1, err
	}
	os.Setenv(envProgram, path)
	os.Setenv("GORACE", "atexit_sleep_ms=0") // or every process takes a second to end
	return m.Run(), nil
}

// soak asks for full doses.
func soak() bool { return os.Getenv("LATCHKEY_SOAK") != "" }

// patience is how long anything may take that has no bound of its own, on a busy machine.
const patience = time.Minute

// eventually polls a condition of something outside this process.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !is() {
		if !pause(ctx, 20*time.Millisecond) {
			t.Fatalf("after %v still not: %s", patience, what)
		}
	}
}

// pause waits; false says that ctx ended before.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
