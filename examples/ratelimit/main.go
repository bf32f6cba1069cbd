// Command ratelimit shows a bucket of tokens for each client, in a map with a lock for each key. A request takes a
// token and is served, or finds none; the function that looks and takes runs exactly once, and clients do not wait for
// one another. A sweep forgets clients whose bucket is full again: that is what a client that nobody knows has as well.
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
	loyal    = 2  // clients that come again after a long time
)

// bucket is replaced as a whole at each request.
type bucket struct {
	tokens float64
	at     time.Time
}

// filled is the bucket with what has flowed in since.
func (b bucket) filled(now time.Time) bucket {
	return bucket{min(capacity, b.tokens+refill*now.Sub(b.at).Seconds()), now}
}

// allow takes a token of the client, if there is one.
func allow(buckets *locked.KeyMap[string, bucket], client string, now time.Time) (allowed bool, err error) {
	_, err = buckets.Update(client, func(b bucket, ok bool) (bucket, error) {
		if !ok {
			b = bucket{capacity, now}
		}
		b = b.filled(now)
		if allowed = b.tokens >= 1; allowed {
			b.tokens--
		}
		return b, nil
	})
	return allowed, err
}

// forget takes out the buckets that are full. It asks under the key's lock, so that one from which a request takes a
// token meanwhile stays.
func forget(buckets *locked.KeyMap[string, bucket], now time.Time) {
	for client := range buckets.All() {
		buckets.DeleteIf(client, func(b bucket) bool { return b.filled(now).tokens == capacity })
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ratelimit:", err)
		os.Exit(1)
	}
}

// run has every client send a burst at one moment, and another one a second later. A minute later some come again. At
// each burst idle clients are being forgotten.
func run() error {
	buckets := locked.NewKeyMap[string, bucket](nil)
	var served, failed atomic.Int64
	burst := func(from int, now time.Time) {
		var sending sync.WaitGroup
		for i := range from * requests {
			sending.Go(func() {
				ok, err := allow(buckets, fmt.Sprint("client-", i%from), now)
				if err != nil {
					failed.Add(1)
				} else if ok {
					served.Add(1)
				}
			})
		}
		sending.Go(func() { forget(buckets, now) })
		sending.Wait()
	}
	for _, b := range []struct {
		second     int64
		from       int
		want, kept int
	}{
		{0, clients, clients * capacity, clients},
		{1, clients, clients * (capacity + refill), clients},
		{60, loyal, clients*(capacity+refill) + loyal*capacity, loyal},
	} {
		burst(b.from, time.Unix(b.second, 0))
		if served.Load() != int64(b.want) || failed.Load() != 0 {
			return fmt.Errorf("%d requests were served by second %d, want %d; %d failed", served.Load(), b.second, b.want, failed.Load())
		}
		if kept := len(buckets.Keys()); kept != b.kept {
			return fmt.Errorf("%d clients are known at second %d, want %d", kept, b.second, b.kept)
		}
	}
	fmt.Println("5 clients sent 600 requests, the 190 within their rate were served; the 3 that were idle are forgotten")
	return nil
}
