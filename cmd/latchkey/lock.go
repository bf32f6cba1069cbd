package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

func (a *app) lockCommand() *cobra.Command {
	var w wish
	cmd := &cobra.Command{
		Use:   "lock KEY[,KEY...]",
		Short: "take a lock that lasts until its ttl, unlock, or force",
		Long: `Take a lock and leave it to its ttl. The token and the id are printed: the token
is for what the lock protects, the id for unlock and renew. Whoever knows the id
can end the lock.

The exit status is 0, 75 when the lock could not be had, and 1 for an error.

Prefer run where the work is a command: it renews the lock and stops the command
when the lock is lost. A key that contains a comma is written with \, for it.`,
		Example: `  latchkey lock deploy --ttl 5m
  id=$(latchkey lock deploy --try --json | jq -r .id)`,
		Args: exactly("KEY"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := w.request(cmd, args[0])
			if err != nil {
				return err
			}
			r.Detach = true
			return a.lock(r)
		},
	}
	w.addFlags(cmd)
	return cmd
}

func (a *app) lock(r lease.Request) error {
	ctx, interrupts := interruptible()
	defer interrupts.handOver()
	ctx = lease.WithDeclared(ctx, a.outer()...)
	svc, err := a.dial(ctx)
	if err != nil {
		return interrupted(ctx, a.notHad(r, err))
	}
	defer svc.Close()
	l, err := a.acquire(ctx, svc, r)
	if err != nil {
		return interrupted(ctx, a.notHad(r, err))
	}
	if err := a.showLease(l); err != nil {
		return a.unprinted(l, err)
	}
	return nil
}

// unprinted releases a lock whose id could not be printed, since nobody else could.
func (a *app) unprinted(l lease.Lease, cause error) error {
	err := a.command(func(ctx context.Context, c *lease.Client) error {
		_, err := c.Release(ctx, l.ID)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; the lock is held until its ttl, for releasing it failed too: %w", cause, err)
	}
	return fmt.Errorf("%w; the lock was released again", cause)
}

func (a *app) acquire(ctx context.Context, svc lease.Service, r lease.Request) (lease.Lease, error) {
	session := a.sessionOptions()
	onQueued, end := a.watchWaiting(svc, r, session)
	defer end()
	client, err := lease.Connect(ctx, svc, lease.ClientOptions{SessionOptions: session, OnQueued: onQueued})
	if err != nil {
		return lease.Lease{}, err
	}
	defer a.leave(client)
	return client.Acquire(ctx, r)
}

// showLease prints what was granted or renewed.
func (a *app) showLease(l lease.Lease) error {
	if a.json {
		now := time.Now()
		frame := wire.Granted(0, &l, now, now)
		return a.frame(&frame)
	}
	var b strings.Builder
	for _, h := range l.Holds {
		fmt.Fprintf(&b, "key    %s\ntoken  %d\n", plain(h.Key), h.Token)
	}
	fmt.Fprintf(&b, "id     %s\n", plain(l.ID))
	if l.TTL == lease.Forever {
		b.WriteString("ends   never, unless it is unlocked or forced\n")
	} else {
		fmt.Fprintf(&b, "ends   in %s\n", span(time.Until(l.Deadline).Round(100*time.Millisecond)))
	}
	return a.writeAll(b.String())
}
