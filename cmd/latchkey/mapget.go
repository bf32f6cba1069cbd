package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/rmap"
)

func (a *app) mapGetCommand(s *mapStore) *cobra.Command {
	return &cobra.Command{
		Use:   "get MAP KEY",
		Short: "print the value under a key",
		Long: `Print the value under a key. To a file or a pipe go exactly its bytes, without a
new line added; of a list the items, one a line. On a terminal what cannot be seen
is shown quoted. --json has the kind, the revision that wrote it, and what is left
of its time to live, too.

The exit status is 1 when there is nothing under the key.`,
		Example: `  latchkey map get flags dark-mode
  latchkey map get flags logo > logo.png
  latchkey map get flags dark-mode --json | jq -r .revision`,
		Args: mapArguments(false, "MAP", "KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.askMap(s, args[0], func(ctx context.Context, v *mapView) error {
				h, ok := v.Snapshot().Entry(args[1])
				if !ok {
					return v.absent(args[1])
				}
				if h.Err != nil {
					return v.unreadable(args[1])
				}
				if !a.json {
					return a.writeAll(valueText(h.Value, a.look.width > 0))
				}
				head, err := v.head(ctx)
				if err != nil {
					return err
				}
				return a.object(newJSONEntry(args[1], h, head.Now))
			})
		},
	}
}

// absent is the error of a key that is not there.
func (v *mapView) absent(key string) error {
	return &statusError{exitError, &mapError{codeAbsent, fmt.Sprintf("map %s has no key %s; `latchkey map ls %s` lists them",
		plain(v.name), plain(key), plain(v.name)), rmap.ErrAbsent}}
}

// unreadable is the error of a key under which there is something that Latchkey did not write.
func (v *mapView) unreadable(key string) error {
	m, k := plain(v.name), plain(key)
	return &statusError{exitError, &mapError{codeForeign, fmt.Sprintf("what is under %s in map %s was not written by Latchkey, and "+
		"no program reads it: `latchkey map set %s %s VALUE` replaces it, `latchkey map del %s %s` removes it", k, m, m, k, m, k),
		rmap.ErrForeign}}
}

// valueText is a value as get prints it.
func valueText(v rmap.Value, screen bool) string {
	show := func(s string) string { return s + "\n" }
	if screen {
		show = screenText
	}
	switch v.Kind {
	case rmap.Integer:
		return v.Data + "\n"
	case rmap.List:
		var b strings.Builder
		for _, item := range items(v) {
			b.WriteString(show(item))
		}
		return b.String()
	}
	if screen {
		return screenText(v.Data)
	}
	return v.Data
}
