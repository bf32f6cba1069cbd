package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/rmap"
)

// stateLook is how often a watch looks whether the connection still stands. What was shorter is told by its count.
const stateLook = 50 * time.Millisecond

func (a *app) mapWatchCommand(s *mapStore) *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use:   "watch MAP",
		Short: "print what happens to a map, as it happens",
		Long: `Print one line for everything that happens to a map: set, delete, expire, and reset
when all keys went at once. "reload" and "again" say that changes were missed, and
that the map must be read again to know what is in it.

It goes on when the store goes away: a line "cut off" says so, and a line "live"
that it is back and what was missed has been told. ^C ends it.`,
		Example: `  latchkey map watch flags
  latchkey map watch flags --json | jq -c 'select(.cause == "set") | [.key, .new.value]'`,
		Args: mapArguments(false, "MAP"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.mapWatch(s, args[0], prefix)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only keys that begin with this")
	return cmd
}

func (a *app) mapWatch(s *mapStore, name, prefix string) error {
	ctx, interrupts := interruptible()
	defer interrupts.handOver()
	v, err := a.openMap(ctx, s, name)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer v.close()
	ctx, cancel := context.WithCancelCause(ctx)
	events := v.Watch(ctx, rmap.WatchOptions{Events: 4 * rmap.DefaultEvents})
	shot := v.Snapshot()
	if !a.json {
		a.notef("watching %s in %s: %s, revision %v", plain(name), v.at, count(shot.Len(), "key", "keys"), shot.Revision())
	}
	looked := make(chan struct{})
	go func() {
		defer close(looked)
		a.watchState(ctx, cancel, v)
	}()
	defer func() {
		cancel(nil)
		<-looked
	}()
	for e := range events {
		if hasKey(e.Cause) && !strings.HasPrefix(e.Key, prefix) {
			continue
		}
		if err := a.showMapEvent(v, e, time.Now()); err != nil {
			return fmt.Errorf("print an event: %w", err)
		}
	}
	return interrupted(ctx, context.Cause(ctx))
}

// hasKey tells whether an event is about one key.
func hasKey(c rmap.Cause) bool {
	return c == rmap.CauseSet || c == rmap.CauseDelete || c == rmap.CauseExpire
}

// watchState tells when the connection to the store is lost and when it is back. What is between, being compared with
// the store, is not worth a line.
func (a *app) watchState(ctx context.Context, fail context.CancelCauseFunc, v *mapView) {
	t := time.NewTicker(stateLook)
	defer t.Stop()
	was, losses := rmap.Live, v.Stats().Losses
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		lag, n := v.Lag(), v.Stats().Losses
		if lag.State == rmap.CatchingUp || lag.State == was && (n == losses || was != rmap.Live) {
			continue
		}
		states := []rmap.Lag{lag}
		if lag.State == was { // it was lost and came back between two looks
			states = []rmap.Lag{{State: rmap.CutOff, Revision: lag.Revision}, lag}
		}
		for _, lag := range states {
			if err := a.showMapState(v, lag, time.Now()); err != nil {
				fail(fmt.Errorf("print the state: %w", err))
				return
			}
		}
		was, losses = lag.State, n
	}
}

// A jsonEvent is an event of a map, or a state of the connection, as --json shows it.
type jsonEvent struct {
	Time     time.Time      `json:"time"`
	Cause    string         `json:"cause,omitempty"`
	State    string         `json:"state,omitempty"`
	Key      *jsonText      `json:"key,omitempty"`
	Old      *jsonValue     `json:"old,omitempty"`
	New      *jsonValue     `json:"new,omitempty"`
	Revision *rmap.Revision `json:"revision,omitempty"`
	Reason   string         `json:"reason,omitempty"`
}

func (a *app) showMapEvent(v *mapView, e rmap.Event[string, rmap.Value], now time.Time) error {
	if a.json {
		out := jsonEvent{Time: now, Cause: e.Cause.String(), Revision: &e.Revision}
		if hasKey(e.Cause) {
			out.Key = &jsonText{e.Key}
		}
		for _, side := range []struct {
			has   bool
			value rmap.Value
			to    **jsonValue
		}{{e.HasOld, e.Old, &out.Old}, {e.HasNew, e.New, &out.New}} {
			if side.has {
				value := newJSONValue(side.value)
				*side.to = &value
			}
		}
		if e.Err != nil {
			out.Reason = oneLine(e.Err.Error())
		}
		return a.object(out)
	}
	return a.writeAll(mapEventLine(a.look, e, now, v.Len()) + "\n")
}

func mapEventLine(s style, e rmap.Event[string, rmap.Value], now time.Time, n int) string {
	line := func(colour, text string) string {
		return now.Format("15:04:05.000") + "  " + s.paint(colour, fmt.Sprintf("%-7s", e.Cause)) + "  " + text +
			s.paint(dim, fmt.Sprintf("  change %d", e.Revision.Number))
	}
	key := s.paint(bold, clipped(e.Key, previewBytes))
	was := ""
	if e.HasOld {
		was = ", was " + preview(e.Old)
	}
	switch e.Cause {
	case rmap.CauseSet:
		return line(green, key+" = "+preview(e.New)+was)
	case rmap.CauseDelete:
		return line(red, key+was)
	case rmap.CauseExpire:
		return line(yellow, key+was)
	case rmap.CauseReset:
		return line(red, "all keys went at once; there are "+count(n, "key", "keys")+" now")
	case rmap.CauseBroken:
		return line(red, "a key or value cannot be read: "+oneLine(e.Err.Error()))
	}
	return line(red, "changes were missed: list again to know the state, "+count(n, "key", "keys"))
}

func (a *app) showMapState(v *mapView, lag rmap.Lag, now time.Time) error {
	text := "the connection is back, and the copy is current: " + count(v.Len(), "key", "keys")
	reason := ""
	if lag.Err != nil {
		reason = storeReason(lag.Err)
	}
	switch lag.State {
	case rmap.CutOff:
		text = "no connection to " + v.at
	case rmap.Refused:
		text = "the store has what this program cannot read"
	}
	if a.json {
		return a.object(jsonEvent{Time: now, State: lag.State.String(), Revision: &lag.Revision, Reason: reason})
	}
	if reason != "" {
		text += ": " + reason
	}
	return a.writeAll(fmt.Sprintf("%s  %s  %s\n", now.Format("15:04:05.000"),
		a.look.paint(stateColour(lag.State), fmt.Sprintf("%-7s", lag.State)), text))
}
