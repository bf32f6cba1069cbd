// Package redisserver gives examples a Redis: the one that LATCHKEY_STORE names, or one of their own.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// Variable is the environment variable with the URL of a Redis to use. Processes that an example starts find it there.
const Variable = "LATCHKEY_STORE"

// startTime is how long a server may take to answer, and to end.
const startTime = 20 * time.Second

// Server is a running Redis.
type Server struct {
	// URL is what rmapredis.Open takes.
	URL string

	dir string    // holds the socket; empty when the server is somebody else's
	cmd *exec.Cmd // the same
}

// Start runs redis-server, without a port and without a file on disk, unless the environment names another Redis. Stop
// must be called in the end.
func Start(ctx context.Context) (*Server, error) {
	if url := os.Getenv(Variable); url != "" {
		return &Server{URL: url}, nil
	}
	program, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, fmt.Errorf("%w: install redis, or put the URL of one into %s", err, Variable)
	}
	dir, err := os.MkdirTemp("", "latchkey-redis")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	s := &Server{URL: "unix://" + socket, dir: dir}
	s.cmd = exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir", dir)
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start redis-server: %w", err), os.RemoveAll(dir))
	}
	if err := s.await(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// await asks until the server answers.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for {
		store, err := rmapredis.Open(ctx, s.URL, rmapredis.Options{})
		if err == nil {
			store.Close()
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer: %w", err)
		}
	}
}

// Stop ends the server, if it was started here.
func (s *Server) Stop() error {
	if s.cmd == nil {
		return nil
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		_ = s.cmd.Process.Kill() // where the signal does not exist
	}
	limit := time.AfterFunc(startTime, func() { _ = s.cmd.Process.Kill() })
	defer limit.Stop()
	_ = s.cmd.Wait() // however it ended, it is gone
	return os.RemoveAll(s.dir)
}
