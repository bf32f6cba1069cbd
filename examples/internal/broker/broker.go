// Package broker runs `latchkey serve` as a process of its own for the examples, which also kill it.
package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// startTime is how long a broker may take to say where it listens: it may have a journal to read.
const startTime = 20 * time.Second

// Broker is a running broker. It is not safe for concurrent use.
type Broker struct {
	// Addr is where clients reach it: a unix socket, whose name nobody else can take while the broker is away.
	Addr string

	dir  string // holds the program
	args []string
	cmd  *exec.Cmd // nil while it does not run
}

// Start builds the command and runs `latchkey serve` with more arguments. Stop must be called in the end.
func Start(ctx context.Context, args ...string) (*Broker, error) {
	dir, err := os.MkdirTemp("", "latchkey-example")
	if err != nil {
		return nil, err
	}
	b := &Broker{Addr: "unix:" + filepath.Join(dir, "socket"), dir: dir, args: args}
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", b.program(), "github.com/latchkey-go/latchkey/cmd/latchkey")
	if text, err := build.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("build the broker: %w\n%s", err, text), b.Stop())
	}
	if err := b.Restart(ctx); err != nil {
		return nil, errors.Join(err, b.Stop())
	}
	return b, nil
}

func (b *Broker) program() string { return filepath.Join(b.dir, "latchkey") }

// Restart runs the broker again, after Kill, on the same address and with the same arguments.
func (b *Broker) Restart(ctx context.Context) error {
	cmd := exec.Command(b.program(), append([]string{"serve", "--listen", "", "--http", "", "--unix", filepath.Join(b.dir, "socket")}, b.args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	b.cmd = cmd
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { out.Close() }) // ends the reading
	defer stop()
	// It prints where it listens, and then is quiet.
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the broker did not say where it listens: %w", errors.Join(context.Cause(ctx), err))
	}
	return nil
}

// Command makes a command of the latchkey program that talks to this broker, as one would type it.
func (b *Broker) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.program(), args...)
	cmd.Env = append(os.Environ(), "LATCHKEY_SERVER="+b.Addr)
	cmd.Stderr = os.Stderr
	return cmd
}

// Kill ends the broker as a crash would: with SIGKILL, in the middle of whatever it does.
func (b *Broker) Kill() error {
	if b.cmd == nil {
		return nil
	}
	err := b.cmd.Process.Kill()
	_ = b.cmd.Wait() // says that it was killed
	b.cmd = nil
	return err
}

// Stop ends the broker and removes the program.
func (b *Broker) Stop() error {
	err := b.end()
	return errors.Join(err, os.RemoveAll(b.dir))
}

// end asks the broker to end, as ^C does.
func (b *Broker) end() error {
	if b.cmd == nil {
		return nil
	}
	cmd := b.cmd
	b.cmd = nil
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		_ = cmd.Process.Kill() // where the signal does not exist
		return cmd.Wait()
	}
	limit := time.AfterFunc(startTime, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the broker did not end in order: %w", err)
	}
	return nil
}
