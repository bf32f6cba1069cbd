package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/cmd/latchkey/internal/child"
	"github.com/latchkey-go/latchkey/lease"
)

// maxGrace is the longest session grace that run asks for. A shorter ttl makes
// it shorter, since the session must not outlive a dead holder by more than its
// lock would.
const maxGrace = 10 * time.Second

const runHelp = `Run a command while holding a lock, and stop it before the lock can go to
another.

The exit status is the command's, 126 or 127 when it cannot be executed or
found, 128+n when signal n ended it, and 75 when the lock could not be had.

The command finds in its environment:
  LATCHKEY_KEY     the first key
  LATCHKEY_TOKEN   its fencing token: give it to what the lock protects
  LATCHKEY_TOKENS  key=token for every key, separated by spaces, the keys
                   escaped as in a URL
  LATCHKEY_SERVER, LATCHKEY_HELD  for a latchkey run inside it, whose waiting
                   for this one is refused as a deadlock

The lock is renewed as long as the broker answers. When it does not, the
command's process group gets SIGTERM up to 5 s before the lock can end, and
SIGKILL when it does. A lock that an administrator takes away means SIGKILL at
once. When the command ends, what it left running in its process group is
stopped too, and then the lock is released. A second process does all that should
run itself be frozen or killed. Only the token protects against a machine that
stands still as a whole, and against a process that left the group.

A key that contains a comma is written with \, for it.`

type runOptions struct {
	wish
	atLeast time.Duration
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] KEY[,KEY...] -- COMMAND [ARG...]",
		Short: "run a command under a lock",

		DisableFlagsInUseLine: true,
		Long:                  strings.TrimSpace(runHelp + "\n\n" + child.Missing),
		Example: `  latchkey run deploy -- make deploy
  latchkey run --try nightly -- ./report.sh
  latchkey run --max 3 --wait 10m gpu -- python train.py`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0 || dash == 0:
				return errors.New("KEY is missing; see `latchkey run --help`")
			case dash < 0:
				return errors.New("put -- between the key and the command: latchkey run KEY -- COMMAND")
			case dash > 1:
				return fmt.Errorf("%q is one key too many: separate keys with a comma and no space", args[1])
			case len(args) == dash:
				return errors.New("the command is missing after --: latchkey run KEY -- COMMAND")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := o.request(cmd, args[0])
			if err != nil {
				return err
			}
			if o.atLeast < 0 || o.atLeast > lease.MaxTTL {
				return fmt.Errorf("--at-least %v is not between 0 and %v", o.atLeast, lease.MaxTTL)
			}
			if r.Label == "" {
				r.Label = fit(filepath.Base(args[1]))
			}
			return a.runUnder(r, o, args[1:])
		},
	}
	o.addFlags(cmd)
	cmd.Flags().DurationVar(&o.atLeast, "at-least", 0,
		"keep the lock at least this long after it was had, also when the command ends sooner")
	return cmd
}

// runUnder acquires, runs and releases.
func (a *app) runUnder(r lease.Request, o runOptions, command []string) error {
	path, err := child.Find(command[0])
	if err != nil {
		return notStarted(err)
	}
	ctx, interrupts := interruptible()
	ctx = lease.WithDeclared(ctx, a.outer()...)
	svc, err := a.dial(ctx)
	if err != nil {
		return interrupted(ctx, a.notHad(r, err))
	}
	session := a.sessionOptions()
	session.Grace = min(r.TTL, maxGrace)
	client, held, err := a.hold(ctx, svc, session, r)
	if err != nil {
		svc.Close()
		return interrupted(ctx, a.notHad(r, err))
	}
	defer func() {
		// A broker that was not there up to the deadline needs no goodbye: what
		// the session held has ended, or ends with it.
		if !errors.Is(held.Err(), lease.ErrServiceGone) {
			svc.Close()
		}
	}()
	granted := time.Now()
	signals := interrupts.handOver()
	if ctx.Err() != nil {
		a.giveBack(client, held, false, 0)
		return interrupted(ctx, ctx.Err())
	}
	status, err := child.Run(held, child.Options{
		Path: path, Args: command, Env: a.childEnv(r, held.Lease()),
		Stdin: a.in, Stdout: a.out, Stderr: a.err,
		Signals: signals,
		Guard:   helper("guard"),
		Gate:    helper("gate"),
		Lead:    child.Lead(r.TTL, session.Grace),
		Report:  func(s string) { a.notef("%s", s) },
	})
	if err != nil {
		a.giveBack(client, held, false, 0)
		return notStarted(err)
	}
	a.giveBack(client, held, status.Lost, o.atLeast-time.Since(granted))
	if code := status.Code(); code != 0 {
		return &statusError{status: code}
	}
	return nil
}

