package redistest

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/proctest"
)

// envProgram names a server other than the redis-server in PATH, such as one of
// another version.
const envProgram = "LATCHKEY_REDIS_SERVER"

// patience is how long a server may take to start or to answer, on a busy machine.
const patience = proctest.Patience

// Options say what a server is like. The zero value is one without password or TLS.
type Options struct {
	// Password is that of the default user; none when empty.
	Password string
	// Users are further users, each a name and rules as the configuration has them
	// behind "user": "reader on >secret ~app:* &* +@read".
	Users []string
	// TLS has the server take connections with TLS alone, with a certificate made for
	// it; see [Server.TLSConfig] and [Server.CAFile]. The unix socket stays plain.
	TLS bool
	// Config are further lines of the configuration, behind ours: "maxmemory 10mb".
	Config []string
}

// A Server is a redis-server that belongs to a test. It keeps nothing on disk, unless
// the test has it SAVE.
type Server struct {
	tb      testing.TB
	options Options
	dir     string
	port    int
	secret  string // password of the user with which this package talks to the server

	mu      sync.Mutex // guards what follows, and is held from beginning to end of a change of it
	lives   int
	process *proctest.Process // of the last life; nil before the first
}

// Start runs a server until the end of the test, and returns when it answers. Without
// a redis-server to run the test is skipped, or, where CI=true, fails.
func Start(tb testing.TB, options Options) *Server {
	tb.Helper()
	if _, err := exec.LookPath(program()); err != nil {
		if os.Getenv("CI") == "true" {
			tb.Fatalf("no redis-server: %v; run scripts/tools, which installs it", err)
		}
		tb.Skipf("no redis-server: %v; run scripts/tools, which installs it", err)
	}
	dir, err := os.MkdirTemp("", "latchkey") // tb.TempDir may be too long for a socket
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, options: options, dir: dir, secret: rand.Text()}
	tb.Cleanup(s.cleanUp)
	if options.TLS {
		if err := certify(dir); err != nil {
			tb.Fatal(err)
		}
	}
	for range 10 {
		if s.port, err = freePort(); err != nil {
			tb.Fatal(err)
		}
		if err = s.start(); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func program() string {
	if p := os.Getenv(envProgram); p != "" {
		return p
	}
	return "redis-server"
}

// Addr is where the server listens, as host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// Unix is the path of the socket on which the server listens too.
func (s *Server) Unix() string { return filepath.Join(s.dir, "s") }

// URL is the address with everything that the default user needs, as redis:// or
// rediss://.
func (s *Server) URL() string {
	u := url.URL{Scheme: "redis", Host: s.Addr()}
	if s.options.TLS {
		u.Scheme = "rediss"
	}
	if s.options.Password != "" {
		u.User = url.UserPassword("", s.options.Password)
	}
	return u.String()
}

// CAFile is the path of the certificate of the authority that the server's own is
// from, with [Options.TLS].
func (s *Server) CAFile() string { return filepath.Join(s.dir, caFile) }

// TLSConfig is what a client needs to trust the server, with [Options.TLS].
func (s *Server) TLSConfig() *tls.Config {
	s.tb.Helper()
	text, err := os.ReadFile(s.CAFile())
	if err != nil {
		s.tb.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		s.tb.Fatalf("%s holds no certificate", s.CAFile())
	}
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

// Pid is the process id of the server, or of its last life when it is not running.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process.Pid()
}

// Kill ends the server in the middle of what it does, and returns when it is gone.
func (s *Server) Kill() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Kill(); err != nil {
		s.tb.Fatal(err)
	}
}

// Stop has the server say goodbye to its clients and end, and returns when it is gone.
func (s *Server) Stop() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Terminate(); err != nil {
		s.tb.Fatalf("stop the server: %v", err)
	}
}

// Restart kills the server, if it runs, and starts it again under the same address. It
// comes back without data, unless the test had it SAVE, and returns when it answers.
func (s *Server) Restart() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.process.Kill()
	for began := time.Now(); err == nil; {
		err = s.startLocked()
		if !errors.Is(err, errPortTaken) || time.Since(began) > patience {
			break
		}
		err = nil
	}
	if err != nil {
		s.tb.Fatal(err)
	}
}

// Freeze stops the process: its sockets stay open, and nobody answers. It ends with
// Thaw, Stop, Kill, Restart, or the test.
func (s *Server) Freeze() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Freeze(); err != nil {
		s.tb.Fatal(err)
	}
}

// Thaw has a frozen process go on.
func (s *Server) Thaw() {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Thaw(); err != nil {
		s.tb.Fatal(err)
	}
}

// Log is what the server has said in its present life.
func (s *Server) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log()
}

func (s *Server) log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log-"+strconv.Itoa(s.lives)) }

// errPortTaken says that somebody else listens on the port of the server.
var errPortTaken = errors.New("the port is taken")

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startLocked()
}

// startLocked begins a life of the server and waits until it answers.
func (s *Server) startLocked() error {
	s.lives++
	conf := filepath.Join(s.dir, "redis.conf")
	if err := os.WriteFile(conf, []byte(s.configuration()), 0o600); err != nil {
		return fmt.Errorf("write the configuration of the server: %w", err)
	}
	out, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of the server: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(program(), conf)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, out, out
	if s.process, err = proctest.Start(cmd); err != nil {
		return err
	}
	return s.awaitAnswer()
}

// awaitAnswer asks on the unix socket, which is in a folder of our own: on the port
// somebody else might answer. The server opens it behind the port.
func (s *Server) awaitAnswer() error {
	deadline := time.After(patience)
	for {
		_, err := s.Try("PING")
		if err == nil {
			return nil
		}
		select {
		case <-s.process.Over():
			said := s.log()
			if strings.Contains(said, "in use") {
				return fmt.Errorf("start the server on port %d: %w", s.port, errPortTaken)
			}
			return fmt.Errorf("the server has ended at once, and said:\n%s", said)
		case <-deadline:
			return fmt.Errorf("the server does not answer within %v: %w; it said:\n%s", patience, err, s.log())
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func (s *Server) configuration() string {
	lines := []string{
		"bind 127.0.0.1",
		"unixsocket " + strconv.Quote(s.Unix()),
		"daemonize no",
		`save ""`,
		"appendonly no",
		"loglevel notice",
		"always-show-logo no",
		"enable-debug-command local",
		"user " + ownUser + " on >" + s.secret + " ~* &* +@all",
	}
	if s.options.TLS {
		lines = append(lines, "port 0", "tls-port "+strconv.Itoa(s.port), "tls-auth-clients no",
			"tls-ca-cert-file "+caFile, "tls-cert-file "+certFile, "tls-key-file "+keyFile)
	} else {
		lines = append(lines, "port "+strconv.Itoa(s.port))
	}
	if s.options.Password != "" {
		lines = append(lines, "requirepass "+strconv.Quote(s.options.Password))
	}
	for _, u := range s.options.Users {
		lines = append(lines, "user "+u)
	}
	return strings.Join(append(lines, s.options.Config...), "\n") + "\n"
}

func (s *Server) cleanUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Kill(); err != nil {
		s.tb.Error(err)
	}
	if s.tb.Failed() && s.lives > 0 {
		said := strings.Split(strings.TrimSpace(s.log()), "\n")
		s.tb.Logf("the last that the server at %s said:\n%s", s.Addr(), strings.Join(said[max(0, len(said)-10):], "\n"))
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.tb.Error(err)
	}
}
