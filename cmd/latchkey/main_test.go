package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asProgram makes the test binary be the program: the tests run it as real
// processes, with the race detector in when the tests have it.
const asProgram = "LATCHKEY_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	// The workers of a fuzz target are processes of this binary too.
	if os.Getenv(asProgram) != "" && !slices.Contains(os.Args, "-test.fuzzworker") {
		main()
	}
	os.Exit(testMain(m))
}

// testMain puts the program first in the PATH as latchkey, so that commands
// under test can call it too.
func testMain(m *testing.M) int {
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "latchkey-bin")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := os.Symlink(self, filepath.Join(dir, "latchkey")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	for name, value := range map[string]string{
		asProgram:           "1",
		"PATH":              dir + string(os.PathListSeparator) + os.Getenv("PATH"),
		"GORACE":            "atexit_sleep_ms=0", // or every process takes a second to end
		envServer:           "127.0.0.1:1",       // nobody: a test that forgets its broker fails
		envHeld:             "",
		"LATCHKEY_TEST_BIN": dir,
	} {
		os.Setenv(name, value)
	}
	return m.Run()
}

func program() string { return filepath.Join(os.Getenv("LATCHKEY_TEST_BIN"), "latchkey") }

// testBroker is a broker in a process of its own.
type testBroker struct {
	t    *testing.T
	addr string
	args []string
	cmd  *exec.Cmd
	out  *lockedBuffer
	err  *lockedBuffer
}

// startBroker starts one on a free port, and stops it with the test.
func startBroker(t *testing.T, args ...string) *testBroker {
	t.Helper()
	b := &testBroker{t: t, addr: "127.0.0.1:0", args: args}
	b.start()
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			t.Logf("broker said:\n%s%s", b.out, b.err)
		}
	})
	return b
}

// start runs the process; after the first time on the same port.
func (b *testBroker) start() {
	b.t.Helper()
	b.out, b.err = &lockedBuffer{}, &lockedBuffer{}
	b.cmd = exec.Command(program(), append([]string{"serve", "--listen", b.addr, "--http", ""}, b.args...)...)
	b.cmd.Stdout, b.cmd.Stderr = b.out, b.err
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	eventually(b.t, "the broker listens", func() bool {
		for line := range strings.Lines(b.out.String()) {
			if addr, ok := strings.CutPrefix(line, "tcp"); ok && strings.HasSuffix(line, "\n") {
				b.addr = strings.TrimSpace(addr)
			}
		}
		return strings.Contains(b.out.String(), "data ")
	})
}

// kill ends the process without a farewell.
func (b *testBroker) kill() {
	if b.cmd.ProcessState == nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	}
}

// lateness is how long after its time something may happen on a busy machine. What must not be late at all is judged by
// what others find, not by this clock.
const lateness = 2 * time.Second

// command makes a command that talks to this broker.
func (b *testBroker) command(args ...string) *exec.Cmd {
	cmd := exec.Command(program(), args...)
	cmd.Env = append(os.Environ(), envServer+"="+b.addr)
	// A process that outlives the command with its outputs open is an error, and must
	// not keep the test from saying so.
	cmd.WaitDelay = 20 * time.Second
	return cmd
}

// result is what a process left.
type result struct {
	out, err string
	code     int
}

// run runs the program to its end.
func (b *testBroker) run(args ...string) result {
	b.t.Helper()
	return finish(b.t, b.command(args...))
}

// finish runs a command to its end, within a minute.
func finish(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return result{code: waitFor(t, cmd), out: out.String(), err: errOut.String()}
}

// waitFor returns the exit code of a started command, 128 and the signal when
// one ended it.
func waitFor(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	return waitWithin(t, cmd, time.Minute)
}

// waitWithin is waitFor for what takes another time.
func waitWithin(t *testing.T, cmd *exec.Cmd, limit time.Duration) int {
	t.Helper()
	kill := time.AfterFunc(limit, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	if !kill.Stop() {
		t.Errorf("%v: still running after %v", cmd.Args, limit)
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// want checks a result: the code, and a text in each output ("" for none at all).
func (r result) want(t *testing.T, code int, out, errOut string) {
	t.Helper()
	bad := func(got, want string) bool { return want == "" && got != "" || !strings.Contains(got, want) }
	if r.code != code || bad(r.out, out) || bad(r.err, errOut) {
		t.Errorf("got code %d, output %q, errors %q; want code %d, output with %q, errors with %q",
			r.code, r.out, r.err, code, out, errOut)
	}
}

// eventually polls a condition of something outside this process.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline:
			t.Fatalf("after a minute still not: %s", what)
		case <-tick.C:
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}
