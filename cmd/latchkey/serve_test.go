//go:build unix

package main

import (
	"bufio"
	"encoding/json"
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
)

// serve runs `latchkey serve` to its end.
func serve(t *testing.T, args ...string) result {
	t.Helper()
	return finish(t, exec.Command(program(), append([]string{"serve"}, args...)...))
}

func TestServeRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	free := []string{"--listen", "127.0.0.1:0", "--http", ""}
	for _, c := range []struct {
		args []string
		text string
	}{
		{[]string{"--listen", taken.Addr().String()}, "is in use"},
		{[]string{"--listen", "127.0.0.1:0", "--http", taken.Addr().String()}, "is in use"},
		{[]string{"--listen", "0.0.0.0:0"}, "--insecure"},
		{[]string{"--listen", ":6970"}, "--insecure"},
		{[]string{"--http", "[::]:0"}, "--insecure"},
		{[]string{"--listen", "6970"}, "not host:port"},
		{[]string{"--listen", "", "--http", ""}, "nothing to listen on"},
		{append(free, "--fsync", "never"), "needs --data"},
		{append(free, "--data", dir, "--fsync", "sometimes"), "want always, interval or never"},
		{append(free, "--data", file), "file"},
		{append(free, "--token-floor", "9007199254740992"), "is not a token"},
		{append(free, "--unix", file), "something else than a socket"},
		{append(free, "--unix", filepath.Join(dir, "none", "s")), "no such file"},
		{append(free, "--unix", filepath.Join(dir, strings.Repeat("s", 120))), "the path of a unix socket may have"},
		{append(free, "--unix", ""), "--unix is empty"},
		{append(free, "--data", ""), "--data is empty"},
		{append(free, "--http-host", "http://locks.example"), "without scheme and port"},
		{append(free, "--http-host", "locks.example:6971"), "without scheme and port"},
		{append(free, "--http-host", "a b"), "without scheme and port"},
		{append(free, "--http-host", ""), "without scheme and port"},
		{append(free, "--token-floor", "-1"), `"--token-floor" flag: not a whole number from 0;`},
		{append(free, "--token-floor", "99999999999999999999"), `"--token-floor" flag: too large a number;`},
		{append(free, "--insecure=x"), `"--insecure" flag: neither true nor false;`},
		{append(free, "extra"), "one argument too many"},
	} {
		got := serve(t, c.args...)
		if got.code != 1 || !strings.Contains(got.err, c.text) || strings.Count(got.err, "\n") != 1 {
			t.Errorf("serve %q: got %+v; want code 1 and one line with %q", c.args, got, c.text)
		}
	}
}

func TestServeUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	// What a broker that was killed leaves behind: a socket without a listener.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()

	b := startBroker(t, "--unix", path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v; want mode 0600", info, err)
	}
	b.addr = "unix:" + path
	b.run("run", "k", "--", "true").want(t, 0, "", "")
	got := serve(t, "--listen", "", "--http", "", "--unix", path)
	got.want(t, 1, "", "another broker answers there")
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, b.cmd); code != 0 {
		t.Errorf("SIGTERM: got code %d, want 0", code)
	}
	if exists(path) {
		t.Error("the socket was left behind")
	}
}

// The farewell is quick and in order: what was acknowledged is kept, and those
// that wait are told so that they come back to the next broker.
func TestServeShutdown(t *testing.T) {
	dir := t.TempDir()
	b := startBroker(t, "--data", dir)
	b.run("lock", "k", "--ttl", "1h").want(t, 0, "token", "")
	s := b.begin([]string{"--wait", "20s"}, "k", "true")
	eventually(t, "it waits", func() bool { return strings.Contains(b.run("show", "k").out, "1 waiting") })
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, b.cmd); code != 0 || b.err.String() != "" {
		t.Errorf("got code %d and errors %q", code, b.err)
	}
	b.start()
	b.run("lock", "k", "--try").want(t, exitNotHeld, "", "k is not free")
	eventually(t, "it waits again", func() bool { return strings.Contains(b.run("show", "k").out, "1 waiting") })
	b.run("force", "k", "--yes").want(t, 0, "ended 1 hold", "")
	if code := waitFor(t, s.Cmd); code != 0 || !strings.Contains(s.err.String(), "connected to the broker again") {
		t.Errorf("the one that waited got code %d and said %q", code, s.err)
	}
}

