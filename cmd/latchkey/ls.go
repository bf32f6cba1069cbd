package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Sizes of a listing: keys asked for at a time, and waiters shown of each key
// unless all are asked for.
const (
	pageSize   = 1000
	fewWaiters = 3
)

type listOptions struct {
	limit     int
	after     string
	waiters   bool
	contended bool
}

func (a *app) listCommand() *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:     "ls [PREFIX]",
		Aliases: []string{"list"},
		Short:   "list who holds what, and who waits",
		Long: `List the keys that are held or waited for, with their holders and, below each,
those who wait, in order.`,
		Example: `  latchkey ls
  latchkey ls jobs/ --waiters
  latchkey ls --json | jq -r '.keys[].key'`,
		Args: atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := exclude(cmd, "after", "contended"); err != nil {
				return err
			}
			q := lease.Query{After: o.after, Contended: o.contended}
			if len(args) == 1 {
				q.Prefix = args[0]
			}
			if o.limit < 0 {
				return fmt.Errorf("--limit %d is negative; 0 lists all", o.limit)
			}
			return a.ask(func(ctx context.Context, svc lease.Service) error {
				return a.list(ctx, svc, q, o)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.limit, "limit", pageSize, "list at most this many keys, 0 for all")
	f.StringVar(&o.after, "after", "", "begin behind this key")
	f.BoolVar(&o.waiters, "waiters", false, fmt.Sprintf("show up to 100 who wait for each key, not only the first %d", fewWaiters))
	f.BoolVar(&o.contended, "contended", false, "only keys that are waited for, the most wanted first")
	return cmd
}

// list prints page after page, so that any number of keys can be listed.
func (a *app) list(ctx context.Context, svc lease.Service, q lease.Query, o listOptions) error {
	left, shown := o.limit, 0
	for {
		q.Limit = pageSize
		if o.limit > 0 {
			q.Limit = min(left, pageSize)
		}
		page, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTime)
		stop := context.AfterFunc(ctx, cancel)
		l, err := svc.List(page, q)
		stop()
		cancel()
		if err != nil {
			return err
		}
		left -= len(l.Keys)
		shown += len(l.Keys)
		last := !l.More || len(l.Keys) == 0 || q.Contended || o.limit > 0 && left <= 0
		if err := a.showPage(l, o, shown == len(l.Keys)); err != nil {
			return err
		}
		if last {
			a.endList(l, q, shown)
			return nil
		}
		q.After = l.Keys[len(l.Keys)-1].Key
	}
}

// listing prints a page as the protocol has it; without keys it still has the
// field.
func (a *app) listing(l lease.Listing) error {
	if l.Keys == nil {
		l.Keys = []lease.KeyInfo{}
	}
	frame := wire.Listed(0, &l)
	return a.frame(&frame)
}

func (a *app) showPage(l lease.Listing, o listOptions, first bool) error {
	if a.json {
		return a.listing(l)
	}
	if len(l.Keys) == 0 {
		return nil
	}
	t := keyTable()
	for i := range l.Keys {
		t.addKey(&l.Keys[i], o.waiters)
	}
	text := t.render(a.look)
	if !first {
		text = "\n" + text
	}
	return a.writeAll(text)
}

func (a *app) endList(l lease.Listing, q lease.Query, shown int) {
	switch {
	case a.json:
	case shown == 0 && q.Contended:
		a.notef("nobody waits%s", below(q.Prefix))
	case shown == 0:
		a.notef("nothing is locked%s; `latchkey run KEY -- COMMAND` takes a lock", below(q.Prefix))
	case l.More && !q.Contended:
		a.notef("there is more: go on with --after %s, or list all with --limit 0", plain(l.Keys[len(l.Keys)-1].Key))
	case l.More:
		a.notef("there is more: raise --limit")
	}
}

func below(prefix string) string {
	if prefix == "" {
		return ""
	}
	return " below " + plain(prefix)
}

// keys is the table of ls and show: holders of each key, then who waits.
type keys struct{ table }

func keyTable() *keys {
	return &keys{table{columns: []column{
		{name: "KEY", cut: true}, {name: "MODE"}, {name: "HOLDER", cut: true}, {name: "SINCE", right: true},
		{name: "LEFT", right: true}, {name: "TOKEN", right: true, spare: true}, {name: "WAITING", right: true},
	}}}
}

func (t *keys) add(cells ...cell) { t.rows = append(t.rows, cells) }

// addKey adds a line for each holder and for each of those who wait.
func (t *keys) addKey(k *lease.KeyInfo, all bool) {
	waiting := cell{text: "-"}
	if k.Waiting > 0 {
		waiting = cell{strconv.Itoa(k.Waiting), yellow}
	}
	key := cell{plain(k.Key), bold}
	if len(k.Holders) == 0 {
		free := cell{text: "(free)", colour: dim}
		if k.Delay > 0 {
			free = cell{"(kept free for " + span(k.Delay) + " after a loss)", yellow}
		}
		t.add(key, cell{text: "-"}, free, cell{text: "-"}, cell{text: "-"}, cell{text: "-"}, waiting)
		key, waiting = cell{}, cell{}
	}
	for _, h := range k.Holders {
		t.add(key, cell{text: mode(h.Mode, h.Limit)}, holderCell(h), cell{text: span(h.Since)}, leftCell(h),
			cell{text: strconv.FormatUint(uint64(h.Token), 10)}, waiting)
		key, waiting = cell{}, cell{}
	}
	shown := len(k.Waiters)
	if !all {
		shown = min(shown, fewWaiters)
	}
	for i, w := range k.Waiters[:shown] {
		t.addWaiter(i, w)
	}
	if rest := k.Waiting - shown; rest > 0 {
		t.add(cell{}, cell{}, cell{fmt.Sprintf("  … and %d more", rest), dim}, cell{}, cell{}, cell{}, cell{})
	}
}

func (t *keys) addWaiter(i int, w lease.Waiter) {
	text := fmt.Sprintf("  %d. %s", i+1, who(w.Party))
	if w.Keys > 1 {
		text += fmt.Sprintf(", for %d keys", w.Keys)
	}
	if w.Broken {
		text += ", disconnected"
	}
	left := cell{}
	if w.Left != lease.Forever {
		left = cell{span(w.Left), dim}
	}
	t.add(cell{}, cell{mode(w.Mode, w.Limit), dim}, cell{text, dim}, cell{span(w.Age), dim}, left, cell{}, cell{})
}

func holderCell(h lease.Holder) cell {
	c := cell{text: who(h.Party)}
	if h.Detached {
		c.text += ", detached"
	}
	if h.Broken && !h.Detached {
		c.text += ", disconnected"
		c.colour = red
	}
	return c
}

// leftCell marks a lock that is about to end: one that is renewed never gets
// there.
func leftCell(h lease.Holder) cell {
	c := cell{text: span(h.Remaining)}
	if h.Remaining != lease.Forever && h.Remaining < h.TTL/3 {
		c.colour = yellow
	}
	return c
}
