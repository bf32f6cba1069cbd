//go:build unix

package pgtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/internal/proctest"
)

// patience is how long a server may take to be made, to start or to end, on a busy
// machine.
const patience = time.Minute

// A Server is a PostgreSQL that belongs to a test. It writes without fsync: what it
// has committed outlives its processes, not the machine.
type Server struct {
	tb      testing.TB
	dir     string
	port    int
	lives   int
	config  []string
	process *proctest.Process // of the last life; nil before the first
}

// Start makes and runs a server until the end of the test, and returns when it
// answers. Each setting is a "name=value" of its configuration. Without a PostgreSQL
// to run the test is skipped, or, where CI=true, fails.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	initdb := find(tb, "initdb")
	find(tb, "postgres")
	dir, err := os.MkdirTemp("", "latchkey-postgres") // tb.TempDir lies below a folder that only this user may enter
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, dir: dir, config: settings}
	tb.Cleanup(s.cleanUp)
	setup := exec.Command(initdb, "--pgdata", s.data(), "--username", "test", "--auth", "trust", "--no-sync", "--no-locale", "--encoding", "UTF8")
	setup.Dir = dir
	if err := unprivileged(setup, dir); err != nil {
		tb.Fatal(err)
	}
	if text, err := setup.CombinedOutput(); err != nil {
		tb.Fatalf("initdb: %v\n%s", err, text)
	}
	for range 10 {
		if s.port, err = freePort(); err != nil {
			tb.Fatal(err)
		}
		if err = s.start(); !errors.Is(err, errTaken) {
			break
		}
	}
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// URL is the address of a database in it, with a user who may do everything.
func (s *Server) URL() string {
	return fmt.Sprintf("postgres://test@127.0.0.1:%d/postgres?sslmode=disable", s.port)
}

// Connect returns a connection that is closed at the end of the test.
func (s *Server) Connect() *pgx.Conn {
	s.tb.Helper()
	db, err := pgx.Connect(s.tb.Context(), s.URL())
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = db.Close(ctx) // its server may be gone
	})
	return db
}

// Kill ends the server in the middle of what it does, and returns when it is gone.
// Its other processes end by themselves a moment later.
func (s *Server) Kill() {
	s.tb.Helper()
	if err := s.process.Kill(); err != nil {
		s.tb.Fatal(err)
	}
}

// Stop has the server roll back what is under way, say goodbye to its clients and
// end, and returns when it is gone.
func (s *Server) Stop() {
	s.tb.Helper()
	if err := s.end(); err != nil {
		s.tb.Fatal(err)
	}
}

// Restart kills the server, if it runs, and starts it again under the same address.
// What was committed is there again.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	var err error
	for began := time.Now(); ; {
		if err = s.start(); !errors.Is(err, errTaken) || time.Since(began) > patience {
			break
		}
	}
	if err != nil {
		s.tb.Fatal(err)
	}
}

// errTaken says that somebody else has the port, or still has the memory of the life
// before.
var errTaken = errors.New("the port, or the shared memory, is taken")

// start begins a life of the server and waits until it answers.
func (s *Server) start() error {
	s.lives++
	log, err := os.Create(s.logFile())
	if err != nil {
		return fmt.Errorf("create the log of the server: %w", err)
	}
	defer log.Close()
	arguments := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-F", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="}
	for _, c := range s.config {
		arguments = append(arguments, "-c", c)
	}
	cmd := exec.Command(find(s.tb, "postgres"), arguments...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if err := unprivileged(cmd, s.dir); err != nil {
		return err
	}
	if s.process, err = proctest.Start(cmd); err != nil {
		return err
	}
	return s.await()
}

// await waits until the server answers, and sees that it is this one.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := s.knock(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-again.C:
		case <-s.process.Over():
			said := s.log()
			if strings.Contains(said, "already in use") || strings.Contains(said, "still in use") || strings.Contains(said, "lock file") {
				return fmt.Errorf("start PostgreSQL on port %d: %w", s.port, errTaken)
			}
			return fmt.Errorf("PostgreSQL has ended at once, and said:\n%s", said)
		case <-ctx.Done():
			return fmt.Errorf("PostgreSQL does not answer within %v: %w; it said:\n%s", patience, err, s.log())
		}
	}
}

func (s *Server) knock(ctx context.Context) error {
	db, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	var data string
	if err := db.QueryRow(ctx, `show data_directory`).Scan(&data); err != nil {
		return err
	}
	if data != s.data() {
		return fmt.Errorf("another server answers, whose data are in %s", data)
	}
	return nil
}

// end asks the server to end; one that does not run is fine.
func (s *Server) end() error {
	if !s.process.Running() {
		return nil
	}
	if err := interrupt(s.process.Pid()); err != nil && s.process.Running() {
		return fmt.Errorf("ask PostgreSQL to end: %w", err)
	}
	select {
	case <-s.process.Over():
		return nil
	case <-time.After(patience):
		return fmt.Errorf("PostgreSQL has not ended within %v; it said:\n%s", patience, s.log())
	}
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log-"+strconv.Itoa(s.lives)) }

func (s *Server) log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) cleanUp() {
	if err := s.end(); err != nil {
		s.tb.Error(errors.Join(err, s.process.Kill()))
	}
	if s.tb.Failed() && s.lives > 0 {
		said := strings.Split(strings.TrimSpace(s.log()), "\n")
		s.tb.Logf("the last that PostgreSQL said:\n%s", strings.Join(said[max(0, len(said)-20):], "\n"))
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.tb.Error(err)
	}
}

// find returns the path of a program of PostgreSQL, which Debian keeps out of PATH.
func find(tb testing.TB, program string) string {
	tb.Helper()
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + program); err == nil && len(found) > 0 {
		return found[len(found)-1]
	}
	const missing = "%s is missing: run scripts/tools, which installs the Debian package postgresql"
	if os.Getenv("CI") == "true" {
		tb.Fatalf(missing, program)
	}
	tb.Skipf(missing, program)
	return ""
}

// freePort finds a port that is free now, below the range from which systems give
// ports to outgoing connections: a client that dials one of those while its server is
// away can be given that very port, and is then connected to itself.
func freePort() (int, error) {
	var last error
	for range 100 {
		port := 10_000 + rand.IntN(22_000)
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, ln.Close()
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port on loopback: %w", last)
}
