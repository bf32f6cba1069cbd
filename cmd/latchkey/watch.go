package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

func (a *app) watchCommand() *cobra.Command {
	var key string
	cmd := &cobra.Command{
		Use:   "watch [PREFIX]",
		Short: "print what happens to locks, as it happens",
		Long: `Print one line for everything that happens to the keys: granted, released,
expired, forced, ended with its session, queued, dequeued, detached. It reconnects
when the broker goes away; a line "gap" then says that events were missed.`,
		Args: atMostOne,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := lease.Query{Key: key}
			if cmd.Flags().Changed("key") {
				if err := lease.CheckKey(key); err != nil {
					return err
				}
			}
			if len(args) == 1 {
				q.Prefix = args[0]
			}
			if q.Key != "" && q.Prefix != "" {
				return errors.New("either a prefix or --key, not both")
			}
			return a.watch(q)
		},
	}
	cmd.Flags().StringVar(&key, "key", "", "exactly this key")
	return cmd
}

func (a *app) watch(q lease.Query) error {
	ctx, interrupts := interruptible()
	defer interrupts.handOver()
	svc, err := a.dial(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer svc.Close()
	for e, err := range lease.Events(ctx, svc, q) {
		if err != nil {
			return interrupted(ctx, a.unreached(err))
		}
		if err := a.showEvent(e, time.Now()); err != nil {
			return fmt.Errorf("print an event: %w", err)
		}
	}
	return nil
}

func (a *app) showEvent(e lease.Event, now time.Time) error {
	if a.json {
		frame := wire.Happened(0, &e)
		_, err := a.out.Write(wire.AppendReply(nil, &frame))
		return err
	}
	return a.writeAll(eventLine(a.look, e, now) + "\n")
}

// eventColours help the eye; the word is beside them.
func eventColour(k lease.EventKind) string {
	switch k {
	case lease.EventGranted:
		return green
	case lease.EventExpired, lease.EventForced, lease.EventEnded, lease.EventGap:
		return red
	case lease.EventQueued, lease.EventDequeued:
		return yellow
	}
	return ""
}

func eventLine(s style, e lease.Event, now time.Time) string {
	kind := s.paint(eventColour(e.Kind), fmt.Sprintf("%-8s", e.Kind))
	at := now.Format("15:04:05.000")
	if e.Kind == lease.EventGap {
		return at + "  " + kind + "  events were missed: list again to know the state"
	}
	var parts []string
	if e.Token != 0 {
		parts = append(parts, fmt.Sprintf("token %d", e.Token))
	}
	if e.Mode != lease.Exclusive {
		parts = append(parts, mode(e.Mode, e.Limit))
	}
	if e.After > 0 {
		verb := "held"
		if e.Kind == lease.EventGranted || e.Kind == lease.EventDequeued {
			verb = "waited"
		}
		parts = append(parts, verb+" "+span(e.After))
	}
	if e.Code != "" {
		parts = append(parts, strings.ReplaceAll(string(e.Code), "_", " "))
	}
	line := at + "  " + kind + "  " + s.paint(bold, plain(e.Key)) + "  " + who(e.Party)
	if len(parts) > 0 {
		line += "  " + strings.Join(parts, ", ")
	}
	return line
}
