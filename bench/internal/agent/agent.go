// Package agent drives a lock client in another program, by lines of JSON on its input and output.
//
// The lines are those that the check of Latchkey's clients uses, see clients/check; of them a measurement needs only
// connect, bench and close.
package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// patience is how long an agent may take over an answer, beyond the time that it was asked to work.
const patience = 30 * time.Second

// Agent is a running client.
type Agent struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan []byte // what it says; closed at the end of its output
	once  sync.Once
}

// Start runs the program, with env besides this process's own, and connects it to the broker at addr.
func Start(ctx context.Context, name, addr string, env []string, program string, args ...string) (*Agent, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	process.DieWithParent(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the client %s: %w", name, err)
	}
	a := &Agent{name: name, cmd: cmd, in: in, lines: make(chan []byte)}
	go a.read(out) // ends with the output, which Close sees to
	if _, err := a.ask(ctx, map[string]any{"do": "connect", "addr": addr, "name": "bench-" + name}, "connected", 0); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Agent) read(out io.Reader) {
	defer close(a.lines)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		a.lines <- append([]byte(nil), lines.Bytes()...)
	}
}

// PID is the process id of the client.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

type answer struct {
	Event  string  `json:"event"`
	Text   string  `json:"text"`
	Pairs  int     `json:"pairs"`
	MS     float64 `json:"ms"`
	Errors int     `json:"errors"`
}

// ask sends a command and waits for the event that answers it.
func (a *Agent) ask(ctx context.Context, command map[string]any, event string, work time.Duration) (answer, error) {
	text, err := json.Marshal(command)
	if err != nil {
		return answer{}, err
	}
	if _, err := a.in.Write(append(text, '\n')); err != nil {
		return answer{}, fmt.Errorf("client %s: %w", a.name, err)
	}
	late := time.NewTimer(work + patience)
	defer late.Stop()
	select {
	case line, ok := <-a.lines:
		var got answer
		switch err := json.Unmarshal(line, &got); {
		case !ok:
			return answer{}, fmt.Errorf("client %s: it ended", a.name)
		case err != nil:
			return answer{}, fmt.Errorf("client %s: it said %q: %w", a.name, line, err)
		case got.Event != event:
			return answer{}, rounds.Wrong("client %s was to say %q and said %s", a.name, event, line)
		}
		return got, nil
	case <-late.C:
		return answer{}, fmt.Errorf("client %s: no answer to %s", a.name, text)
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

// Run has so many callers lock and unlock a key each, for about d.
func (a *Agent) Run(ctx context.Context, callers int, d time.Duration) (rounds.Sample, error) {
	got, err := a.ask(ctx, map[string]any{"do": "bench", "key": "bench:" + a.name, "in_flight": callers, "ms": d.Milliseconds()}, "bench", d)
	if err != nil {
		return rounds.Sample{}, err
	}
	if got.Errors != 0 || got.Pairs == 0 || got.MS <= 0 {
		return rounds.Sample{}, rounds.Wrong("client %s made %d pairs in %v ms, with %d errors", a.name, got.Pairs, got.MS, got.Errors)
	}
	return rounds.Sample{Ops: got.Pairs, Elapsed: time.Duration(got.MS * float64(time.Millisecond))}, nil
}

// Close says goodbye and waits for the end of the process, which it kills when that does not come.
func (a *Agent) Close() error {
	var err error
	a.once.Do(func() {
		a.in.Close() // the end of the input is a goodbye
		kill := time.AfterFunc(patience, func() { _ = a.cmd.Process.Kill() })
		defer kill.Stop()
		for range a.lines {
		}
		if err = a.cmd.Wait(); err != nil {
			err = fmt.Errorf("client %s: %w", a.name, err)
		}
	})
	return err
}
