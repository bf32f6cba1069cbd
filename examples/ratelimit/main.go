// Command ratelimit shows a bucket of tokens for each client, in a map with a lock for each key. A request takes a
// token and is served, or finds none; the function that looks and takes runs exactly once, and clients do not wait for
// one another.
//
//	go run ./examples/ratelimit
package main

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/locked"
)

const (
	capacity = 20 // tokens of a full bucket
	refill   = 10 // tokens a second
	clients  = 5
	requests = 50 // of each client in a burst
)

// bucket is replaced as a whole at each request.
type bucket struct {
	tokens float64
	at     time.Time
}

// allow takes a token of the client, if there is one.
func allow(buckets *locked.KeyMap[string, bucket], client string, now time.Time) (allowed bool, err error) {
	_, err = buckets.Update(client, func(b bucket, ok bool) (bucket, error) {
		if !ok {
			b = bucket{capacity, now}
		}
		b.tokens = min(capacity, b.tokens+refill*now.Sub(b.at).Seconds())
		b.at = now
		if allowed = b.tokens >= 1; allowed {
			b.tokens--
		}
		return b, nil
	})
	return allowed, err
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ratelimit:", err)
		os.Exit(1)
	}
}

// run has every client send a burst at one moment, and another one a second later.
func run() error {
	buckets := locked.NewKeyMap[string, bucket](nil)
	var served, failed atomic.Int64
	for second, want := range []int64{clients * capacity, clients * (capacity + refill)} {
		now := time.Unix(int64(second), 0)
		var sending sync.WaitGroup
		for i := range clients * requests {
			sending.Go(func() {
				ok, err := allow(buckets, fmt.Sprint("client-", i%clients), now)
				if err != nil {
					failed.Add(1)
				} else if ok {
					served.Add(1)
				}
			})
		}
		sending.Wait()
		if served.Load() != want || failed.Load() != 0 {
			return fmt.Errorf("%d requests were served by second %d, want %d; %d failed", served.Load(), second, want, failed.Load())
		}
	}
	fmt.Println("5 clients sent 500 requests, the 150 within their rate were served")
	return nil
}
