package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// bench acquires and releases, so many at a time, each on a key of its own, and counts the pairs.
func (a *agent) bench(c command) {
	began := time.Now()
	end := began.Add(milliseconds(c.MS))
	var pairs, errors atomic.Int64
	var loops sync.WaitGroup
	for i := range max(c.InFlight, 1) {
		key := fmt.Sprintf("%s-%d", c.Key, i)
		loops.Go(func() {
			for time.Now().Before(end) {
				l, err := a.client.Acquire(a.ctx, lease.Request{Keys: []string{key}})
				if err == nil {
					_, err = a.client.Release(a.ctx, l.ID)
				}
				if err != nil {
					errors.Add(1)
					return // what failed once would go on failing, without a pause
				}
				pairs.Add(1)
			}
		})
	}
	loops.Wait()
	a.say(event{"event": "bench", "pairs": pairs.Load(), "ms": time.Since(began).Milliseconds(), "errors": errors.Load()})
}
