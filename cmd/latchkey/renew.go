package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/lease"
)

func (a *app) renewCommand() *cobra.Command {
	var id string
	var ttl lifetime
	cmd := &cobra.Command{
		Use:   "renew --id ID [--ttl 30s]",
		Short: "start the ttl of a lock anew",
		Long:  "Start the ttl of the lock anew that lock printed this id for, or give it another ttl.",
		Args:  exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.command(func(ctx context.Context, c *lease.Client) error {
				l, err := c.Renew(ctx, id, time.Duration(ttl))
				if err != nil {
					return notHeld(id, err)
				}
				return a.showLease(l)
			})
		},
	}
	requireID(cmd, &id)
	cmd.Flags().Var(&ttl, "ttl", "new time to live, or forever (default: the one it has)")
	return cmd
}
