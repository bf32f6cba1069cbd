//go:build unix

// Command election shows a leader election that survives kill -9. Three processes stand for election against a broker
// with a directory. The leader is killed: another leads within the grace of the dead one's session, with a higher token.
// Then the broker is killed and started again: the leader keeps its office, or wins it anew.
//
//	go run ./examples/election
//
// It checks the log that all of them write, and exits with 1 when two led at once or a token went back.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/broker"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// candidates stand for election. The grace is how long the broker waits for a sign of life of one of them before it
// gives the office to the next.
const (
	candidates = 3
	grace      = time.Second
)

// patience is how long anything may take on a busy machine. What is promised is checked where it happens.
const patience = 30 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) == 5 && os.Args[1] == "candidate" {
		err = stand(ctx, os.Args[2], os.Args[3], os.Args[4])
	} else {
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "election:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "latchkey-election")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b, err := broker.Start(ctx, "--data", filepath.Join(dir, "data"))
	if err != nil {
		return err
	}
	defer b.Stop()
	e := &election{log: filepath.Join(dir, "log"), running: make(map[string]*exec.Cmd)}
	defer e.killAll()
	if err := e.start(b.Addr); err != nil {
		return err
	}

	first, err := e.await(ctx, "a leader at work", func(r record) bool { return r.what == "works" })
	if err != nil {
		return err
	}
	fmt.Printf("%s leads; it is killed\n", first.name)
	died := time.Now()
	if err := e.kill(first.name); err != nil {
		return err
	}
	second, err := e.await(ctx, "another leader", func(r record) bool { return r.what == "leads" && r.name != first.name })
	if err != nil {
		return err
	}
	took := time.Since(died)
	fmt.Printf("%s leads, %v after the death; its token is higher: %v\n", second.name, took.Round(10*time.Millisecond), second.token > first.token)
	// A machine that is busy may add to the grace, but not this much.
	if took > grace+5*time.Second {
		return fmt.Errorf("the next leader came after %v, the grace is %v", took, grace)
	}

	if _, err := e.await(ctx, "its work", func(r record) bool { return r.what == "works" && r.token == second.token }); err != nil {
		return err
	}

	fmt.Println("the broker is killed and started again")
	if err := b.Kill(); err != nil {
		return err
	}
	if err := b.Restart(ctx); err != nil {
		return err
	}
	sofar, err := e.read()
	if err != nil {
		return err
	}
	// Each act of a leader asks the broker before, so one that comes now was under a lease that the broker knows.
	next, err := e.await(ctx, "a leader at work", func(r record) bool { return r.what == "works" && r.line >= len(sofar) })
	if err != nil {
		return err
	}
	if next.token == second.token {
		fmt.Printf("%s still leads: the broker remembered, under the same token\n", next.name)
	} else {
		fmt.Printf("%s leads anew, with a higher token: %v\n", next.name, next.token > second.token)
	}
	return e.check()
}

// stand is a candidate: it leads whenever it is elected, and works until it is deposed.
func stand(ctx context.Context, name, addr, log string) error {
	svc, err := leaseremote.Dial(ctx, addr, leaseremote.Options{})
	if err != nil {
		return err
	}
	defer svc.Close()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{
		SessionOptions: lease.SessionOptions{Name: name, PID: os.Getpid(), Grace: grace},
	})
	if err != nil {
		return err
	}
	defer client.Close(context.WithoutCancel(ctx))
	out, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	office := lease.Request{Keys: []string{"office"}, TTL: 3 * time.Second, Label: name}
	return client.Lead(ctx, office, func(ctx context.Context, h *lease.Held) error {
		fmt.Fprintln(out, name, h.Token(), "leads")
		for {
			select {
			case <-ctx.Done(): // deposed: the return makes Lead stand again
				return nil
			case <-time.After(20 * time.Millisecond):
			}
			if err := work(ctx, client, h, name, out); err != nil {
				return err
			}
		}
	})
}

// work is one act of the leader. This one first asks the broker, by a renewal, whether it still leads; most work can
// rely on the context.
func work(ctx context.Context, client *lease.Client, h *lease.Held, name string, out io.Writer) error {
	if _, err := client.Renew(ctx, h.Lease().ID, 0); err != nil {
		return nil // the context tells whether that is a loss
	}
	if h.Err() != nil {
		return nil
	}
	_, err := fmt.Fprintln(out, name, h.Token(), "works")
	return err
}

// election is the three processes and the log that they write together.
type election struct {
	log     string
	running map[string]*exec.Cmd
}

// start starts the candidates.
func (e *election) start(addr string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"anna", "bela", "cora"}[:candidates] {
		cmd := exec.Command(self, "candidate", name, addr, e.log)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		e.running[name] = cmd
	}
	return nil
}

func (e *election) kill(name string) error {
	cmd := e.running[name]
	delete(e.running, name)
	err := cmd.Process.Kill()
	return errors.Join(err, ended(cmd.Wait()))
}

// ended is nil for a process that a signal ended.
func ended(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

func (e *election) killAll() {
	for name := range e.running {
		_ = e.kill(name) // on the way out
	}
}

// record is one line of the log: who, under which token, did what.
type record struct {
	line  int
	name  string
	token lease.Token
	what  string
}

// read reads the whole lines of the log.
func (e *election) read() ([]record, error) {
	text, err := os.ReadFile(e.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var out []record
	for line := range bytes.Lines(text) {
		r := record{line: len(out)}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		if _, err := fmt.Sscan(string(line), &r.name, &r.token, &r.what); err != nil {
			return nil, fmt.Errorf("the log says %q: %w", line, err)
		}
		out = append(out, r)
	}
	return out, nil
}

// await reads the log until it has a line of some kind.
func (e *election) await(ctx context.Context, what string, is func(record) bool) (record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("after %v still no sign of %s", patience, what))
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		all, err := e.read()
		if err != nil {
			return record{}, err
		}
		for _, r := range all {
			if is(r) {
				return r, nil
			}
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return record{}, context.Cause(ctx)
		}
	}
}

// check goes through the log: whoever acts has the highest token so far, and a token belongs to one leader. So nobody
// acts after the next one has begun.
func (e *election) check() error {
	all, err := e.read()
	if err != nil {
		return err
	}
	highest := record{}
	terms := 0
	for _, r := range all {
		switch {
		case r.token < highest.token:
			return fmt.Errorf("line %d: %s %s under token %d after %s led under %d", r.line+1, r.name, r.what, r.token, highest.name, highest.token)
		case r.token == highest.token && r.name != highest.name:
			return fmt.Errorf("line %d: %s and %s both lead under token %d", r.line+1, highest.name, r.name, r.token)
		case r.token > highest.token:
			terms++
		}
		highest = r
	}
	if terms < 2 {
		return fmt.Errorf("%d terms in %d lines prove nothing", terms, len(all))
	}
	fmt.Printf("%d lines in the log: never two leaders, and tokens only rise\n", len(all))
	return nil
}
