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
		w := &wave{n: e.dose(100_000)}
		o := e.rounds
		o.Length = time.Second // of the window, and of the control
		if e.quick {
			o.Length = 200 * time.Millisecond
		}
		if w.session, err = b.openSession(ctx, e, w.told); err != nil {
			return nil, nil, err
		}
		if w.lead, err = b.timeToTake(ctx, e, w.n); err != nil {
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

// timeToTake says how long before they are due so many leases must be asked for:
// twice the time that it takes, and at least half a second.
func (b *broker) timeToTake(ctx context.Context, e *env, n int) (time.Duration, error) {
	start := time.Now()
	c, err := b.keepKeys(ctx, e, n)
	if err != nil {
		return 0, err
	}
	took := time.Since(start)
	return max(2*took, 500*time.Millisecond), c.drop(ctx)
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

// attempts bounds how often a wave is started anew because acquiring took so long
// that its first leases were due before the last were asked for.
const attempts = 5

func (w *wave) run(ctx context.Context, window time.Duration) (rounds.Sample, error) {
	for range attempts {
		start := time.Now()
		took, err := w.acquire(ctx, start, window)
		if err == nil {
			err = w.wait(ctx, w.lead+window+10*time.Second)
		}
		if err != nil {
			return rounds.Sample{}, err
		}
		if took > w.lead { // not what is to be measured
			w.lead = 2 * took
			continue
		}
		late, err := answers.Lateness(w.ends)
		return rounds.Sample{Ops: w.n, Elapsed: time.Since(start), Latency: late}, err
	}
	return rounds.Sample{}, fmt.Errorf("%d leases could not be acquired within %v, which is what it took the time before", w.n, w.lead)
}

// acquire takes the leases so that they are due evenly over the window, and says
// how long that took.
func (w *wave) acquire(ctx context.Context, start time.Time, window time.Duration) (time.Duration, error) {
	w.mu.Lock()
	w.ends, w.left, w.all = make([]answers.Expiry, w.n), w.n, make(chan struct{})
	w.mu.Unlock()
	promised := make([]time.Time, w.n)
	c := &crowd{session: w.session}
	err := c.take(ctx, w.n, func(i int) lease.Request {
		due := start.Add(w.lead + window*time.Duration(i)/time.Duration(w.n))
		now := time.Now()
		left := due.Sub(now).Truncate(time.Millisecond)
		if left < lease.MinTTL {
			left = w.lead // too late for this attempt; see run
		}
		promised[i] = now.Add(left)
		return lease.Request{Keys: []string{fmt.Sprintf("%s%08d", waveKey, i)}, TTL: left}
	})
	if err != nil {
		return 0, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, l := range c.leases {
		// Both are promises: the ttl from the time of asking, before which it
		// cannot have begun, and what the client made of the answer.
		w.ends[i].Key, w.ends[i].Due = l.Holds[0].Key, promised[i]
		if l.Deadline.After(promised[i]) {
			w.ends[i].Due = l.Deadline
		}
	}
	return time.Since(start), nil
}

// wait returns when every end was told, or at the limit: then Lateness says which
// was not.
func (w *wave) wait(ctx context.Context, most time.Duration) error {
	limit := time.NewTimer(most)
	defer limit.Stop()
	select {
	case <-w.all:
	case <-limit.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w.mu.Lock() // so that what was told is seen here
	defer w.mu.Unlock()
	return nil
}
