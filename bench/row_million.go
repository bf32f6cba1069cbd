package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/process"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/lease"
)

// millionLeases is the memory of leases that live, what is left of those that
// are gone, and the idle CPU time of their broker.
//
// The broker runs with a collector that starts at 10 % of garbage and reports
// each collection, so that the size of what is live can be read from outside. A
// collection is brought about by locking and unlocking; the first reading is
// taken after more pairs than the broker remembers outcomes of, so that this
// memory is full in all readings.
func millionLeases() row {
	r := row{name: "million", title: "One million live leases with a ttl of one hour and keys of 16 bytes"}
	r.run = func(ctx context.Context, e *env) (*rounds.Result, []rounds.Claim, error) {
		const empty = "latchkey, no lease"
		n := e.dose(1_000_000)
		full, err := e.startBroker(ctx, false, "GOGC=10", "GODEBUG=gctrace=1")
		if err != nil {
			return nil, nil, err
		}
		bare, err := e.startBroker(ctx, false)
		if err != nil {
			return nil, nil, err
		}
		h, err := full.newHeap(ctx, e)
		if err != nil {
			return nil, nil, err
		}
		before, err := h.live(ctx, lease.MaxOutcomes)
		if err != nil {
			return nil, nil, err
		}
		resident := process.Resident(full.process.PID())
		crowd, err := full.keepKeys(ctx, e, n)
		if err != nil {
			return nil, nil, err
		}
		held, err := h.live(ctx, 0)
		if err != nil {
			return nil, nil, err
		}
		resident = process.Resident(full.process.PID()) - resident
		if err := full.holds(ctx, n); err != nil {
			return nil, nil, err
		}
		res, err := rounds.Run(ctx, rounds.Row{
			Arms: []rounds.Arm{full.resting(ours, fmt.Sprintf("%d leases of 1 connection", n), n), bare.resting(empty, "no connection but for statistics", 0)},
			Ours: ours, Value: rounds.Busy, Unit: "% of a core",
		}, e.rounds)
		if err != nil {
			return nil, nil, err
		}
		if err := crowd.drop(ctx); err != nil {
			return nil, nil, err
		}
		left, err := h.live(ctx, lease.MaxOutcomes)
		if err != nil {
			return nil, nil, err
		}
		each := func(bytes int64) float64 { return float64(bytes) / float64(n) }
		return res, []rounds.Claim{
			{What: "heap of a lease after a collection", Unit: "B", Got: each(held - before), Reach: 400, Aim: 250, Smaller: true},
			{What: "resident memory of a lease, with the collector at 10 %", Unit: "B", Got: each(resident), Reach: 500, Smaller: true},
			{What: "heap left of a key that was forgotten", Unit: "B", Got: each(left - before), Reach: 5, Smaller: true},
			{What: "CPU time of the idle broker, upper quartile", Unit: "% of a core", Got: res.Arm(ours).Value.High, Reach: 1, Smaller: true},
		}, full.holds(ctx, 0)
	}
	return r
}

// holds judges the number of keys held.
func (b *broker) holds(ctx context.Context, want int) error {
	s, err := b.service.Stats(ctx)
	if err != nil {
		return err
	}
	if s.Holds != want {
		return rounds.Wrong("the broker holds %d keys, not %d", s.Holds, want)
	}
	return nil
}

// resting makes an arm in which nobody asks the broker for anything.
func (b *broker) resting(name, setting string, held int) rounds.Arm {
	return rounds.Arm{
		Name: name, Setting: setting + ", memory, at rest", PIDs: []int{b.process.PID()},
		Run: func(ctx context.Context, d time.Duration) (rounds.Sample, error) {
			start := time.Now()
			t := time.NewTimer(d)
			defer t.Stop()
			select {
			case <-t.C:
			case <-ctx.Done():
				return rounds.Sample{}, context.Cause(ctx)
			}
			return rounds.Sample{Ops: 1, Elapsed: time.Since(start)}, nil
		},
		Check: func(ctx context.Context, _ *rounds.Sample) error { return b.holds(ctx, held) },
	}
}

// heap reads how much of a broker's heap is live.
type heap struct {
	broker *broker
	churn  *lockers
}

func (b *broker) newHeap(ctx context.Context, e *env) (*heap, error) {
	l, err := b.lockers(ctx, e, many)
	return &heap{broker: b, churn: l}, err
}

// live makes at least so many pairs, and as many more as it takes for a whole
// collection to begin and end, and returns the bytes that it found live.
func (h *heap) live(ctx context.Context, pairs int) (int64, error) {
	done := 0
	for done < pairs {
		n, err := h.work(ctx)
		if err != nil {
			return 0, err
		}
		done += n
	}
	first, _ := lastCollection(h.broker.process.Output())
	deadline := time.Now().Add(time.Minute)
	for {
		n, bytes := lastCollection(h.broker.process.Output())
		if n >= first+2 { // the one after the next began after the work was done
			return bytes, nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("no collection within a minute of locking and unlocking; the broker printed: %s", h.broker.process.Output())
		}
		if _, err := h.work(ctx); err != nil {
			return 0, err
		}
	}
}

func (h *heap) work(ctx context.Context) (int, error) {
	s, err := rounds.Callers(ctx, many, 20*time.Millisecond, h.churn.pair)
	return s.Ops, err
}

// collection matches a line of the collector's trace: its number, and the sizes
// of the heap in MiB at its start, at its end, and what of it is live.
var collection = regexp.MustCompile(`(?m)^gc (\d+) @.* (\d+)->(\d+)->(\d+) MB`)

// lastCollection reads the end of a trace.
func lastCollection(trace string) (number int, live int64) {
	all := collection.FindAllStringSubmatch(trace, -1)
	if len(all) == 0 {
		return 0, 0
	}
	last := all[len(all)-1]
	number, _ = strconv.Atoi(last[1]) // digits by the expression
	mib, _ := strconv.ParseInt(last[4], 10, 64)
	return number, mib << 20
}
