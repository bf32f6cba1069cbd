//go:build linux

package npmtest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The environment of the tests, set by [TestMain]: where the package and the program are, or why they are not.
const (
	envPackage = "LATCHKEY_NPMTEST_PACKAGE"
	envProgram = "LATCHKEY_NPMTEST_PROGRAM"
	envMissing = "LATCHKEY_NPMTEST_MISSING"
)

func TestMain(m *testing.M) {
	code, err := testMain(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(code)
}

// testMain installs the package and builds the program, once for all tests.
func testMain(m *testing.M) (code int, err error) {
	flag.Parse()
	// The tests wait for processes most of the time: on few cores, too, several go on at once.
	if err := flag.Set("test.parallel", "4"); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "latchkey-npmtest")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	switch err := Install(ctx, dir); {
	case errors.Is(err, ErrMissing):
		os.Setenv(envMissing, err.Error())
		return m.Run(), nil
	case err != nil:
		return 1, err
	}
	program := filepath.Join(dir, "latchkey")
	args := []string{"build", "-buildvcs=false", "-o", program}
	if soak() {
		args = append(args, "-race")
	}
	build := exec.CommandContext(ctx, "go", append(args, "github.com/latchkey-go/latchkey/cmd/latchkey")...)
	if text, err := build.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the program: %w\n%s", err, text)
	}
	os.Setenv(envPackage, dir)
	os.Setenv(envProgram, program)
	return m.Run(), nil
}

// soak asks for full doses.
func soak() bool { return os.Getenv("LATCHKEY_SOAK") != "" }

// needsPackage skips a test on a machine without node and npm, but fails it where everything must run.
func needsPackage(t *testing.T) string {
	t.Helper()
	if why := os.Getenv(envMissing); why != "" {
		if os.Getenv("CI") == "true" {
			t.Fatal(why)
		}
		t.Skip(why)
	}
	return os.Getenv(envPackage)
}

// target is a broker that programs are run against.
type target struct {
	addr string
	unix string
}

// socket returns a path that is short enough for a socket; t.TempDir may not be.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "latchkey")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// startOurs runs `latchkey serve` until the test ends.
func startOurs(t *testing.T) target {
	t.Helper()
	var last error
	for range 5 { // somebody else may be quicker to take the port
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		o := target{addr: "127.0.0.1:" + strconv.Itoa(port), unix: socket(t)}
		if last = serve(t, o); last == nil {
			return o
		}
	}
	t.Fatal(last)
	return target{}
}

// serve starts a broker and returns when it listens.
func serve(t *testing.T, o target) error {
	cmd := exec.Command(os.Getenv(envProgram), "serve", "--json", "--http", "", "--listen", o.addr, "--unix", o.unix)
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		return err
	}
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	said := func() string {
		text, _ := os.ReadFile(log.Name())
		return tail(string(text), 10)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.Contains(line, o.addr) {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return fmt.Errorf("the broker did not say that it listens but %q, %w, and:\n%s", line, err, said())
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		go io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the broker ended with %v, and said last:\n%s", err, said())
		} else if text := said(); t.Failed() && text != "" {
			t.Logf("the broker said last:\n%s", text)
		}
		log.Close()
	})
	return nil
}

// startTheirs runs the package's own broker until the test ends.
func startTheirs(t *testing.T, dir string) target {
	t.Helper()
	o := target{unix: socket(t)}
	b, err := StartBroker(dir, o.unix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	o.addr = b.Addr
	return o
}

// outcome is how one case of a program ended.
type outcome struct {
	Case string
	OK   bool
	Why  string
}

// job is one run of a program.
type job struct {
	dir      string
	program  string // a file in dir
	only     string // one case, or all when empty
	list     bool   // do not run the cases
	patience time.Duration
	against  target
	env      []string // besides that of this process and what says where the broker is
}

// run returns the names of the cases, what came of those that ended, and all that the program said besides.
func (j job) run(ctx context.Context) (names []string, outcomes map[string]outcome, said string, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.patience+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", filepath.Join(j.dir, j.program))
	host, port, _ := net.SplitHostPort(j.against.addr)
	cmd.Env = append(os.Environ(), "LMX_HOST="+host, "LMX_PORT="+port, "LMX_UNIX="+j.against.unix,
		"LMX_PATIENCE="+strconv.FormatInt(j.patience.Milliseconds(), 10), "LMX_ONLY="+j.only)
	cmd.Env = append(cmd.Env, j.env...)
	if j.list {
		cmd.Env = append(cmd.Env, "LMX_LIST=1")
	}
	cmd.WaitDelay = 5 * time.Second // for what its children still have to say
	text, err := cmd.CombinedOutput()
	outcomes = make(map[string]outcome)
	var rest []string
	for line := range strings.Lines(string(text)) {
		var l struct {
			Cases []string
			Stray string
			outcome
		}
		switch {
		case json.Unmarshal([]byte(line), &l) != nil:
			rest = append(rest, strings.TrimRight(line, "\n"))
		case l.Cases != nil:
			names = l.Cases
		case l.Stray != "":
			rest = append(rest, l.Stray)
		default:
			outcomes[l.Case] = l.outcome
		}
	}
	return names, outcomes, tail(strings.Join(rest, "\n"), 40), err
}

// tail is the last lines of a text.
func tail(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
