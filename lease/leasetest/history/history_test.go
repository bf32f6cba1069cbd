package history_test

import (
	"context"
	"math/rand/v2"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leasetest/history"
)

// Histories of the service in this process, under random traffic with every kind
// of end, are explained, whatever the seed. The search runs outside the bubble,
// where its time is real.
func TestLocalHistories(t *testing.T) {
	seeds := 40
	if os.Getenv("LATCHKEY_SOAK") != "" {
		seeds = 5000
	}
	base := rand.Uint64N(1 << 40)
	var most time.Duration
	for i := range seeds {
		seed := base + uint64(i)
		h := drive(t, nil, seed)
		start := time.Now()
		history.Check(t, h)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
		most = max(most, time.Since(start))
	}
	t.Logf("%d histories from seed %d, the longest search took %v", seeds, base, most)
}

// A durable service is restarted in the middle: its history is one, and explained.
func TestHistoryAcrossRestarts(t *testing.T) {
	var h history.History
	seed := rand.Uint64N(1 << 40)
	synctest.Test(t, func(t *testing.T) {
		o := leaselocal.Options{Dir: t.TempDir()}
		open := func() lease.Service {
			s, err := leaselocal.Open(o)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		now := &swap{Service: open()}
		rec := history.Record(now)
		for i := range 4 {
			l := history.Load{Seed: seed + uint64(i), Clients: 4, Keys: 3, Steps: 30, Pace: 10 * time.Millisecond,
				Grace: time.Hour, Prefix: string(rune('a' + i))}
			if err := history.Drive(t.Context(), rec, l); err != nil {
				t.Fatal(err)
			}
			if err := now.Service.Close(); err != nil {
				t.Fatal(err)
			}
			now.Service = open()
		}
		now.Service.Close()
		h = rec.History()
	})
	history.Check(t, h)
	t.Logf("seed %d: %d operations", seed, len(h.Ops))
}

// swap is a service that can be replaced by its successor.
type swap struct{ lease.Service }

// The client side makes histories too: leases held by Do and found lost.
func TestClientHistory(t *testing.T) {
	var h history.History
	synctest.Test(t, func(t *testing.T) {
		s, err := leaselocal.Open(leaselocal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		rec := history.Record(s)
		done := make(chan error)
		const workers = 6
		for i := range workers {
			go func() {
				rng := rand.New(rand.NewPCG(1, uint64(i)))
				c, err := lease.Connect(t.Context(), rec, lease.ClientOptions{})
				if err != nil {
					done <- err
					return
				}
				for range 40 {
					ctx, stop := context.WithTimeout(t.Context(), time.Duration(rng.IntN(1000))*time.Millisecond)
					q := lease.Request{Keys: []string{"k"}, TTL: 200 * time.Millisecond, Mode: lease.Mode(rng.IntN(2))}
					_ = c.Do(ctx, q, func(ctx context.Context, _ *lease.Held) error {
						if rng.IntN(5) == 0 {
							_, _ = rec.Force(t.Context(), lease.ForceRequest{Key: "k"})
						}
						select {
						case <-ctx.Done():
						case <-time.After(time.Duration(rng.IntN(500)) * time.Millisecond):
						}
						return nil
					})
					stop()
				}
				done <- c.Close(t.Context())
			}()
		}
		for range workers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		h = rec.History()
	})
	history.Check(t, h)
	t.Logf("%d operations", len(h.Ops))
}
