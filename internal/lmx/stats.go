package lmx

import (
	"context"
	"os"
	"runtime/metrics"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// topKeys is how many keys the statistics name.
const topKeys = 10

// stats answers a request for the broker's statistics, with the fields that
// live-mutex has.
func (c *Conn) stats(f *frame) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	st, err := c.srv.svc.Stats(ctx)
	var top lease.Listing
	if err == nil {
		top, err = c.srv.svc.List(ctx, lease.Query{Contended: true, Limit: topKeys})
	}
	if err != nil {
		c.send(&reply{kind: "system-stats-response", echo: string(f.uuid), queue: -1, readers: -1, err: reason(err)})
		return
	}
	b := text(append(c.scratchless(), '{'), "type", "system-stats-response")
	b = raw(b, "uuid", string(f.uuid))
	b = append(name(b, "stats"), '{')
	b = appendStats(b, &st, c.srv.Counts())
	b = append(name(b, "topKeys"), '[')
	for _, k := range top.Keys {
		b = appendTop(append(comma(b), '{'), k)
		b = append(b, '}')
	}
	c.peer.Send(append(b, ']', '}', '}', '\n'))
}

func appendStats(b []byte, st *lease.Stats, n Counts) []byte {
	total, used := heap()
	b = append(name(b, "memoryUsage"), '{')
	b = strconv.AppendUint(name(b, "heapTotal"), total, 10)
	b = strconv.AppendUint(name(b, "heapUsed"), used, 10)
	b = append(b, '}')
	b = strconv.AppendFloat(name(b, "uptime"), st.Uptime.Seconds(), 'f', 3, 64)
	b = strconv.AppendInt(name(b, "startedAt"), time.Now().Add(-st.Uptime).UnixMilli(), 10)
	b = number(b, "connectedClients", st.Sessions+n.Sessionless)
	b = number(b, "totalLocks", st.Keys)
	b = number(b, "totalHolders", st.Holds)
	b = number(b, "totalReaders", st.SharedHolds+n.Readers)
	b = number(b, "pendingRequests", st.Waiters)
	b = number(b, "activeTimeouts", st.Timers)
	b = number(b, "pendingDeadlines", st.Timers)
	b = strconv.AppendUint(name(b, "ttlEvictionsTotal"), st.Expired, 10)
	b = number(b, "maxConcurrencyCap", lease.MaxHolders)
	b = strconv.AppendUint(name(b, "concurrencyCapClampsTotal"), n.Clamps, 10)
	b = number(b, "compositeLocksHeld", st.ManyHolds)
	b = number(b, "ttlSweepIntervalMs", 0) // the wheel sleeps until the next deadline
	return number(b, "pid", os.Getpid())
}

func appendTop(b []byte, k lease.KeyInfo) []byte {
	b = wire.AppendText(name(b, "key"), k.Key)
	b = number(b, "holders", len(k.Holders))
	b = number(b, "waiters", k.Waiting)
	var token lease.Token
	limit := 0
	for _, h := range k.Holders {
		token = max(token, h.Token)
		n := h.Limit
		if h.Mode == lease.Exclusive {
			n = 1
		}
		if n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	if limit > 0 {
		b = number(b, "max", limit)
	}
	if token > 0 {
		b = strconv.AppendUint(name(b, "fencingToken"), uint64(token), 10)
	}
	return b
}

// heap is how many bytes the heap has, and how many of them are in use.
func heap() (total, used uint64) {
	m := []metrics.Sample{
		{Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(m)
	used = m[0].Value.Uint64()
	return used + m[1].Value.Uint64() + m[2].Value.Uint64(), used
}
