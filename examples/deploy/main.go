//go:build unix

// Command deploy shows a deploy lock. Four processes want to deploy the same site at once; each is an ordinary command
// under `latchkey run`, and knows nothing of locks. An operator holds the lock first (a release freeze), so that all of
// them can be seen waiting in line. When the freeze ends they deploy one at a time, in the order in which they came.
//
//	go run ./examples/deploy
//
// It checks what it shows, and exits with 1 when two deployments overlapped or came out of order.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/broker"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

const (
	key      = "deploy/shop"
	releases = 4
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if len(os.Args) == 4 && os.Args[1] == "release" {
		err = release(os.Args[2], os.Args[3])
	} else {
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		os.Exit(1)
	}
}

// run is the operator.
func run(ctx context.Context) error {
	b, err := broker.Start(ctx)
	if err != nil {
		return err
	}
	defer b.Stop()
	site, err := os.MkdirTemp("", "latchkey-site")
	if err != nil {
		return err
	}
	defer os.RemoveAll(site)

	svc, err := leaseremote.Dial(ctx, b.Addr, leaseremote.Options{})
	if err != nil {
		return err
	}
	defer svc.Close()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{SessionOptions: lease.SessionOptions{Name: "operator"}})
	if err != nil {
		return err
	}
	defer client.Close(ctx)
	freeze, err := client.Hold(ctx, lease.Request{Keys: []string{key}, Label: "release freeze"})
	if err != nil {
		return err
	}

	deployments, err := queueUp(ctx, b, svc, site)
	defer func() {
		for _, d := range deployments {
			_ = d.Process.Kill() // on the way out of a failure; those that ended are not touched
		}
	}()
	if err != nil {
		return err
	}
	if err := show(ctx, b, svc); err != nil {
		return err
	}
	fmt.Println("\nthe freeze ends")
	if err := freeze.Release(ctx); err != nil {
		return err
	}
	for _, d := range deployments {
		if err := d.Wait(); err != nil {
			return fmt.Errorf("%q: %w", d.Args, err)
		}
	}
	return check(site)
}

// queueUp starts the deployments one after the other, each when the one before is seen waiting.
func queueUp(ctx context.Context, b *broker.Broker, svc lease.Service, site string) ([]*exec.Cmd, error) {
	queued := make(chan string, releases)
	stop, err := svc.Watch(ctx, lease.Query{Key: key}, func(e lease.Event) {
		if e.Kind == lease.EventQueued {
			queued <- e.Label
		}
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var started []*exec.Cmd
	for n := 1; n <= releases; n++ {
		name := fmt.Sprint("release-", n)
		cmd := b.Command(ctx, "run", "--label", name, key, "--", self, "release", site, name)
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return started, err
		}
		started = append(started, cmd)
		select {
		case got := <-queued:
			if got != name {
				return started, fmt.Errorf("%s waits, want %s", got, name)
			}
		case <-ctx.Done():
			return started, ctx.Err()
		}
	}
	return started, nil
}

// show prints what anybody can see of the lock, and checks it.
func show(ctx context.Context, b *broker.Broker, svc lease.Service) error {
	ls := b.Command(ctx, "ls", "--waiters", "deploy/")
	ls.Stdout = os.Stdout
	if err := ls.Run(); err != nil {
		return err
	}
	all, err := svc.List(ctx, lease.Query{Key: key})
	if err != nil {
		return err
	}
	if len(all.Keys) != 1 || len(all.Keys[0].Holders) != 1 || all.Keys[0].Holders[0].Label != "release freeze" {
		return fmt.Errorf("the status shows %+v, want the freeze as the one holder", all.Keys)
	}
	for i, w := range all.Keys[0].Waiters {
		if want := fmt.Sprint("release-", i+1); w.Label != want {
			return fmt.Errorf("place %d of the queue is %s, want %s", i+1, w.Label, want)
		}
	}
	if n := all.Keys[0].Waiting; n != releases {
		return fmt.Errorf("%d are waiting, want %d", n, releases)
	}
	return nil
}

// release is what runs under the lock: it puts a version on the site. The folder "busy" is an independent witness: it
// cannot be made while another deployment is at work.
func release(site, name string) error {
	token, err := strconv.ParseUint(os.Getenv("LATCHKEY_TOKEN"), 10, 64)
	if err != nil {
		return fmt.Errorf("LATCHKEY_TOKEN: %w", err)
	}
	busy := filepath.Join(site, "busy")
	if err := os.Mkdir(busy, 0o755); err != nil {
		return fmt.Errorf("%s overlaps with another deployment: %w", name, err)
	}
	fmt.Println(name, "deploys")
	time.Sleep(50 * time.Millisecond) // copies files
	log, err := os.OpenFile(filepath.Join(site, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	if _, err := fmt.Fprintln(log, name, token); err != nil {
		return err
	}
	return os.Remove(busy)
}

// check reads the site's log: every release once, in order of arrival, with tokens that rise.
func check(site string) error {
	text, err := os.ReadFile(filepath.Join(site, "log"))
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != releases {
		return fmt.Errorf("%d releases were deployed, want %d:\n%s", len(lines), releases, text)
	}
	last := uint64(0)
	for i, line := range lines {
		var name string
		var token uint64
		if _, err := fmt.Sscan(line, &name, &token); err != nil {
			return fmt.Errorf("the log says %q: %w", line, err)
		}
		if want := fmt.Sprint("release-", i+1); name != want || token <= last {
			return fmt.Errorf("deployment %d was %s with token %d, want %s and a token above %d", i+1, name, token, want, last)
		}
		last = token
	}
	fmt.Printf("%d deployments, one at a time and in order; their tokens rise\n", releases)
	return nil
}
