package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/lease"
)

// expiry is how late many leases that are due in one second are told to have
// ended. None may be early.
func expiry() row {
	r := row{name: "expiry", title: "100 000 leases due within one second: how late each is told to have ended, against an idle timer"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		b, err := e.startBroker(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		w := &wave{n: e.dose(100_000), lead: 2 * time.Second}
		o := e.rounds
		o.Length = time.Second // of the window, and of the control
		if e.quick {
			w.lead, o.Length = 500*time.Millisecond, 200*time.Millisecond
		}
		if w.session, err = b.openSession(ctx, e, w.told); err != nil {
			return nil, nil, err
		}
		arm := rounds.Arm{
			Name: ours, Setting: fmt.Sprintf("%d leases of 1 connection, memory; the latency is how late the end is told, in rounds of %v", w.n, o.Length),
			PIDs: []int{b.process.PID()}, Run: w.run,
			Check: func(ctx context.Context, _ *rounds.Sample) error { return b.holds(ctx, 0) },
		}
		res, err := rounds.Run(ctx, rounds.Row{Arms: []rounds.Arm{arm}, Ours: ours, Value: rounds.Median, Unit: "median µs", Smaller: true}, o)
		if err != nil {
			return nil, nil, err
		}
		return res, []rounds.Claim{
			{What: "lateness at p99 beyond the idle timer's in the same round, upper quartile", Unit: "ms", Got: res.Tail.High / 1000, Reach: 10, Smaller: true},
			{What: "the longest lateness beyond the idle timer's longest in the same round, upper quartile", Unit: "ms", Got: res.Longest.High / 1000, Reach: 10, Smaller: true},
			{What: "leases that ended early, of all", Got: 0, Reach: 0, Smaller: true},
		}, nil
	}
	return r
}

// wave acquires leases that are due one after the other within a short window,
// and waits to be told of their ends.
type wave struct {
	session lease.Session
	n       int
	lead    time.Duration // from the first acquire to the window

	mu   sync.Mutex // guards what follows, which the service's callbacks fill
	ends []answers.Expiry
	left int
	all  chan struct{} // closed when left is zero
}

const waveKey = "wave:"

// told is called by the session for every loss.
func (w *wave) told(n lease.Notice) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	i, err := strconv.Atoi(n.Key[min(len(waveKey), len(n.Key)):])
	if err != nil || i >= len(w.ends) || n.Code != lease.ErrExpired {
		return // then an end stays untold, which is a wrong answer
	}
	w.ends[i].Told = now
	w.ends[i].Times++
	if w.left--; w.left == 0 {
		close(w.all)
	}
}

func (w *wave) run(ctx context.Context, window time.Duration) (rounds.Sample, error) {
	w.mu.Lock()
	w.ends, w.left, w.all = make([]answers.Expiry, w.n), w.n, make(chan struct{})
	w.mu.Unlock()
	start := time.Now()
	sent := make([]time.Time, w.n)
	ttls := make([]time.Duration, w.n)
	c := &crowd{session: w.session}
	err := c.take(ctx, w.n, func(i int) lease.Request {
		key := waveKey + fmt.Sprintf("%08d", i)
		due := start.Add(w.lead + window*time.Duration(i)/time.Duration(w.n))
		sent[i] = time.Now()
		ttls[i] = due.Sub(sent[i]).Truncate(time.Millisecond)
		return lease.Request{Keys: []string{key}, TTL: ttls[i]}
	})
	if err != nil {
		return rounds.Sample{}, err
	}
	if took := time.Since(start); took > w.lead {
		return rounds.Sample{}, fmt.Errorf("%d leases took %v to acquire, so that the first were due before the last were asked for", w.n, took)
	}
	limit := time.NewTimer(w.lead + window + 10*time.Second)
	defer limit.Stop()
	select {
	case <-w.all:
	case <-limit.C: // Lateness says which end was not told
	case <-ctx.Done():
		return rounds.Sample{}, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.ends {
		e := &w.ends[i]
		e.Key = waveKey + fmt.Sprintf("%08d", i)
		// Both are promises: what the client computed, and the ttl from the time
		// of asking, before which it cannot have begun.
		e.Due = sent[i].Add(ttls[i])
		if d := c.leases[i].Deadline; d.After(e.Due) {
			e.Due = d
		}
	}
	late, err := answers.Lateness(w.ends)
	if err != nil {
		return rounds.Sample{}, err
	}
	return rounds.Sample{Ops: w.n, Elapsed: time.Since(start), Latency: late}, nil
}
