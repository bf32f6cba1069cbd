package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/lease"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show KEY",
		Short: "show everything about one key",
		Long: `Show who holds a key, in which mode, since when, until when and with which token,
and who waits for it, in order, up to 1000. The exit status is 0 for a free key
too.`,
		Args: exactly("KEY"),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := lease.CheckKey(args[0]); err != nil {
				return err
			}
			return a.ask(func(ctx context.Context, svc lease.Service) error {
				l, err := svc.List(ctx, lease.Query{Key: args[0]})
				if err != nil {
					return err
				}
				return a.show(args[0], l)
			})
		},
	}
}

func (a *app) show(key string, l lease.Listing) error {
	if a.json {
		return a.listing(l)
	}
	if len(l.Keys) == 0 {
		return a.writeAll(plain(key) + " is free\n")
	}
	return a.writeAll(a.detail(&l.Keys[0]))
}

// detail is a paragraph for each holder and a list of those who wait.
func (a *app) detail(k *lease.KeyInfo) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", a.look.paint(bold, plain(k.Key)))
	for _, h := range k.Holders {
		fmt.Fprintf(&b, "\n  held by  %s\n  mode     %s\n  token    %d\n  since    %s\n", who(h.Party),
			mode(h.Mode, h.Limit), h.Token, span(h.Since))
		if h.TTL == lease.Forever {
			b.WriteString("  left     never ends by itself\n")
		} else {
			fmt.Fprintf(&b, "  left     %s of a ttl of %s\n", span(h.Remaining), span(h.TTL))
		}
		switch {
		case h.Detached:
			b.WriteString("  session  detached: it lives on without its owner, until its ttl\n")
		case h.Broken:
			fmt.Fprintf(&b, "  session  %s\n", a.look.paint(red, "disconnected: it ends soon unless it comes back"))
		}
	}
	if len(k.Holders) == 0 {
		b.WriteString("\n  nobody holds it\n")
	}
	if k.Delay > 0 {
		fmt.Fprintf(&b, "\n  kept free for %s after a lock was lost\n", span(k.Delay))
	}
	if len(k.Waiters) == 0 {
		return b.String()
	}
	fmt.Fprintf(&b, "\n%s\n", a.look.paint(bold, fmt.Sprintf("%d waiting, in this order", k.Waiting)))
	t := table{columns: []column{{name: "", right: true}, {name: "WHO", cut: true}, {name: "MODE"},
		{name: "WAITED", right: true}, {name: "GIVES UP IN", right: true}}}
	for i, w := range k.Waiters {
		text := who(w.Party)
		if w.Keys > 1 {
			text += fmt.Sprintf(", for %d keys", w.Keys)
		}
		if w.Broken {
			text += ", disconnected"
		}
		t.rows = append(t.rows, []cell{{text: ordinal(i + 1)}, {text: text}, {text: mode(w.Mode, w.Limit)},
			{text: span(w.Age)}, {text: span(w.Left)}})
	}
	b.WriteString(t.render(a.look))
	if rest := k.Waiting - len(k.Waiters); rest > 0 {
		fmt.Fprintf(&b, "… and %d more\n", rest)
	}
	return b.String()
}
