//go:build unix

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/latchkey-go/latchkey/examples/internal/exampletest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func TestFencing(t *testing.T) {
	out := exampletest.Run(t, "DATABASE_URL="+startPostgres(t))
	for _, want := range []string{"is frozen", "the balance is 200, by next", "it was refused"} {
		if !strings.Contains(out, want) {
			t.Errorf("it did not print %q", want)
		}
	}
}

// startPostgres runs a server of the test's own on a free port, and returns its address.
func startPostgres(t *testing.T) string {
	t.Helper()
	initdb, postgres := find(t, "initdb"), find(t, "postgres")
	dir, err := os.MkdirTemp("", "latchkey-postgres") // t.TempDir lies below a folder that only this user may enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	as := unprivileged(t, dir)
	data := filepath.Join(dir, "data")
	setup := exec.Command(initdb, "--pgdata", data, "--username", "example", "--auth", "trust", "--no-sync", "--no-locale", "--encoding", "UTF8")
	setup.SysProcAttr, setup.Dir = as, dir
	if text, err := setup.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, text)
	}

	port := freePort(t)
	server := exec.Command(postgres, "-D", data, "-p", port, "-F", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=")
	server.SysProcAttr, server.Dir = as, dir
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // ends at once, with its helpers
		_ = server.Wait()
	})
	url := fmt.Sprintf("postgres://example@127.0.0.1:%s/postgres?sslmode=disable", port)
	awaitPostgres(t, url, log.Name())
	return url
}

// awaitPostgres waits until the server answers.
func awaitPostgres(t *testing.T, url, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		db, err := pgx.Connect(ctx, url)
		if err == nil {
			db.Close(ctx)
			return
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			text, _ := os.ReadFile(log)
			t.Fatalf("postgres does not answer: %v\n%s", err, text)
		}
	}
}

// find returns the path of a program of PostgreSQL, which Debian keeps out of PATH.
func find(t *testing.T, program string) string {
	t.Helper()
	if path, err := exec.LookPath(program); err == nil {
		return path
	}
	if found, err := filepath.Glob("/usr/lib/postgresql/*/bin/" + program); err == nil && len(found) > 0 {
		return found[len(found)-1]
	}
	const missing = "%s is missing: install the Debian package postgresql"
	if os.Getenv("CI") == "true" {
		t.Fatalf(missing, program)
	}
	t.Skipf(missing, program)
	return ""
}

// unprivileged gives dir to a user under whom PostgreSQL agrees to run: it refuses root.
func unprivileged(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root, and there is no other user: %v", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(uid), int(gid)); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

// freePort finds a port that nobody has now.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
