//go:build linux

package crashtest

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// broker is `latchkey serve` as a process. It listens on a unix socket, whose name nobody can take while it is away.
type broker struct {
	t       *testing.T
	addr    string
	program string
	args    []string
	env     []string // besides that of this process
	log     string   // path of what it says on standard error
	cmd     *exec.Cmd
}

// newBroker prepares one, and ends it with the test.
func newBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	dir, err := os.MkdirTemp("", "latchkey") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{t: t, log: filepath.Join(dir, "log"), addr: "unix:" + filepath.Join(dir, "s"), program: os.Getenv(envProgram)}
	b.args = append([]string{"serve", "--json", "--listen", "", "--http", "", "--unix", filepath.Join(dir, "s")}, args...)
	t.Cleanup(func() {
		b.kill()
		if t.Failed() {
			said := strings.Split(b.said(), "\n")
			t.Logf("the last that the broker said:\n%s", strings.Join(said[max(0, len(said)-10):], "\n"))
		}
		os.RemoveAll(dir)
	})
	return b
}

// startBroker starts one.
func startBroker(t *testing.T, args ...string) *broker {
	t.Helper()
	b := newBroker(t, args...)
	b.start()
	return b
}

// start runs the process until it says that it listens. It returns the process's standard input.
func (b *broker) start() io.Writer {
	b.t.Helper()
	log, err := os.OpenFile(b.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	// What it was wrapped in may have been killed before it.
	eventually(b.t, "the last life is over", func() bool {
		conn, err := net.Dial("unix", strings.TrimPrefix(b.addr, "unix:"))
		if err == nil {
			conn.Close()
		}
		return err != nil
	})
	b.cmd = exec.Command(b.program, b.args...)
	b.cmd.Env = append(os.Environ(), b.env...)
	b.cmd.Stderr = log
	in, err := b.cmd.StdinPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var said struct{ Listening map[string]string }
	if err != nil || json.Unmarshal(line, &said) != nil || said.Listening["unix"] == "" {
		b.t.Fatalf("the broker did not say that it listens but %q, %v; and\n%s", line, err, b.said())
	}
	return in
}

// kill ends the process in the middle of what it does.
func (b *broker) kill() {
	if b.cmd != nil && b.cmd.ProcessState == nil {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	}
}

// said is all that the broker has said on standard error.
func (b *broker) said() string {
	text, err := os.ReadFile(b.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}

// dial connects this process to the broker.
func (b *broker) dial() *leaseremote.Service {
	b.t.Helper()
	svc, err := leaseremote.Dial(b.t.Context(), b.addr, leaseremote.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	return svc
}

// list asks the broker who holds what.
func (b *broker) list() []lease.KeyInfo {
	b.t.Helper()
	svc := b.dial()
	defer svc.Close()
	l, err := svc.List(b.t.Context(), lease.Query{Limit: lease.MaxListed})
	if err != nil || l.More {
		b.t.Fatalf("list: %v, more %v", err, l.More)
	}
	return l.Keys
}
