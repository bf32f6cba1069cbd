// Command seats sells pairs of neighbouring seats, which takes two things at once. With a lock for each seat the second
// lock is refused, where a mutex for each seat would sooner or later have two customers wait for each other. With
// transactional variables the same sale is one step.
//
//	go run ./examples/seats
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/locked"
	"github.com/latchkey-go/latchkey/stm"
)

const (
	seats     = 10
	customers = 40
)

var errTaken = errors.New("one of the seats is taken")

// sell sells a seat and its right neighbour, both or none.
func sell(ctx context.Context, row []stm.Var[string], left int, to string) error {
	return stm.Atomically(ctx, func(tx stm.Tx) error {
		for i := left; i < left+2; i++ {
			if row[i].Get(tx) != "" {
				return errTaken
			}
			row[i].Set(tx, to)
		}
		return nil
	})
}

func main() {
	if err := errors.Join(refused(), run(context.Background())); err != nil {
		fmt.Fprintln(os.Stderr, "seats:", err)
		os.Exit(1)
	}
}

// refused wants a second lock inside of the first.
func refused() error {
	var left, right locked.Var[string]
	_, err := left.Update(func(string) (string, error) {
		return right.Update(func(string) (string, error) { return "ann", nil })
	})
	if !errors.Is(err, locked.ErrNested) || left.Load() != "" || right.Load() != "" {
		return errors.Join(err, errors.New("two locks at once were not refused"))
	}
	return nil
}

func run(ctx context.Context) error {
	row := make([]stm.Var[string], seats)
	var sold, wrong atomic.Int64
	var buying sync.WaitGroup
	for c := range customers {
		buying.Go(func() {
			switch err := sell(ctx, row, c%(seats-1), fmt.Sprint("customer ", c)); {
			case err == nil:
				sold.Add(1)
			case !errors.Is(err, errTaken):
				wrong.Add(1)
			}
		})
	}
	buying.Wait()
	owned := make(map[string]int)
	for i := range row {
		owned[row[i].Load()]++
	}
	delete(owned, "") // free ones
	for who, n := range owned {
		if n != 2 {
			return fmt.Errorf("%s has %d seats", who, n)
		}
	}
	// No two free seats are left side by side, so at least three pairs were sold.
	if wrong.Load() != 0 || int64(len(owned)) != sold.Load() || sold.Load() < 3 || sold.Load() > seats/2 {
		return fmt.Errorf("%d pairs sold, %d owners, %d failures", sold.Load(), len(owned), wrong.Load())
	}
	fmt.Println("40 customers raced for 10 seats: whoever has one has its neighbour, nobody has a third")
	return nil
}
