//go:build unix

package lmx_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
	"github.com/latchkey-go/latchkey/internal/lmx/npmtest"
)

// envNPM names a folder in which the npm package is installed already, for runs
// without installing it anew.
const envNPM = "LATCHKEY_TEST_LIVE_MUTEX"

// npmProgram starts brokers of the npm package, one for each line of options that
// it reads, and answers each with a line: empty, or why not.
const npmProgram = `
const out = process.stdout.write.bind(process.stdout);
process.stdout.write = process.stderr.write = () => true;
const {Broker} = require('live-mutex');
require('readline').createInterface({input: process.stdin})
  .on('line', line => {
    const b = new Broker(JSON.parse(line));
    for (const e of ['error', 'warning']) b.emitter.on(e, () => {});
    b.ensure().then(() => out('\n'), e => out(String(e && e.message || e).split('\n')[0] + '\n'));
  })
  .on('close', () => process.exit(0));
`

// npmFolder is a folder in which the npm package can be required.
func npmFolder(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv(envNPM); dir != "" {
		return dir
	}
	dir := t.TempDir()
	switch err := npmtest.Install(t.Context(), dir); {
	case errors.Is(err, npmtest.ErrMissing) && os.Getenv("CI") != "true":
		t.Skipf("the broker of the npm package is not looked at: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return dir
}

// npmBrokers is a process that runs brokers of the npm package.
type npmBrokers struct {
	dir string     // where the package is
	mu  sync.Mutex // one question at a time
	in  io.WriteCloser
	out *bufio.Reader
}

func startNPM(t *testing.T) *npmBrokers {
	t.Helper()
	n, cmd := runNPM(t, npmFolder(t))
	t.Cleanup(func() {
		n.in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v\n%s", err, cmd.Stderr)
		}
	})
	return n
}

func runNPM(t *testing.T, dir string) (*npmBrokers, *exec.Cmd) {
	t.Helper()
	cmd := exec.Command("node", "-e", npmProgram)
	cmd.Dir = dir
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &npmBrokers{dir: dir, in: in, out: bufio.NewReader(out)}, cmd
}

// world starts a broker and returns how to reach it. Its clients give up soon: it
// is asked for what it gets wrong.
func (n *npmBrokers) world(t lmxtest.T, options map[string]any) *lmxtest.World {
	t.Helper()
	for range 50 {
		port, err := npmtest.FreePort()
		if err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		o := map[string]any{"port": port}
		for k, v := range options {
			o[k] = v
		}
		switch reason := n.start(t, o); {
		case reason == "":
			address := fmt.Sprintf("127.0.0.1:%d", port)
			return &lmxtest.World{T: t, Patience: 3 * time.Second, Settle: 150 * time.Millisecond, Hurry: 10,
				Connect: func() (net.Conn, error) { return net.Dial("tcp", address) }}
		case !strings.Contains(reason, "EADDRINUSE"):
			t.Fatalf("start a broker of the npm package: %s", reason)
		}
	}
	t.Fatalf("no port was free in 50 tries")
	return nil
}

func (n *npmBrokers) start(t lmxtest.T, options map[string]any) (reason string) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	text, err := json.Marshal(options)
	if err != nil {
		t.Fatalf("options of a broker: %v", err)
	}
	if _, err := n.in.Write(append(text, '\n')); err != nil {
		t.Fatalf("ask for a broker: %v", err)
	}
	line, err := n.out.ReadString('\n')
	if err != nil {
		t.Fatalf("start a broker of the npm package: %v", err)
	}
	return strings.TrimSpace(line)
}

// TestNPMBrokerHasTheDefects shows that the tests of the defects can fail: each is
// run against the broker that has it.
func TestNPMBrokerHasTheDefects(t *testing.T) {
	if testing.Short() {
		t.Skip("it installs the npm package")
	}
	npm := startNPM(t)
	t.Run("24", npm.has24)
	t.Run("28", npm.has28)
	// The brokers outlive the subtests, which wait side by side.
	t.Run("defect", func(t *testing.T) {
		for _, d := range defects {
			if d.npm == "" {
				continue
			}
			t.Run(fmt.Sprintf("%02d", d.number), func(t *testing.T) {
				t.Parallel()
				var f lmxtest.Findings
				found := f.Run(func(ft lmxtest.T) { d.run(npm.world(ft, d.options)) })
				switch {
				case len(found) == 0:
					t.Errorf("the npm broker passes the test of defect %d, which it is known to have: %s", d.number, d.what)
				case !strings.Contains(strings.Join(found, "\n"), d.npm):
					t.Errorf("the npm broker fails the test of defect %d otherwise than known:\ngot  %s\nwant %s",
						d.number, strings.Join(found, "\n"), d.npm)
				}
			})
		}
	})
}

// has24 shows the mode that the npm broker gives its socket.
func (n *npmBrokers) has24(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "npm.sock")
	if reason := n.start(t, map[string]any{"udsPath": socket}); reason != "" {
		t.Fatal(reason)
	}
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o077 == 0 {
		t.Errorf("the mode of the npm broker's socket is %o, which is known to be open to all", mode)
	}
}

// has28 shows the exit status of the npm broker.
func (n *npmBrokers) has28(t *testing.T) {
	other, cmd := runNPM(t, n.dir)
	other.world(t, nil)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says the status too
	if status := cmd.ProcessState.ExitCode(); status != 1 {
		t.Errorf("the npm broker's exit status is %d on SIGTERM, it is known to be 1", status)
	}
}
