package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/rmap"
)

type mapDelOptions struct {
	ifRevision string
	all, yes   bool
}

func (a *app) mapDelCommand(s *mapStore) *cobra.Command {
	var o mapDelOptions
	cmd := &cobra.Command{
		Use:     "del MAP KEY | del MAP --all",
		Aliases: []string{"delete", "rm"},
		Short:   "remove a key, or all of them",
		Long: `Remove a key and print the revision of the change. The exit status is 1 when there
was nothing under the key, and 75 when --if-revision does not hold.

--all removes every key of the map in one change that all processes see at once. It
asks first, unless --yes is given.`,
		Example: `  latchkey map del flags dark-mode
  latchkey map del flags --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.all {
				return mapArguments(false, "MAP")(cmd, args)
			}
			return mapArguments(false, "MAP", "KEY")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclude(cmd, "all", "if-revision"); err != nil {
				return err
			}
			if o.all {
				return a.mapReset(s, args[0], o.yes)
			}
			return a.mapDel(s, args[0], args[1], o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ifRevision, "if-revision", "", "only if the value there was written by this `revision`")
	f.BoolVar(&o.all, "all", false, "remove all keys")
	f.BoolVar(&o.yes, "yes", false, "do not ask")
	return cmd
}

func (a *app) mapDel(s *mapStore, name, key string, o mapDelOptions) error {
	var at rmap.Revision
	if o.ifRevision != "" {
		var err error
		if at, err = parseRevision(o.ifRevision); err != nil {
			return err
		}
		if at.IsZero() {
			return errors.New("--if-revision none: what is not there cannot be removed")
		}
	}
	return a.askMap(s, name, func(ctx context.Context, v *mapView) error {
		b := v.Batch()
		if at.IsZero() {
			b.IfPresent(key)
		} else {
			b.IfRevision(key, at)
		}
		r, err := b.Delete(key).Write(ctx)
		if e, ok := errors.AsType[*rmap.ConflictError](err); ok && !e.Present && at.IsZero() {
			return v.absent(key)
		}
		if errors.Is(err, rmap.ErrConflict) {
			return v.conflict(key, err)
		}
		if err != nil {
			return err
		}
		return a.tellRevision(r)
	})
}

func (a *app) mapReset(s *mapStore, name string, yes bool) error {
	if !yes {
		sure, err := a.confirmReset(s, name)
		if err != nil || !sure {
			return err
		}
	}
	return a.askMap(s, name, func(ctx context.Context, v *mapView) error {
		r, err := v.Reset(ctx)
		if err != nil {
			return err
		}
		return a.tellRevision(r)
	})
}

// confirmReset says what would be lost, and asks. The map is not open meanwhile: a person may take any time.
func (a *app) confirmReset(s *mapStore, name string) (bool, error) {
	if err := a.canAsk("del --all"); err != nil {
		return false, err
	}
	var question string
	err := a.askMap(s, name, func(_ context.Context, v *mapView) error {
		question = fmt.Sprintf("Remove %s of map %s in %s? All processes lose them at once.", count(v.Len(), "key", "keys"),
			plain(name), v.at)
		return nil
	})
	if err != nil {
		return false, err
	}
	return a.sure(question, "nothing removed")
}
