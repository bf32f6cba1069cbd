package rounds

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Callers runs op in n goroutines at once until d has passed, each again as soon
// as its last one is done, and takes the time of every one. op is told which
// caller it is for, 0 to n-1. The first error stops all.
func Callers(ctx context.Context, n int, d time.Duration, op func(ctx context.Context, caller int) error) (Sample, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	took := make([][]time.Duration, n)
	for i := range took {
		// Room for a fast operation, so that growing is rare while it is timed.
		took[i] = make([]time.Duration, 0, 1+int(d/(5*time.Microsecond))/n)
	}
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		wg.Go(func() {
			at := time.Now()
			for at.Sub(start) < d {
				if err := op(ctx, i); err != nil {
					cancel(err)
					return
				}
				now := time.Now()
				took[i] = append(took[i], now.Sub(at))
				at = now
			}
		})
	}
	wg.Wait()
	s := Sample{Elapsed: time.Since(start)}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return s, err
	}
	if err := ctx.Err(); err != nil {
		return s, err
	}
	for _, t := range took {
		s.Ops += len(t)
	}
	s.Latency = make([]time.Duration, 0, s.Ops)
	for _, t := range took {
		s.Latency = append(s.Latency, t...)
	}
	return s, nil
}
