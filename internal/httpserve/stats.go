package httpserve

import (
	"context"
	"net/http"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"

	"github.com/latchkey-go/latchkey/lease"
)

// counts answers GET /v1/stats: first the names that live-mutex dashboards read,
// those that have a true value here, then ours.
type counts struct {
	Uptime       float64  `json:"uptime"`    // seconds
	StartedAt    int64    `json:"startedAt"` // ms since 1970, by the wall clock
	PID          int      `json:"pid"`
	Memory       memory   `json:"memoryUsage"`
	Clients      int      `json:"connectedClients"`
	Locks        int      `json:"totalLocks"`
	Holders      int      `json:"totalHolders"`
	Readers      int      `json:"totalReaders"`
	Pending      int      `json:"pendingRequests"`
	Timeouts     int      `json:"activeTimeouts"`
	Deadlines    int      `json:"pendingDeadlines"`
	Evictions    uint64   `json:"ttlEvictionsTotal"`
	Cap          int      `json:"maxConcurrencyCap"`
	Clamps       uint64   `json:"concurrencyCapClampsTotal"`
	Composites   int      `json:"compositeLocksHeld"`
	Sweep        int      `json:"ttlSweepIntervalMs"` // 0: nothing sweeps, expiry sleeps until the next deadline
	TopKeys      []topKey `json:"topKeys"`
	Version      string   `json:"version"`
	Service      string   `json:"service"`
	Durability   string   `json:"durability"`
	Fencing      string   `json:"fencing"`
	Failed       string   `json:"failed,omitempty"`
	Recovering   int64    `json:"recovering"` // ms
	Contended    int      `json:"contendedKeys"`
	Broken       int      `json:"brokenSessions"`
	Watches      int      `json:"watches"`
	LastToken    uint64   `json:"lastFencingToken"`
	GrantedTotal uint64   `json:"grantedTotal"`
	Released     uint64   `json:"releasedTotal"`
	Forced       uint64   `json:"forcedTotal"`
	Ended        uint64   `json:"endedTotal"`
	Queued       uint64   `json:"queuedTotal"`
	Busy         uint64   `json:"busyTotal"`
	TimedOut     uint64   `json:"timedOutTotal"`
	Cancelled    uint64   `json:"cancelledTotal"`
	Refused      uint64   `json:"refusedTotal"`
	Deadlocks    uint64   `json:"deadlocksTotal"`
	Repeats      uint64   `json:"repeatsTotal"`
	Renewals     uint64   `json:"renewalsTotal"`
	Syncs        uint64   `json:"journalSyncsTotal"`
	Bytes        uint64   `json:"journalBytesTotal"`
}

// memory has what a Go program can say under the names that Node.js uses. There
// is nothing outside of its heap that it knows of and Node.js would count.
type memory struct {
	RSS       uint64 `json:"rss,omitempty"` // absent where the system does not tell it
	HeapTotal uint64 `json:"heapTotal"`
	HeapUsed  uint64 `json:"heapUsed"`
}

// topKey is one of the keys that most requests wait for, or another that is held.
type topKey struct {
	Key     string      `json:"key"`
	Holders int         `json:"holders"`
	Waiters int         `json:"waiters"`
	Max     int         `json:"max,omitempty"` // absent while it is shared
	Token   lease.Token `json:"fencingToken,omitempty"`
}

// topKeys is how many keys /v1/stats names.
const topKeys = 10

// figures asks the service and the dialect.
func (s *Server) figures(ctx context.Context) (figures, error) {
	st, err := s.svc.Stats(ctx)
	f := figures{Stats: st}
	if s.opts.Dialect != nil {
		f.DialectCounts = s.opts.Dialect()
	}
	f.Clamps += s.clamps.Load()
	return f, err
}

// stats answers GET /v1/stats.
func (s *Server) stats(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), lookTimeout)
	defer cancel()
	f, err := s.figures(ctx)
	if err != nil {
		s.fail(w, err)
		return
	}
	c := countsOf(&f)
	c.StartedAt, c.PID, c.Memory, c.Version = s.started.UnixMilli(), os.Getpid(), readMemory(), s.opts.Version
	if c.TopKeys, err = s.topKeys(ctx); err != nil {
		s.fail(w, err)
		return
	}
	s.reply(w, http.StatusOK, c)
}

func countsOf(f *figures) counts {
	return counts{
		Uptime: f.Uptime.Seconds(), Clients: f.clients(), Locks: f.Keys, Holders: f.Holds, Readers: f.readers(),
		Pending: f.Waiters, Timeouts: f.Timers, Deadlines: f.Timers, Evictions: f.Expired,
		Cap: lease.MaxHolders, Clamps: f.Clamps, Composites: f.ManyHolds,
		Service: f.Service, Durability: f.Durability, Fencing: f.Fencing,
		Failed: f.Failed, Recovering: f.Recovering.Milliseconds(),
		Contended: f.ContendedKeys, Broken: f.Broken, Watches: f.Watches, LastToken: uint64(f.LastToken),
		GrantedTotal: f.Granted, Released: f.Released, Forced: f.Stats.Forced, Ended: f.Ended,
		Queued: f.Queued, Busy: f.Busy, TimedOut: f.TimedOut, Cancelled: f.Cancelled,
		Refused: f.Refused, Deadlocks: f.Deadlocks, Repeats: f.Repeats, Renewals: f.Renewals,
		Syncs: f.JournalSyncs, Bytes: f.JournalBytes,
	}
}

// topKeys names those that most requests wait for and, while there are fewer than
// that, others that are held, by name.
func (s *Server) topKeys(ctx context.Context) ([]topKey, error) {
	top, err := s.svc.List(ctx, lease.Query{Contended: true, Limit: topKeys})
	if err != nil {
		return nil, err
	}
	keys := make([]topKey, 0, topKeys)
	for _, k := range top.Keys {
		keys = append(keys, topOf(k))
	}
	if len(keys) == topKeys {
		return keys, nil
	}
	rest, err := s.svc.List(ctx, lease.Query{Limit: 2 * topKeys}) // enough, whichever of them are named already
	if err != nil {
		return nil, err
	}
	for _, k := range rest.Keys {
		named := slices.ContainsFunc(keys, func(t topKey) bool { return t.Key == k.Key })
		if len(keys) < topKeys && len(k.Holders) > 0 && !named {
			keys = append(keys, topOf(k))
		}
	}
	return keys, nil
}

func topOf(k lease.KeyInfo) topKey {
	t := topKey{Key: k.Key, Holders: len(k.Holders), Waiters: k.Waiting}
	for _, h := range k.Holders {
		t.Token = max(t.Token, h.Token)
		limit := h.Limit
		if h.Mode == lease.Exclusive {
			limit = 1
		}
		if limit > 0 && (t.Max == 0 || limit < t.Max) {
			t.Max = limit
		}
	}
	return t
}

// readMemory reads what the heap has and uses, without stopping the program.
func readMemory() memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	used := samples[0].Value.Uint64()
	return memory{RSS: residentSize(), HeapTotal: used + samples[1].Value.Uint64() + samples[2].Value.Uint64(), HeapUsed: used}
}

// residentSize is how much of this process is in memory, 0 where there is no
// Linux to tell it.
func residentSize() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}
