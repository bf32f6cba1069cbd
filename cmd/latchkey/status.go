package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "show how the broker is",
		Long: `Show how durable the broker is, where its tokens come from, what it holds now and
what it has done. The exit status is 1 when it cannot grant locks.`,
		Args: exactly(),
		RunE: func(*cobra.Command, []string) error {
			var st lease.Stats
			err := a.ask(func(ctx context.Context, svc lease.Service) (err error) {
				st, err = svc.Stats(ctx)
				return err
			})
			if err != nil {
				return err
			}
			if a.json {
				err = a.frame(&wire.Reply{Kind: wire.OK, Stats: &st})
			} else {
				err = a.writeAll(a.statusText(&st))
			}
			if err != nil {
				return err
			}
			if st.Failed != "" {
				return &statusError{status: exitError}
			}
			return nil
		},
	}
}

// statusText is the summary for people: the state first, then gauges, counters
// and times.
func (a *app) statusText(st *lease.Stats) string {
	var b strings.Builder
	line := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s %s\n", name, fmt.Sprintf(format, args...))
	}
	line("broker", "%s, up %s", a.server, span(st.Uptime))
	switch {
	case st.Failed != "":
		line("state", "%s", a.look.paint(red, "FAILED: "+oneLine(st.Failed)+"; nothing is granted until a restart"))
	case st.Recovering > 0:
		line("state", "%s", a.look.paint(yellow, "recovering: nothing is granted for "+span(st.Recovering)))
	default:
		line("state", "%s", a.look.paint(green, "ok"))
	}
	line("durability", "%s", st.Durability)
	line("fencing", "%s, last token %d", st.Fencing, st.LastToken)
	line("now", "%s held (%d shared, %d leases of many keys), %d waiting for %s", count(st.Holds, "lock", "locks"),
		st.SharedHolds, st.ManyHolds, st.Waiters, count(st.ContendedKeys, "key", "keys"))
	line("sessions", "%d, %d without a connection; %s", st.Sessions, st.Broken, count(st.Watches, "watch", "watches"))
	line("granted", "%d (%s)", st.Granted, perSecond(st.Granted, st.Uptime))
	line("ended", "%d released, %d expired, %d forced, %d with their session", st.Released, st.Expired, st.Forced, st.Ended)
	line("refused", "%d busy, %d timed out, %d cancelled, %d deadlocks, %d against a rule", st.Busy, st.TimedOut,
		st.Cancelled, st.Deadlocks, st.Refused)
	line("renewals", "%d (%s)", st.Renewals, perSecond(st.Renewals, st.Uptime))
	line("waited", "%s", summary(&st.Wait))
	line("held", "%s", summary(&st.Hold))
	if st.JournalSyncs > 0 {
		line("journal", "%d records in %d syncs, %s; %d snapshots", st.JournalRecords, st.JournalSyncs,
			size(st.JournalBytes), st.Snapshots)
		line("sync", "%s", summary(&st.Sync))
	}
	return b.String()
}

func perSecond(n uint64, d time.Duration) string {
	if d < time.Second {
		return "just started"
	}
	return fmt.Sprintf("%.3g a second", float64(n)/d.Seconds())
}

// summary shows the median and the tail of a histogram, as upper bounds.
func summary(h *lease.Histogram) string {
	if h.Count == 0 {
		return "-"
	}
	return fmt.Sprintf("mean %s, half within %s, 99%% within %s", span2(h.Sum/time.Duration(h.Count)),
		span2(quantile(h, 50)), span2(quantile(h, 99)))
}

// quantile is the bound of the bucket in which a percentage of the count is
// reached.
func quantile(h *lease.Histogram, percent uint64) time.Duration {
	var seen uint64
	for i, n := range h.Buckets {
		seen += n
		if seen*100 >= h.Count*percent {
			return h.Bound(i)
		}
	}
	return lease.Forever
}

// span2 shows short times too, with two digits.
func span2(d time.Duration) string {
	switch {
	case d == lease.Forever:
		return "hours"
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1fms", float64(d)/float64(time.Millisecond))
	}
	return span(d)
}

func size(n uint64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
