// Package tally is what front ends tell of a service under the names that brokers
// of live-mutex have for it: their dashboards read the same over HTTP and over a
// connection. It asks the service when it is called, and keeps nothing.
package tally

import (
	"context"
	"os"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Counts are the statistics that have a true value here.
type Counts struct {
	Uptime     float64  `json:"uptime"`    // seconds
	StartedAt  int64    `json:"startedAt"` // ms since 1970, by the wall clock
	PID        int      `json:"pid"`
	Memory     Memory   `json:"memoryUsage"`
	Clients    int      `json:"connectedClients"`
	Locks      int      `json:"totalLocks"`
	Holders    int      `json:"totalHolders"`
	Readers    int      `json:"totalReaders"`
	Pending    int      `json:"pendingRequests"`
	Timeouts   int      `json:"activeTimeouts"`
	Deadlines  int      `json:"pendingDeadlines"`
	Evictions  uint64   `json:"ttlEvictionsTotal"`
	Cap        int      `json:"maxConcurrencyCap"`
	Clamps     uint64   `json:"concurrencyCapClampsTotal"`
	Composites int      `json:"compositeLocksHeld"`
	Sweep      int      `json:"ttlSweepIntervalMs"` // 0: nothing sweeps, expiry sleeps until the next deadline
	TopKeys    []TopKey `json:"topKeys"`
}

// Memory has what a Go program can say under the names that Node.js uses. There
// is nothing outside of its heap that it knows of and Node.js would count.
type Memory struct {
	RSS       uint64 `json:"rss,omitempty"` // absent where the system does not tell it
	HeapTotal uint64 `json:"heapTotal"`
	HeapUsed  uint64 `json:"heapUsed"`
}

// TopKey is one of the keys that most requests wait for, or another that is held.
type TopKey struct {
	Key     string      `json:"key"`
	Holders int         `json:"holders"`
	Waiters int         `json:"waiters"`
	Max     int         `json:"max,omitempty"` // absent while it is shared
	Token   lease.Token `json:"fencingToken,omitempty"`
}

// Extra is what front ends know beside the service.
type Extra struct {
	Sessionless int    // connections that have no session yet
	Readers     int    // readers of readers/writers locks, which are no shared holds
	Clamps      uint64 // requests whose max was cut to lease.MaxHolders
}

// Clients is how many there are: a session is a client, and so is a connection
// that has no session yet.
func (x Extra) Clients(st *lease.Stats) int { return st.Sessions + x.Sessionless }

// AllReaders counts both kinds: shared holds, and readers of the dialect.
func (x Extra) AllReaders(st *lease.Stats) int { return st.SharedHolds + x.Readers }

// Of makes the counts of a service from its statistics.
func Of(ctx context.Context, svc lease.Service, st *lease.Stats, x Extra) (Counts, error) {
	top, err := topKeys(ctx, svc)
	return Counts{
		Uptime: st.Uptime.Seconds(), StartedAt: time.Now().Add(-st.Uptime).UnixMilli(), PID: os.Getpid(), Memory: memory(),
		Clients: x.Clients(st), Locks: st.Keys, Holders: st.Holds, Readers: x.AllReaders(st),
		Pending: st.Waiters, Timeouts: st.Timers, Deadlines: st.Timers, Evictions: st.Expired,
		Cap: lease.MaxHolders, Clamps: x.Clamps, Composites: st.ManyHolds, TopKeys: top,
	}, err
}

// most is how many keys are named.
const most = 10

// topKeys names those that most requests wait for and, while there are fewer than
// that, others that are held, by name.
func topKeys(ctx context.Context, svc lease.Service) ([]TopKey, error) {
	top, err := svc.List(ctx, lease.Query{Contended: true, Limit: most, Brief: true})
	if err != nil {
		return nil, err
	}
	keys := make([]TopKey, 0, most)
	for _, k := range top.Keys {
		keys = append(keys, topOf(k))
	}
	if len(keys) == most {
		return keys, nil
	}
	rest, err := svc.List(ctx, lease.Query{Limit: 2 * most, Brief: true}) // enough, whichever of them are named already
	if err != nil {
		return nil, err
	}
	for _, k := range rest.Keys {
		named := slices.ContainsFunc(keys, func(t TopKey) bool { return t.Key == k.Key })
		if len(keys) < most && len(k.Holders) > 0 && !named {
			keys = append(keys, topOf(k))
		}
	}
	return keys, nil
}

func topOf(k lease.KeyInfo) TopKey {
	t := TopKey{Key: k.Key, Holders: len(k.Holders), Waiters: k.Waiting}
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

// memory reads what the heap has and uses, without stopping the program.
func memory() Memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	used := samples[0].Value.Uint64()
	return Memory{RSS: residentSize(), HeapTotal: used + samples[1].Value.Uint64() + samples[2].Value.Uint64(), HeapUsed: used}
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
