package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

func (a *app) unlockCommand() *cobra.Command {
	var id string
	cmd := &cobra.Command{
		Use:   "unlock --id ID",
		Short: "end a lock whose id is known",
		Long:  "End the lock that lock printed this id for. A lock that has ended already is an error.",
		Args:  exactly(),
		RunE: func(*cobra.Command, []string) error {
			return a.command(func(ctx context.Context, c *lease.Client) error {
				l, err := c.Release(ctx, id)
				if err != nil {
					return notHeld(id, err)
				}
				if a.json {
					frame := wire.Ended(0, &l)
					return a.frame(&frame)
				}
				keys := make([]string, len(l.Holds))
				for i, h := range l.Holds {
					keys[i] = plain(h.Key)
				}
				return a.writeAll("unlocked " + strings.Join(keys, ", ") + "\n")
			})
		},
	}
	requireID(cmd, &id)
	return cmd
}

// requireID declares --id and demands it.
func requireID(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(id, "id", "", "id of the lock, as lock printed it")
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if *id == "" {
			return fmt.Errorf("--id is missing: %s takes the id that lock printed", cmd.Name())
		}
		return nil
	}
}

// notHeld says what it means that the broker does not know an id.
func notHeld(id string, err error) error {
	if code := lease.CodeOf(err); code != lease.ErrNotHeld && code != lease.ErrOver {
		return err
	}
	return &lease.Error{Code: lease.ErrNotHeld, Reason: fmt.Sprintf(
		"no lock has the id %s: it was released, it was forced, or its ttl ran out", plain(id))}
}
