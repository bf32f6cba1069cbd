package wire

import (
	"encoding/json"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// stats is lease.Stats as it goes over the wire: durations in milliseconds, but
// for the sums of histograms, whose buckets begin at a microsecond.
type stats struct {
	Service    string `json:"service"`
	Durability string `json:"durability"`
	Fencing    string `json:"fencing"`
	Failed     string `json:"failed,omitempty"`
	Recovering int64  `json:"recovering,omitempty"`
	Uptime     int64  `json:"uptime"`

	Keys          int         `json:"keys"`
	Holds         int         `json:"holds"`
	SharedHolds   int         `json:"shared_holds"`
	ManyHolds     int         `json:"many_holds"`
	Waiters       int         `json:"waiters"`
	ContendedKeys int         `json:"contended_keys"`
	Sessions      int         `json:"sessions"`
	Broken        int         `json:"broken"`
	Watches       int         `json:"watches"`
	Timers        int         `json:"timers"`
	LastToken     lease.Token `json:"last_token"`

	Granted   uint64 `json:"granted"`
	Released  uint64 `json:"released"`
	Expired   uint64 `json:"expired"`
	Forced    uint64 `json:"forced"`
	Ended     uint64 `json:"ended"`
	Queued    uint64 `json:"queued"`
	Busy      uint64 `json:"busy"`
	TimedOut  uint64 `json:"timed_out"`
	Cancelled uint64 `json:"cancelled"`
	Refused   uint64 `json:"refused"`
	Deadlocks uint64 `json:"deadlocks"`
	Repeats   uint64 `json:"repeats"`
	Renewals  uint64 `json:"renewals"`

	Wait histogram `json:"wait"`
	Hold histogram `json:"hold"`
	Sync histogram `json:"sync"`

	JournalRecords uint64 `json:"journal_records"`
	JournalFrames  uint64 `json:"journal_frames"`
	JournalSyncs   uint64 `json:"journal_syncs"`
	JournalBytes   uint64 `json:"journal_bytes"`
	Snapshots      uint64 `json:"snapshots"`
}

// histogram has the count below 1 µs << i in bucket i; trailing empty buckets
// are left out.
type histogram struct {
	Buckets []uint64 `json:"buckets"`
	Count   uint64   `json:"count"`
	SumUS   int64    `json:"sum_us"`
}

func statsJSON(s *lease.Stats) []byte {
	text, err := json.Marshal(stats{
		Service: s.Service, Durability: s.Durability, Fencing: s.Fencing, Failed: s.Failed,
		Recovering: floor(s.Recovering), Uptime: floor(s.Uptime),
		Keys: s.Keys, Holds: s.Holds, SharedHolds: s.SharedHolds, ManyHolds: s.ManyHolds, Waiters: s.Waiters,
		ContendedKeys: s.ContendedKeys, Sessions: s.Sessions, Broken: s.Broken, Watches: s.Watches, Timers: s.Timers,
		LastToken: s.LastToken,
		Granted:   s.Granted, Released: s.Released, Expired: s.Expired, Forced: s.Forced, Ended: s.Ended,
		Queued: s.Queued, Busy: s.Busy, TimedOut: s.TimedOut, Cancelled: s.Cancelled,
		Refused: s.Refused, Deadlocks: s.Deadlocks, Repeats: s.Repeats, Renewals: s.Renewals,
		Wait: histogramOf(&s.Wait), Hold: histogramOf(&s.Hold), Sync: histogramOf(&s.Sync),
		JournalRecords: s.JournalRecords, JournalFrames: s.JournalFrames, JournalSyncs: s.JournalSyncs,
		JournalBytes: s.JournalBytes, Snapshots: s.Snapshots,
	})
	if err != nil { // a struct of numbers and strings always has a JSON form
		return []byte("{}")
	}
	return text
}

func histogramOf(h *lease.Histogram) histogram {
	n := len(h.Buckets)
	for n > 0 && h.Buckets[n-1] == 0 {
		n--
	}
	return histogram{Buckets: append([]uint64{}, h.Buckets[:n]...), Count: h.Count, SumUS: h.Sum.Microseconds()}
}

func (h *histogram) lease() lease.Histogram {
	out := lease.Histogram{Count: h.Count, Sum: time.Duration(h.SumUS) * time.Microsecond}
	copy(out.Buckets[:], h.Buckets)
	return out
}

// stats reads the counters of a service.
func (d *replyDecoder) stats() {
	d.peek()
	start := d.pos
	d.skip(1)
	if d.err != "" {
		return
	}
	var s stats
	if err := json.Unmarshal(d.data[start:d.pos], &s); err != nil {
		d.complain("stats: %v", err)
		return
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	d.reply.Stats = &lease.Stats{
		Service: s.Service, Durability: s.Durability, Fencing: s.Fencing, Failed: s.Failed,
		Recovering: ms(s.Recovering), Uptime: ms(s.Uptime),
		Keys: s.Keys, Holds: s.Holds, SharedHolds: s.SharedHolds, ManyHolds: s.ManyHolds, Waiters: s.Waiters,
		ContendedKeys: s.ContendedKeys, Sessions: s.Sessions, Broken: s.Broken, Watches: s.Watches, Timers: s.Timers,
		LastToken: s.LastToken,
		Granted:   s.Granted, Released: s.Released, Expired: s.Expired, Forced: s.Forced, Ended: s.Ended,
		Queued: s.Queued, Busy: s.Busy, TimedOut: s.TimedOut, Cancelled: s.Cancelled,
		Refused: s.Refused, Deadlocks: s.Deadlocks, Repeats: s.Repeats, Renewals: s.Renewals,
		Wait: s.Wait.lease(), Hold: s.Hold.lease(), Sync: s.Sync.lease(),
		JournalRecords: s.JournalRecords, JournalFrames: s.JournalFrames, JournalSyncs: s.JournalSyncs,
		JournalBytes: s.JournalBytes, Snapshots: s.Snapshots,
	}
}
