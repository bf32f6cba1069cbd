package lmx_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
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
	mu  sync.Mutex // one question at a time
	in  interface{ Write([]byte) (int, error) }
	out *bufio.Reader
}

func startNPM(t *testing.T) *npmBrokers {
	t.Helper()
	cmd := exec.Command("node", "-e", npmProgram)
	cmd.Dir = npmFolder(t)
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
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("node: %v\n%s", err, complaints.String())
		}
	})
	return &npmBrokers{in: in, out: bufio.NewReader(out)}
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
			return &lmxtest.World{T: t, Patience: 1500 * time.Millisecond, Settle: 150 * time.Millisecond, Hurry: 10,
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
