//go:build unix

package lmx_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/lmx/lmxtest"
)

// patience is how long a process may take for anything, on a busy machine.
const patience = time.Minute

// buildProgram builds the program. GOFLAGS may plant a defect in it.
func buildProgram(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "latchkey")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", path, "github.com/latchkey-go/latchkey/cmd/latchkey")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, text)
	}
	return path
}

// program is a broker in a process of its own.
type program struct {
	t      *testing.T
	cmd    *exec.Cmd
	cancel context.CancelFunc
	out    *bufio.Reader
	rest   chan string   // what it printed after its first lines
	err    *bytes.Buffer // once it has ended
	addr   map[string]string
}

// serve starts the program and waits until it says where it listens.
func serve(t *testing.T, path string, args ...string) *program {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &program{t: t, cancel: cancel, err: &bytes.Buffer{}, addr: map[string]string{}, rest: make(chan string, 1)}
	p.cmd = exec.CommandContext(ctx, path, append([]string{"serve"}, args...)...)
	p.cmd.Stderr = p.err
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = p.cmd.Wait() // most tests have
	})
	p.out = bufio.NewReader(out)
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			t.Fatalf("the broker ended: %v; it printed %q", err, p.err)
		}
		name, where, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "data" { // the last line of those that it begins with
			break
		}
		p.addr[name] = strings.TrimSpace(where)
	}
	go func() {
		text, _ := io.ReadAll(p.out) // an error is the end of the process, which is waited for
		p.rest <- string(text)
	}()
	return p
}

// world reaches the broker over a network.
func (p *program) world(network string) *lmxtest.World {
	address := strings.TrimPrefix(p.addr[network], "unix:")
	return &lmxtest.World{T: p.t, Patience: patience, Connect: func() (net.Conn, error) { return net.Dial(network, address) }}
}

// end sends a signal and returns the exit status, and all that was printed since the
// broker said where it listens.
func (p *program) end(signal os.Signal) (status int, printed string) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		p.t.Fatal(err)
	}
	limit := time.AfterFunc(patience, p.cancel)
	defer limit.Stop()
	printed = <-p.rest
	var exit *exec.ExitError
	if err := p.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode(), printed + p.err.String()
}

// refusesToServe runs the program with arguments that it must refuse, and returns
// what it says.
func refusesToServe(t *testing.T, path string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, append([]string{"serve"}, args...)...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err == nil {
		cancel() // it serves
		t.Errorf("serve %q: it says %q, want it refused", args, line)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() == 0 {
		t.Errorf("serve %q: got %v, want it to fail", args, err)
	}
	return complaint.String()
}

// Defect 21: by default a line is printed for each internal call, dozens a second
// when nothing happens. Ours prints where it listens, and is quiet from then on.
func TestDefect21Quiet(t *testing.T) {
	p := serve(t, buildProgram(t), "--listen", "127.0.0.1:0", "--http", "")
	w := p.world("tcp")
	c := w.Client()
	for range 50 {
		id, _ := w.Hold(c, "k", nil)
		w.Release(c, "k", id)
	}
	w.Hold(c, "expires", frame{"ttl": 1})
	w.Dial().Close()
	next := w.ID()
	c.Send(lmxtest.Lock(next, "expires", nil))
	if f := c.Expect(next); !f.True("acquired") { // it has not expired yet
		w.Granted(c, next)
	}
	if _, printed := p.end(syscall.SIGTERM); printed != "" {
		t.Errorf("it printed %q", printed)
	}
}

// Defect 23: HTTP listens on every interface, an administrator's token is compiled
// in, and the status page loads a script from elsewhere.
func TestDefect23HTTPExposure(t *testing.T) {
	path := buildProgram(t)
	if text := refusesToServe(t, path, "--listen", "", "--http", "0.0.0.0:0"); !strings.Contains(text, "--insecure") {
		t.Errorf("HTTP beyond loopback: got %q, want an error that names --insecure", text)
	}
	help, err := exec.CommandContext(t.Context(), path, "serve", "--help").Output()
	if err != nil || !strings.Contains(string(help), `"127.0.0.1:6971"`) {
		t.Errorf("the default of --http is not on loopback: %v\n%s", err, help)
	}
	p := serve(t, path, "--listen", "", "--http", "127.0.0.1:0")
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	get := func(path string) (status int, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, strings.TrimSuffix(p.addr["http"], "/")+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Admin-Token", "lmx-admin")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(text)
	}
	for _, path := range []string{"/admin/otel", "/admin/log-level", "/admin/tcp"} {
		if status, _ := get(path); status != http.StatusNotFound {
			t.Errorf("GET %s: %d, want 404", path, status)
		}
	}
	if status, body := get("/"); status != http.StatusOK || strings.Contains(body, `src="http`) || strings.Contains(body, `src="//`) {
		t.Errorf("the status page: %d, and it loads something from elsewhere:\n%s", status, body)
	}
}

// Defect 24: the unix socket can be written by everybody, and its configured path is
// ignored.
func TestDefect24Socket(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "lmx.sock")
	p := serve(t, buildProgram(t), "--listen", "", "--http", "", "--unix", socket)
	info, err := os.Stat(socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		t.Errorf("the mode of the socket is %o, want nothing for others", mode)
	}
	w := p.world("unix")
	c := w.Client()
	w.Hold(c, "k", nil)
	w.Queue(c, "k", nil)
}

// Defect 25: there is no access control, and the broker listens on every interface.
// Ours stays on loopback until it is told that the network is trusted.
func TestDefect25Loopback(t *testing.T) {
	path := buildProgram(t)
	for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		if text := refusesToServe(t, path, "--http", "", "--listen", address); !strings.Contains(text, "--insecure") {
			t.Errorf("%s: got %q, want an error that names --insecure", address, text)
		}
	}
}

// Defect 28: the broker exits with status 1 on SIGTERM.
func TestDefect28ExitStatus(t *testing.T) {
	path := buildProgram(t)
	for _, signal := range []os.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := serve(t, path, "--listen", "127.0.0.1:0", "--http", "")
		w := p.world("tcp")
		c := w.Client()
		w.Hold(c, "k", nil)
		w.Queue(c, "k", nil)
		if status, _ := p.end(signal); status != 0 {
			t.Errorf("%v: the exit status is %d, want 0", signal, status)
		}
		c.Ended(patience)
	}
}
