//go:build unix

package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually polls a condition of something outside this process.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.After(patience); !is(); {
		select {
		case <-deadline:
			t.Fatalf("after %v still not: %s", patience, what)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// A peer is a plain client for tests: lines out, lines in.
type peer struct {
	t    *testing.T
	conn net.Conn
	in   *bufio.Reader
}

func dial(t *testing.T, addr string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	return newPeer(t, conn)
}

func newPeer(t *testing.T, conn net.Conn) *peer {
	t.Helper()
	t.Cleanup(func() { conn.Close() })
	return &peer{t, conn, bufio.NewReader(conn)}
}

// send sends an inline command.
func (p *peer) send(line string) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.conn, "%s\r\n", line); err != nil {
		p.t.Fatal(err)
	}
}

// reads waits up to d for a line; an error that wraps os.ErrDeadlineExceeded says that none came.
func (p *peer) reads(d time.Duration) (string, error) {
	p.t.Helper()
	if err := p.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		p.t.Fatal(err)
	}
	line, err := p.in.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// wants demands the next line.
func (p *peer) wants(want string) {
	p.t.Helper()
	if got, err := p.reads(patience); got != want || err != nil {
		p.t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

// wantsSilence demands that nothing comes for a moment, and that the connection stays.
func (p *peer) wantsSilence() {
	p.t.Helper()
	if got, err := p.reads(100 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("read %q, %v, want silence", got, err)
	}
}

// wantsEnd demands that the connection ends, without another line.
func (p *peer) wantsEnd() {
	p.t.Helper()
	if got, err := p.reads(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatalf("read %q, %v, want the end of the connection", got, err)
	}
}

// subscribes to a channel.
func (p *peer) subscribes(channel string) {
	p.t.Helper()
	p.send("SUBSCRIBE " + channel)
	p.wantsPush("subscribe", channel, "")
}

// wantsPush reads one message of a subscription.
func (p *peer) wantsPush(kind, channel, payload string) {
	p.t.Helper()
	last := []string{fmt.Sprintf("$%d", len(payload)), payload}
	if kind == "subscribe" {
		last = []string{":1"}
	}
	for _, want := range append([]string{"*3", fmt.Sprintf("$%d", len(kind)), kind, fmt.Sprintf("$%d", len(channel)), channel}, last...) {
		p.wants(want)
	}
}

func TestServerAnswersOnEveryAddress(t *testing.T) {
	s := Start(t, Options{})
	p := dial(t, s.Addr())
	p.send("PING")
	p.wants("+PONG")
	conn, err := net.Dial("unix", s.Unix())
	if err != nil {
		t.Fatal(err)
	}
	u := newPeer(t, conn)
	u.send("PING")
	u.wants("+PONG")
	if got, want := s.URL(), "redis://"+s.Addr(); got != want {
		t.Errorf("URL is %q, want %q", got, want)
	}
}

func TestCommandsAndReplies(t *testing.T) {
	s := Start(t, Options{Config: []string{"maxmemory 100mb"}})
	binary := "\x00\r\n\xff$-1\r\n"
	if got := s.Int("HSET", "h", "", binary); got != 1 {
		t.Errorf("HSET: got %d, want 1", got)
	}
	if got := s.Text("HGET", "h", ""); got != binary {
		t.Errorf("HGET: got %q, want %q", got, binary)
	}
	if got := s.Do("HGET", "h", "none"); got != nil {
		t.Errorf("HGET of nothing: got %v, want nil", got)
	}
	if got := s.Text("HGET", "h", "none"); got != "" {
		t.Errorf("HGET of nothing: got %q, want the empty string", got)
	}
	if got := fmt.Sprint(s.Do("CONFIG", "GET", "maxmemory")); got != "[maxmemory 104857600]" {
		t.Errorf("a line of the configuration is not in force: %s", got)
	}
	dump := s.Text("DUMP", "h")
	s.Do("FLUSHALL")
	s.Do("RESTORE", "h", "0", dump)
	if got := s.Text("HGET", "h", ""); got != binary {
		t.Errorf("HGET after RESTORE: got %q, want %q", got, binary)
	}
	_, err := s.Try("INCR", "h")
	if refused, ok := errors.AsType[Error](err); !ok || !strings.HasPrefix(refused.Error(), "WRONGTYPE ") {
		t.Errorf("INCR of a hash: error %v, want WRONGTYPE", err)
	}
	if got := fmt.Sprint(s.Multi([]string{"SET", "a", "1"}, []string{"INCR", "a"})); got != "[OK 2]" {
		t.Errorf("a transaction answered %s, want [OK 2]", got)
	}
	var many [][]string
	for i := range 10_000 {
		many = append(many, []string{"HSET", "big", fmt.Sprint(i), strings.Repeat("v", 100)})
	}
	if got := len(s.Pipe(many...)); got != 10_000 || s.Int("HLEN", "big") != 10_000 {
		t.Errorf("%d replies and %d fields, want 10000 of each", got, s.Int("HLEN", "big"))
	}
}

func TestPasswordAndUsers(t *testing.T) {
	s := Start(t, Options{Password: `a "b" \ü`, Users: []string{"reader on >secret ~app:* &* +@read"}})
	s.Do("SET", "app:1", "one") // our own user needs no password of the test's
	p := dial(t, s.Addr())
	p.send("GET app:1")
	if got, _ := p.reads(patience); !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("without a password: %q, want NOAUTH", got)
	}
	u, err := url.Parse(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	fmt.Fprintf(p.conn, "*2\r\n$4\r\nAUTH\r\n$%d\r\n%s\r\n", len(password), password)
	p.wants("+OK")
	p.send("AUTH reader secret")
	p.wants("+OK")
	p.send("GET app:1")
	p.wants("$3")
	p.wants("one")
	p.send("SET app:1 two")
	if got, _ := p.reads(patience); !strings.HasPrefix(got, "-NOPERM") {
		t.Errorf("a reader writes: %q, want NOPERM", got)
	}
}

func TestTLS(t *testing.T) {
	s := Start(t, Options{TLS: true})
	if !strings.HasPrefix(s.URL(), "rediss://") {
		t.Errorf("URL is %q, want rediss://", s.URL())
	}
	conn, err := tls.Dial("tcp", s.Addr(), s.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	p := newPeer(t, conn)
	p.send("PING")
	p.wants("+PONG")
	if stranger, err := tls.Dial("tcp", s.Addr(), &tls.Config{MinVersion: tls.VersionTLS12}); err == nil {
		stranger.Close()
		t.Error("a client that does not know the authority connects")
	}
	if plain := dial(t, s.Addr()); plain != nil {
		plain.send("PING")
		plain.wantsEnd()
	}
	s.Restart()
	if conn, err = tls.Dial("tcp", s.Addr(), s.TLSConfig()); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	conn.Close()
}

func TestKillStopAndRestart(t *testing.T) {
	s := Start(t, Options{})
	end := map[string]func(){
		"kill":          s.Kill,
		"stop":          s.Stop,
		"stop, frozen":  func() { s.Freeze(); s.Stop() },
		"kill, frozen":  func() { s.Freeze(); s.Kill() },
		"twice":         func() { s.Stop(); s.Kill(); s.Stop() },
		"restart alone": func() {},
	}
	for what, do := range end {
		s.Do("SET", "k", "v")
		p := dial(t, s.Addr())
		p.send("PING")
		p.wants("+PONG")
		addr, pid := s.Addr(), s.Pid()
		do()
		if what != "restart alone" {
			p.wantsEnd()
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Errorf("%s: somebody still listens", what)
			}
			if _, err := s.Try("PING"); err == nil {
				t.Errorf("%s: the server still answers", what)
			}
		}
		s.Restart()
		if s.Addr() != addr || s.Pid() == pid {
			t.Errorf("%s: restarted at %s as %d, want %s and not %d", what, s.Addr(), s.Pid(), addr, pid)
		}
		if got := s.Do("GET", "k"); got != nil {
			t.Errorf("%s: data of the life before: %v", what, got)
		}
		again := dial(t, s.Addr())
		again.send("PING")
		again.wants("+PONG")
	}
}

func TestSavedDataIsThereAfterARestart(t *testing.T) {
	s := Start(t, Options{})
	s.Do("SET", "k", "saved")
	s.Do("SAVE")
	s.Do("SET", "k", "later")
	s.Restart()
	if got := s.Text("GET", "k"); got != "saved" {
		t.Errorf("got %q, want what was saved", got)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	s := Start(t, Options{})
	p := dial(t, s.Addr())
	p.send("PING")
	p.wants("+PONG")
	s.Freeze()
	p.send("PING")
	p.wantsSilence()
	s.Thaw()
	p.wants("+PONG")
}

// A server that is frozen when its test ends is gone afterwards like any other.
func TestServerEndsWithItsTest(t *testing.T) {
	var pid int
	var dir string
	t.Run("the test", func(t *testing.T) {
		s := Start(t, Options{})
		pid, dir = s.Pid(), s.dir
		s.Freeze()
	})
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d is still there: %v", pid, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder %s is still there: %v", dir, err)
	}
}

func TestPortThatIsTaken(t *testing.T) {
	s := Start(t, Options{})
	other := &Server{tb: t, dir: t.TempDir(), secret: "secret", port: s.port}
	if err := other.start(); !errors.Is(err, errPortTaken) {
		t.Errorf("start on the port of another: %v, want %v", err, errPortTaken)
	}
}

func TestConfigurationThatIsRefused(t *testing.T) {
	s := &Server{tb: t, dir: t.TempDir(), secret: "secret", options: Options{Config: []string{"no-such-thing yes"}}}
	var err error
	if s.port, err = freePort(); err != nil {
		t.Fatal(err)
	}
	if err := s.start(); err == nil || !strings.Contains(err.Error(), "no-such-thing") {
		t.Errorf("start: %v, want what the server says of the line", err)
	}
}

func TestKillPubSub(t *testing.T) {
	s := Start(t, Options{})
	subscriber, bystander := dial(t, s.Addr()), dial(t, s.Addr())
	subscriber.subscribes("news")
	if got := s.KillPubSub(); got != 1 {
		t.Errorf("killed %d, want 1", got)
	}
	subscriber.wantsEnd()
	bystander.send("PING")
	bystander.wants("+PONG")
}

// Of two messages the subscriber sees the one before the transaction and not the one
// in it, and nobody was subscribed when that was sent.
func TestKillPubSubAnd(t *testing.T) {
	s := Start(t, Options{})
	p := dial(t, s.Addr())
	p.subscribes("news")
	s.Do("PUBLISH", "news", "first")
	p.wantsPush("message", "news", "first")
	got := s.KillPubSubAnd([]string{"SET", "k", "v"}, []string{"PUBLISH", "news", "second"})
	if fmt.Sprint(got) != "[OK 0]" {
		t.Errorf("replies %v, want [OK 0]: stored, and no receivers", got)
	}
	p.wantsEnd()
	if got := s.Text("GET", "k"); got != "v" {
		t.Errorf("the write in the transaction left %q, want v", got)
	}
}

func TestClientsAndKillClient(t *testing.T) {
	s := Start(t, Options{})
	a, b := dial(t, s.Addr()), dial(t, s.Addr())
	a.send("CLIENT SETNAME a")
	a.wants("+OK")
	a.subscribes("news")
	b.send("CLIENT SETNAME b")
	b.wants("+OK")
	clients := make(map[string]Client)
	for _, c := range s.Clients() {
		clients[c.Name] = c
	}
	if len(clients) != 2 || clients["a"].Sub != 1 || clients["b"].Sub != 0 {
		t.Fatalf("clients %v, want a with one subscription, and b", clients)
	}
	if got, want := clients["a"].Addr, a.conn.LocalAddr().String(); got != want {
		t.Errorf("a is at %s, want %s", got, want)
	}
	if !s.KillClient(clients["a"].ID) {
		t.Error("there was no a to kill")
	}
	a.wantsEnd()
	b.send("PING")
	b.wants("+PONG")
}