// hold connects and waits for the lock.
func (a *app) hold(ctx context.Context, svc lease.Service, session lease.SessionOptions,
	r lease.Request) (*lease.Client, *lease.Held, error) {
	onQueued, end := a.watchWaiting(svc, r, session)
	defer end()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{
		SessionOptions: session,
		OnQueued:       onQueued,
		OnRenewFailure: a.tellOnce(),
	})
	if err != nil {
		return nil, nil, err
	}
	held, err := client.Hold(ctx, r)
	if err != nil {
		a.leave(client)
		return nil, nil, err
	}
	return client, held, nil
}

// tellOnce reports the first failure of a row of renewals: the rest is the
// supervisor's to tell.
func (a *app) tellOnce() func(*lease.Held, error) {
	var told bool // the callback is called one at a time
	return func(_ *lease.Held, err error) {
		if !told {
			told = true
			a.notef("renewing the lock failed, trying again until it ends: %v", err)
		}
	}
}

// giveBack releases the lock after the command. With keep above zero the lock
// lives on that long, without this process. Whatever happens here, the exit
// status is the command's: its work is done.
func (a *app) giveBack(client *lease.Client, held *lease.Held, told bool, keep time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
	defer cancel()
	if lost := held.Err(); lost != nil {
		if !told {
			a.notef("the lock was lost before the command ended: %v", lost)
		}
		if errors.Is(lost, lease.ErrServiceGone) {
			return
		}
		_ = held.Release(ctx) // of many keys, one was lost
	} else if keep > 0 {
		if err := keepOn(ctx, client, held, keep); err != nil {
			a.notef("the lock could not be kept for the rest of --at-least: %v", err)
		}
	} else if err := held.Release(ctx); err != nil {
		a.notef("the release was not confirmed, the lock ends by itself soon: %v", err)
	}
	_ = client.Close(ctx)
}

// keepOn leaves the hold to its ttl, which becomes what is left of --at-least.
// Detached first: if this process dies in between, the lock is kept too long
// rather than too short.
func keepOn(ctx context.Context, client *lease.Client, held *lease.Held, keep time.Duration) error {
	if err := held.Detach(ctx); err != nil {
		return err
	}
	_, err := client.Renew(ctx, held.Lease().ID, max(keep, lease.MinClientTTL))
	return err
}

// notStarted gives a command that could not be started the status that shells
// give it.
func notStarted(err error) error {
	if e, ok := errors.AsType[*child.StartError](err); ok {
		return &statusError{e.Exit, err}
	}
	return err
}

// outer are the ids of the locks that this process runs under.
func (a *app) outer() []string {
	v, _ := a.env(envHeld)
	ids := slices.DeleteFunc(strings.Split(v, ","), func(id string) bool {
		return id == "" || len(id) > lease.MaxIDLength
	})
	return ids[max(0, len(ids)-lease.MaxDeclared):]
}

// childEnv is this process's environment with what the command is to know.
func (a *app) childEnv(r lease.Request, l lease.Lease) []string {
	tokens := make([]string, 0, len(l.Holds))
	for _, h := range l.Holds {
		tokens = append(tokens, escapeKey(h.Key)+"="+strconv.FormatUint(uint64(h.Token), 10))
	}
	first, _ := l.TokenOf(r.Keys[0])
	set := map[string]string{
		envKey:    r.Keys[0],
		envToken:  strconv.FormatUint(uint64(first), 10),
		envTokens: strings.Join(tokens, " "),
		envServer: a.server,
		envHeld:   strings.Join(append(a.outer(), l.ID), ","),
	}
	env := slices.DeleteFunc(os.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, replaced := set[name]
		return replaced
	})
	for _, name := range []string{envServer, envKey, envToken, envTokens, envHeld} {
		env = append(env, name+"="+set[name])
	}
	return env
}

// escapeKey makes a key a word without spaces and equals signs.
func escapeKey(key string) string {
	return strings.ReplaceAll(strings.ReplaceAll(url.QueryEscape(key), "+", "%20"), "%2F", "/")
}
