// Command flip shows two variables that always agree. A service has a mode and a notice that belong together; it is
// opened and closed again and again while four watchers take forty thousand snapshots of both. Not one snapshot may
// have the mode of one moment and the notice of another.
//
//	go run ./examples/flip
package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/stm"
)

const (
	watchers  = 4
	snapshots = 10_000 // of each watcher
)

// service is an ordinary type whose state is in variables. Its methods run in whichever goroutine calls them.
type service struct {
	mode, notice stm.Var[string]
}

// set changes both, or neither.
func (s *service) set(ctx context.Context, mode, notice string) error {
	return stm.Atomically(ctx, func(tx stm.Tx) error {
		s.mode.Set(tx, mode)
		s.notice.Set(tx, notice)
		return nil
	})
}

func (s *service) open(ctx context.Context) error  { return s.set(ctx, "open", "welcome") }
func (s *service) close(ctx context.Context) error { return s.set(ctx, "closed", "back at eight") }

// status returns both as they were at one moment.
func (s *service) status(ctx context.Context) (mode, notice string, err error) {
	err = stm.View(ctx, func(tx stm.Tx) error {
		mode = s.mode.Get(tx)
		runtime.Gosched() // gives the service every chance to change in between
		notice = s.notice.Get(tx)
		return nil
	})
	return mode, notice, err
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "flip:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var s service // neither open nor with the notice of one that is
	var taken, mixed, left atomic.Int64
	left.Store(watchers)
	var watching sync.WaitGroup
	for range watchers {
		watching.Go(func() {
			defer left.Add(-1)
			for range snapshots {
				mode, notice, err := s.status(ctx)
				if err != nil || (mode == "open") != (notice == "welcome") {
					mixed.Add(1)
				}
				taken.Add(1)
			}
		})
	}
	flip, next := s.open, s.close
	for left.Load() > 0 {
		if err := flip(ctx); err != nil {
			return err
		}
		flip, next = next, flip
		runtime.Gosched() // with one processor the watchers come now, not when this goroutine's time is up
	}
	watching.Wait()
	if taken, mixed := taken.Load(), mixed.Load(); taken != watchers*snapshots || mixed != 0 {
		return fmt.Errorf("%d snapshots, %d of them mixed", taken, mixed)
	}
	fmt.Println("40000 snapshots of mode and notice, none of them mixed")
	return nil
}
