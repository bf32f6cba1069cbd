package httpserve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/latchkey-go/latchkey/internal/tally"
	"github.com/latchkey-go/latchkey/lease"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// figures are what the metrics and /v1/stats show.
type figures struct {
	lease.Stats
	tally.Extra // the clamps of this server among them
}

// singles lists the metrics that are one number each: ours, then the eleven that
// dashboards made for live-mutex read, each with the value that is true here.
func singles() []single {
	gauge := func(name, help string, v func(*figures) int) single {
		return single{desc(name, help), prometheus.GaugeValue, func(s *figures) float64 { return float64(v(s)) }}
	}
	counter := func(name, help string, v func(*figures) uint64) single {
		return single{desc(name, help), prometheus.CounterValue, func(s *figures) float64 { return float64(v(s)) }}
	}
	seconds := func(name, help string, v func(*figures) float64) single {
		return single{desc(name, help), prometheus.GaugeValue, v}
	}
	return []single{
		gauge("latchkey_keys", "Keys with a holder, a waiter or a lock-delay.", func(s *figures) int { return s.Keys }),
		gauge("latchkey_holds", "Keys held, counting each holder.", func(s *figures) int { return s.Holds }),
		gauge("latchkey_shared_holds", "Keys held shared, counting each holder.", func(s *figures) int { return s.SharedHolds }),
		gauge("latchkey_many_key_leases", "Leases on more than one key.", func(s *figures) int { return s.ManyHolds }),
		gauge("latchkey_waiters", "Requests that wait.", func(s *figures) int { return s.Waiters }),
		gauge("latchkey_contended_keys", "Keys that requests wait for.", func(s *figures) int { return s.ContendedKeys }),
		gauge("latchkey_sessions", "Open sessions.", func(s *figures) int { return s.Sessions }),
		gauge("latchkey_sessions_broken", "Open sessions whose connection broke.", func(s *figures) int { return s.Broken }),
		gauge("latchkey_watches", "Open watches.", func(s *figures) int { return s.Watches }),
		gauge("latchkey_timers", "Deadlines that are kept.", func(s *figures) int { return s.Timers }),
		gauge("latchkey_failed", "1 when nothing is granted until a restart.", func(s *figures) int { return one(s.Failed != "") }),
		seconds("latchkey_recovering_seconds", "Time until grants begin after a restart.",
			func(s *figures) float64 { return s.Recovering.Seconds() }),
		seconds("latchkey_uptime_seconds", "Time since the service started.",
			func(s *figures) float64 { return s.Uptime.Seconds() }),
		gauge("latchkey_last_token", "The newest fencing token.", func(s *figures) int { return int(s.LastToken) }),
		counter("latchkey_queued_total", "Requests that had to wait.", func(s *figures) uint64 { return s.Queued }),
		counter("latchkey_repeats_total", "Requests answered as a repeat of an earlier one.", func(s *figures) uint64 { return s.Repeats }),
		counter("latchkey_renewals_total", "Renewals.", func(s *figures) uint64 { return s.Renewals }),
		counter("latchkey_journal_records_total", "Records written to the journal.", func(s *figures) uint64 { return s.JournalRecords }),
		counter("latchkey_journal_frames_total", "Batches of records written to the journal.", func(s *figures) uint64 { return s.JournalFrames }),
		counter("latchkey_journal_syncs_total", "Times the journal was made durable.", func(s *figures) uint64 { return s.JournalSyncs }),
		counter("latchkey_journal_bytes_total", "Bytes written to the journal.", func(s *figures) uint64 { return s.JournalBytes }),
		counter("latchkey_snapshots_total", "Snapshots written.", func(s *figures) uint64 { return s.Snapshots }),

		gauge("lmx_keys", "Keys that are held or waited for.", func(s *figures) int { return s.Keys }),
		gauge("lmx_holders", "Holders, over all keys.", func(s *figures) int { return s.Holds }),
		gauge("lmx_readers", "Shared holders and readers of live-mutex clients, over all keys.",
			func(s *figures) int { return s.AllReaders(&s.Stats) }),
		gauge("lmx_waiters", "Requests that wait.", func(s *figures) int { return s.Waiters }),
		gauge("lmx_clients", "Open sessions, one of them for HTTP, and live-mutex connections that have none yet.",
			func(s *figures) int { return s.Clients(&s.Stats) }),
		gauge("lmx_pending_deadlines", "Deadlines that are kept: of holds, bounded waits, sessions and lock-delays.", func(s *figures) int { return s.Timers }),
		counter("lmx_ttl_evictions_total", "Holds whose ttl ran out.", func(s *figures) uint64 { return s.Expired }),
		gauge("lmx_max_concurrency_cap", "Most holders that a key may have.", func(*figures) int { return lease.MaxHolders }),
		counter("lmx_concurrency_cap_clamps_total", "Requests of HTTP and live-mutex clients whose max was cut to the cap.",
			func(s *figures) uint64 { return s.Clamps }),
		gauge("lmx_composite_locks_held", "Leases on more than one key.", func(s *figures) int { return s.ManyHolds }),
		seconds("lmx_uptime_seconds", "Time since the service started.",
			func(s *figures) float64 { return s.Uptime.Seconds() }),
	}
}

func labelledCounters() []labelled {
	return []labelled{
		{desc("latchkey_requests_total", "Requests for a lease, by outcome.", "outcome"), []labelValue{
			{"granted", func(s *figures) uint64 { return s.Granted }},
			{"busy", func(s *figures) uint64 { return s.Busy }},
			{"timeout", func(s *figures) uint64 { return s.TimedOut }},
			{"cancelled", func(s *figures) uint64 { return s.Cancelled }},
			{"refused", func(s *figures) uint64 { return s.Refused }},
			{"deadlock", func(s *figures) uint64 { return s.Deadlocks }},
		}},
		{desc("latchkey_holds_ended_total", "Holds that ended, by how.", "how"), []labelValue{
			{"released", func(s *figures) uint64 { return s.Released }},
			{"expired", func(s *figures) uint64 { return s.Expired }},
			{"forced", func(s *figures) uint64 { return s.Forced }},
			{"session", func(s *figures) uint64 { return s.Ended }},
		}},
	}
}

func spreads() []spread {
	return []spread{
		{desc("latchkey_wait_seconds", "Time in the queue of granted requests that waited."),
			func(s *figures) *lease.Histogram { return &s.Wait }},
		{desc("latchkey_hold_seconds", "Time held, of holds that ended."),
			func(s *figures) *lease.Histogram { return &s.Hold }},
		{desc("latchkey_journal_sync_seconds", "Time to make the journal durable once."),
			func(s *figures) *lease.Histogram { return &s.Sync }},
	}
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
