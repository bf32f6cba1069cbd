package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/rmap"
)

// Sizes of a page of a listing: one table, or one object with --json.
const (
	mapPageKeys  = pageSize
	mapPageBytes = 4 << 20
)

type mapListOptions struct {
	prefix string
	after  string
	limit  int
}

func (a *app) mapListCommand(s *mapStore) *cobra.Command {
	var o mapListOptions
	cmd := &cobra.Command{
		Use:     "ls MAP",
		Aliases: []string{"list"},
		Short:   "list keys with what is under them",
		Long: `List keys in order, with the beginning of what is under them, its kind and size,
what is left of its time to live, and the revision that wrote it. The first line
says how many keys there are in all, and where the map stands.`,
		Example: `  latchkey map ls flags
  latchkey map ls flags --prefix beta- --limit 0
  latchkey map ls flags --json | jq -r '.keys[].key'`,
		Args: mapArguments(false, "MAP"),
		RunE: func(_ *cobra.Command, args []string) error {
			if o.limit < 0 {
				return fmt.Errorf("--limit %d is negative; 0 lists all", o.limit)
			}
			return a.askMap(s, args[0], func(ctx context.Context, v *mapView) error {
				return a.mapList(ctx, v, o)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.prefix, "prefix", "", "only keys that begin with this")
	f.StringVar(&o.after, "after", "", "begin behind this key")
	f.IntVar(&o.limit, "limit", mapPageKeys, "list at most this many keys, 0 for all")
	return cmd
}

// A mapPage is a part of a listing as --json shows it, with where the map stood when it was read.
type mapPage struct {
	Map      string        `json:"map"`
	Entries  int           `json:"entries"` // in all
	State    string        `json:"state"`
	Revision rmap.Revision `json:"revision"`
	Keys     []jsonEntry   `json:"keys"`
}

func (a *app) mapList(ctx context.Context, v *mapView, o mapListOptions) error {
	head, err := v.head(ctx)
	if err != nil {
		return err
	}
	shot := v.Snapshot()
	var keys []string
	for key := range shot.All() {
		if strings.HasPrefix(key, o.prefix) && key > o.after {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	if !a.json {
		for key := range shot.Broken() {
			a.notef("not listed: %v", v.unreadable(key))
			break
		}
	}
	found := len(keys)
	if o.limit > 0 && found > o.limit {
		keys = keys[:o.limit]
	}
	if !a.json {
		if err := a.writeAll(a.mapHeadLine(v, shot, head) + "\n"); err != nil {
			return err
		}
	}
	for first := true; first || len(keys) > 0; first = false {
		n := pageOf(keys, shot)
		if err := a.showMapPage(v, shot, keys[:n], head.Now, first); err != nil {
			return err
		}
		if len(keys) == n && n > 0 && found > o.limit && o.limit > 0 && !a.json {
			a.notef("there is more: go on with --after %s, or list all with --limit 0", plain(keys[n-1]))
		}
		keys = keys[n:]
	}
	if found == 0 && shot.Len() > 0 && !a.json {
		a.notef("none of the %s begins with %s, or comes after it", count(shot.Len(), "key", "keys"), plain(cmp.Or(o.prefix, o.after)))
	}
	return nil
}

// pageOf says how many of the keys are on the next page.
func pageOf(keys []string, shot rmap.Snapshot[string, rmap.Value]) int {
	bytes := 0
	for i, key := range keys {
		value, _ := shot.Get(key)
		if bytes += len(key) + len(value.Data); i > 0 && (i >= mapPageKeys || bytes > mapPageBytes) {
			return i
		}
	}
	return len(keys)
}

// mapHeadLine says where a map stands. On a narrow terminal the revision loses all but its number.
func (a *app) mapHeadLine(v *mapView, shot rmap.Snapshot[string, rmap.Value], head rmap.Head) string {
	if shot.Len() == 0 && head.Revision.IsZero() {
		return fmt.Sprintf("%s  no such map in %s, or nothing in it", a.look.paint(bold, plain(v.name)), v.at)
	}
	ends := ""
	if head.Expires != 0 {
		ends = ", ends in " + span(left(time.UnixMilli(head.Expires), head.Now))
	}
	state := v.Lag().State
	line := func(s style, at string) string {
		return fmt.Sprintf("%s  %s, %s, %s%s", s.paint(bold, plain(v.name)), count(shot.Len(), "key", "keys"),
			s.paint(stateColour(state), state.String()), at, ends)
	}
	at := "revision " + shot.Revision().String()
	if a.look.width > 0 && displayWidth(line(style{}, at)) > a.look.width {
		at = fmt.Sprintf("change %d", shot.Revision().Number)
	}
	return line(a.look, at)
}

func stateColour(s rmap.State) string {
	switch s {
	case rmap.Live:
		return green
	case rmap.CatchingUp:
		return yellow
	}
	return red
}

func (a *app) showMapPage(v *mapView, shot rmap.Snapshot[string, rmap.Value], keys []string, now int64, first bool) error {
	if a.json {
		page := mapPage{v.name, shot.Len(), v.Lag().State.String(), shot.Revision(), make([]jsonEntry, len(keys))}
		for i, key := range keys {
			h, _ := shot.Entry(key)
			page.Keys[i] = newJSONEntry(key, h, now)
		}
		return a.object(page)
	}
	if len(keys) == 0 {
		return nil
	}
	t := table{columns: []column{{name: "KEY", cut: true}, {name: "KIND"}, {name: "SIZE", right: true},
		{name: "LEFT", right: true}, {name: "VALUE", cut: true}, {name: "REVISION", spare: true}}}
	for _, key := range keys {
		h, _ := shot.Entry(key)
		ends := cell{text: "-"}
		if !h.Deadline.IsZero() {
			ends.text = span(left(h.Deadline, now))
		}
		t.rows = append(t.rows, []cell{{clipped(key, previewBytes), bold}, {text: kindName(h.Value.Kind)},
			{text: sizeOf(h.Value)}, ends, {text: preview(h.Value)}, {text: h.Revision.String(), colour: dim}})
	}
	text := t.render(a.look)
	if !first {
		text = "\n" + text
	}
	return a.writeAll(text)
}