// A client that is in the middle of a request delays the farewell, but not for
// long, and a second signal does not wait for it at all.
func TestServeSecondSignal(t *testing.T) {
	for _, second := range []bool{false, true} {
		b := startBroker(t, "--http", "127.0.0.1:0", "--verbose")
		conn := halfRequest(t, b)
		if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		want := 0
		if second {
			want = 143
			eventually(t, "the broker listens no more", func() bool {
				c, err := net.Dial("tcp", b.addr)
				if err == nil {
					c.Close()
				}
				return err != nil
			})
			if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
		begin := time.Now()
		if code := waitFor(t, b.cmd); code != want {
			t.Errorf("second signal %v: got code %d, want %d", second, code, want)
		}
		if took := time.Since(begin); took > shutdownTime+lateness {
			t.Errorf("second signal %v: the end took %v", second, took)
		}
		conn.Close()
	}
}

// web is the address, host and port, of a broker's status page.
func (b *testBroker) web() string {
	b.t.Helper()
	_, rest, ok := strings.Cut(b.out.String(), "http://")
	if !ok {
		b.t.Fatalf("no http address in %q", b.out)
	}
	addr, _, _ := strings.Cut(rest, "/")
	return addr
}

// fetchPage reads the status page.
func (b *testBroker) fetchPage() string {
	b.t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + b.web() + "/")
	if err != nil {
		b.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// halfRequest sends the first part of an HTTP request.
func halfRequest(t *testing.T, b *testBroker) net.Conn {
	t.Helper()
	addr := b.web()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	// The interim answer says that the handler has begun to read the body.
	if _, err := io.WriteString(conn, "POST /v1/lock HTTP/1.1\r\nHost: "+addr+
		"\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("got %q, %v", line, err)
	}
	return conn
}

func TestServeDirectoryInUse(t *testing.T) {
	dir := t.TempDir()
	startBroker(t, "--data", dir)
	got := serve(t, "--listen", "127.0.0.1:0", "--http", "", "--data", dir)
	if got.code != 1 || strings.Count(got.err, "\n") != 1 || got.out != "" {
		t.Errorf("a second broker on one directory: %+v", got)
	}
}

func TestServeHTTPOnly(t *testing.T) {
	cmd := exec.Command(program(), "serve", "--listen", "", "--http", "127.0.0.1:0", "--json")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if code := waitFor(t, cmd); code != 0 {
			t.Errorf("SIGTERM: got code %d, want 0", code)
		}
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var told struct{ Listening map[string]string }
	if err := json.Unmarshal([]byte(line), &told); err != nil || told.Listening["http"] == "" {
		t.Fatalf("serve --json printed %q: %v", line, err)
	}
	client := http.Client{Timeout: 10 * time.Second}
	defer client.CloseIdleConnections()
	resp, err := client.Post(told.Listening["http"]+"v1/lock", "application/json", strings.NewReader(`{"key":"k"}`))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != 200 || !strings.Contains(string(body), `"acquired":true`) {
		t.Errorf("got %d %s, %v", resp.StatusCode, body, err)
	}
}

// The watch survives a restart of the broker, and says that it missed something.
func TestWatchOverARestart(t *testing.T) {
	b := startBroker(t)
	cmd := b.command("watch", "jobs/")
	out := &lockedBuffer{}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sees := func(text string) func() bool {
		return func() bool { return strings.Contains(out.String(), text) }
	}
	eventually(t, "the watch stands", func() bool { return strings.Contains(b.run("status").out, "1 watch\n") })
	b.run("lock", "other").want(t, 0, "token", "")
	b.run("lock", "jobs/a", "--label", "first").want(t, 0, "token", "")
	eventually(t, "the grant is told", sees(`"first"`))
	b.kill()
	b.start()
	eventually(t, "the gap is told", sees("gap"))
	b.run("lock", "jobs/b", "--label", "second").want(t, 0, "token", "")
	eventually(t, "the next grant is told", sees(`"second"`))
	if strings.Contains(out.String(), "other") {
		t.Errorf("the prefix was not respected:\n%s", out)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := waitFor(t, cmd); code != 130 {
		t.Errorf("got code %d after ^C, want 130", code)
	}
}

func TestListing(t *testing.T) {
	b := startBroker(t)
	b.run("ls").want(t, 0, "", "nothing is locked")
	b.run("show", "k").want(t, 0, "k is free", "")
	for _, key := range []string{"a/1", "a/2", "b/1"} {
		b.run("lock", key, "--ttl", "1h").want(t, 0, "token", "")
	}
	got := b.run("ls", "a/")
	if got.code != 0 || strings.Count(got.out, "\n") != 3 || strings.Contains(got.out, "b/1") {
		t.Errorf("ls a/: %+v", got)
	}
	got = b.run("ls", "--limit", "1")
	got.want(t, 0, "a/1", "--after a/1")
	b.run("ls", "--after", "a/2").want(t, 0, "b/1", "")
	got = b.run("ls", "--limit", "0", "--json")
	var page struct{ Keys []struct{ Key string } }
	if err := json.Unmarshal([]byte(got.out), &page); err != nil || len(page.Keys) != 3 {
		t.Errorf("ls --json: %+v, %v", got, err)
	}
	b.run("ls", "--limit", "-1").want(t, 1, "", "negative")
	b.run("status").want(t, 0, "3 locks held", "")
	b.run("status", "--json").want(t, 0, `"holds":3`, "")
	b.run("shwo").want(t, 1, "", `there is no verb "shwo"`)
	b.run("ls", "--nonsense").want(t, 1, "", "see `latchkey ls --help`")
	b.run("--version").want(t, 0, "latchkey ", "")
	b.run("status", "--server", "nowhere").want(t, 1, "", "neither host:port nor unix:/path")
}
