package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/rmap"
)

func (a *app) mapStatusCommand(s *mapStore) *cobra.Command {
	return &cobra.Command{
		Use:   "status MAP",
		Short: "show where a map stands",
		Long: `Show where a map stands in the store, what it has, and how long it lives. The exit
status is 1 when it cannot be read.`,
		Args: mapArguments(false, "MAP"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.askMap(s, args[0], func(ctx context.Context, v *mapView) error {
				began := time.Now()
				head, err := v.head(ctx)
				if err != nil {
					return err
				}
				st := newMapStatus(v, head, time.Since(began))
				if a.json {
					return a.object(st)
				}
				return a.writeAll(a.mapStatusText(v, &st))
			})
		},
	}
}

// A mapStatus is what --json shows of a map as a whole. Times are in milliseconds.
type mapStatus struct {
	Map        string         `json:"map"`
	Store      string         `json:"store"`
	State      string         `json:"state"`
	Age        float64        `json:"age"`  // since the copy was last proved current
	Head       float64        `json:"head"` // that it took to subscribe and ask where the map stands
	Revision   rmap.Revision  `json:"revision"`
	Number     uint64         `json:"number"`
	Cleared    uint64         `json:"cleared,omitempty"` // number of the last change that removed all keys at once
	Entries    int            `json:"entries"`
	Bytes      uint64         `json:"bytes"` // of keys and values
	Kinds      map[string]int `json:"kinds"`
	WithTTL    int            `json:"withTtl"`            // entries that end by themselves
	NextEnds   *int64         `json:"nextEnds,omitempty"` // until the first of them does
	TTL        int64          `json:"ttl,omitempty"`      // of the whole map
	Sliding    bool           `json:"sliding,omitempty"`  // every change begins it anew
	Ends       *int64         `json:"ends,omitempty"`     // until the whole map does
	StoreClock time.Time      `json:"storeClock"`
}

func newMapStatus(v *mapView, head rmap.Head, took time.Duration) mapStatus {
	lag, shot := v.Lag(), v.Snapshot()
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	st := mapStatus{Map: v.name, Store: v.at, State: lag.State.String(), Age: ms(lag.Age), Head: ms(took),
		Revision: head.Revision, Number: head.Revision.Number, Cleared: head.Cleared, Entries: shot.Len(), Kinds: map[string]int{},
		TTL: head.Lifetime.TTL.Milliseconds(), Sliding: head.Lifetime.Sliding, StoreClock: time.UnixMilli(head.Now).UTC()}
	for key := range shot.All() {
		h, _ := shot.Entry(key)
		st.Bytes += uint64(len(key) + len(h.Value.Data))
		st.Kinds[kindName(h.Value.Kind)]++
		if h.Deadline.IsZero() {
			continue
		}
		st.WithTTL++
		if ends := left(h.Deadline, head.Now).Milliseconds(); st.NextEnds == nil || ends < *st.NextEnds {
			st.NextEnds = &ends
		}
	}
	if head.Expires != 0 {
		ends := left(time.UnixMilli(head.Expires), head.Now).Milliseconds()
		st.Ends = &ends
	}
	return st
}

func (a *app) mapStatusText(v *mapView, st *mapStatus) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-9s %s\n", name, fmt.Sprintf(format, args...))
	}
	in := func(ms int64) string { return span(time.Duration(ms) * time.Millisecond) }
	line("map", "%s in %s", plain(st.Map), st.Store)
	line("state", "%s, proved current %.1f ms ago", a.look.paint(stateColour(v.Lag().State), st.State), st.Age)
	if st.Revision.IsZero() {
		line("revision", "none: it was never written, or it has ended")
		return b.String()
	}
	line("revision", "%v", st.Revision)
	changes := fmt.Sprintf("%d in this life of the map", st.Number)
	if st.Cleared != 0 {
		changes += fmt.Sprintf("; the last that removed all keys was number %d", st.Cleared)
	}
	line("changes", "%s", changes)
	var kinds []string
	for _, k := range mapKinds {
		if n := st.Kinds[k.name]; n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, k.name))
		}
	}
	if len(kinds) == 0 {
		line("keys", "none")
	} else {
		line("keys", "%d (%s), %s with their values", st.Entries, strings.Join(kinds, ", "), size(st.Bytes))
	}
	if st.WithTTL > 0 {
		line("ending", "%s a time to live, the first ends in %s", count(st.WithTTL, "key has", "keys have"), in(*st.NextEnds))
	}
	switch {
	case st.TTL == 0:
		line("ttl", "none: the map lives for ever")
	case st.Ends == nil:
		line("ttl", "%s", in(st.TTL))
	case st.Sliding:
		line("ttl", "%s from the last change: the map ends in %s", in(st.TTL), in(*st.Ends))
	default:
		line("ttl", "%s from the first change: the map ends in %s", in(st.TTL), in(*st.Ends))
	}
	return b.String()
}
