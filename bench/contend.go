package main

import (
	"context"
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/answers"
	"github.com/latchkey-go/latchkey/bench/internal/rounds"
)

// waiters is how many want the one key of the contended rows.
const waiters = 16

// contender is one of those that want the key.
type contender interface {
	Lock(ctx context.Context) (token uint64, err error)
	Unlock(ctx context.Context) error
}

// contest lets contenders take one key in turn and measures the hand-over: from
// the start of a release to the return of the next holder's lock. A contender
// asks again as soon as its release is answered.
type contest struct {
	name, setting string
	pids          []int
	contenders    []contender
	agrees        func(ctx context.Context, s *rounds.Sample, grants int) error // asks the service

	grants []int // of each contender, over all rounds
	last   int   // grants of the last round
}

func (c *contest) run(ctx context.Context, d time.Duration) (rounds.Sample, error) {
	var (
		section  answers.Section // its fields and handed belong to the holder
		handed   []time.Duration
		deadline = time.Now().Add(d)
		start    = time.Now()
	)
	if c.grants == nil {
		c.grants = make([]int, len(c.contenders))
	}
	turn := func(ctx context.Context, i int) error {
		token, err := c.contenders[i].Lock(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		if err := section.Enter(); err != nil {
			return err
		}
		if err := section.Rising.Next(token); err != nil {
			return err
		}
		if !section.Left.IsZero() {
			handed = append(handed, now.Sub(section.Left))
		}
		c.grants[i]++
		section.Left = time.Now()
		if err := section.Leave(); err != nil {
			return err
		}
		return c.contenders[i].Unlock(ctx)
	}
	s, err := rounds.Callers(ctx, len(c.contenders), time.Until(deadline), turn)
	if err != nil {
		return s, err
	}
	c.last = s.Ops
	took := time.Since(start)
	rate := map[string]float64{"grants a second": float64(s.Ops) / took.Seconds()}
	return rounds.Sample{Ops: len(handed), Elapsed: took, Latency: handed, Facts: rate}, nil
}

func (c *contest) check(ctx context.Context, s *rounds.Sample) error {
	if s.Ops != c.last-1 {
		return rounds.Wrong("%d locks and %d hand-overs", c.last, s.Ops)
	}
	return c.agrees(ctx, s, c.last)
}

func (c *contest) arm() rounds.Arm {
	return rounds.Arm{
		Name: c.name, Setting: fmt.Sprintf("%d waiters on one key, %s", len(c.contenders), c.setting),
		PIDs: c.pids, Run: c.run, Check: c.check,
	}
}

// even claims that no contender got more than another.
func (c *contest) even() rounds.Claim { return evenGrants(c.name, c.grants) }

// evenGrants claims that nobody who wanted a key got it more often than another.
func evenGrants(name string, grants []int) rounds.Claim {
	return rounds.Claim{
		What: "difference between the most and the fewest grants of a waiter, of the mean, over all rounds (" + name + ")",
		Unit: "%", Got: 100 * answers.Uneven(grants), Reach: 2, Smaller: true,
	}
}
