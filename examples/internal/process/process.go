// Package process runs copies of an example as processes of their own, which say lines and end with whoever started them.
package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// Process is a running copy of this program. It is not safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	in    io.Closer // keeps it running
	lines *bufio.Scanner
}

// Start runs this program with other arguments and more variables in its environment. Stop must be called in the end.
func Start(ctx context.Context, env []string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &Process{cmd: cmd, in: in, lines: bufio.NewScanner(out)}, nil
}

// Line waits for the next line that the process prints.
func (p *Process) Line() (string, error) {
	if p.lines.Scan() {
		return p.lines.Text(), nil
	}
	return "", fmt.Errorf("the process has ended: %w", errors.Join(p.lines.Err(), io.EOF))
}

// Stop tells the process that it is not needed any more, and waits for its end.
func (p *Process) Stop() error {
	p.in.Close()
	return p.cmd.Wait()
}

// Needed returns, in a copy, when whoever started it has called Stop or is gone.
func Needed() error {
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
