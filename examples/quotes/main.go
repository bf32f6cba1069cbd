// Command quotes shows futures. Three suppliers are asked for a price; the questions are sent before any answer is
// waited for, so that the suppliers work at the same time.
//
// To prove that, each of them waits for the others to have begun, which would never be if they were asked one after
// another. That is the example's device and nothing to copy: a message that waits holds up all others to its owner, and a
// wait for a sync.WaitGroup or a channel is not seen, so that a circle through it would hang instead of being refused.
//
//	go run ./examples/quotes
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/latchkey-go/latchkey/actor"
)

// supplier counts what it has been asked, in place.
type supplier struct {
	price int
	asked int
}

func (s *supplier) quote(amount int) (int, error) {
	s.asked++
	if amount > 100 {
		return 0, fmt.Errorf("%d is more than there is", amount)
	}
	return s.price * amount, nil
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "quotes:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	var suppliers []*actor.Object[supplier]
	for _, price := range []int{13, 11, 12} {
		s, err := actor.New(ctx, func() (*supplier, error) { return &supplier{price: price}, nil }, actor.Options{})
		if err != nil {
			return err
		}
		defer s.Close(ctx)
		suppliers = append(suppliers, s)
	}

	var begun sync.WaitGroup
	begun.Add(len(suppliers))
	var futures []*actor.Future[int]
	for _, s := range suppliers {
		f, err := actor.Send(ctx, s, func(s *supplier) (int, error) {
			begun.Done()
			begun.Wait() // only to prove that all work at once: see above
			return s.quote(10)
		})
		if err != nil {
			return err
		}
		futures = append(futures, f)
	}
	best := 0
	for _, f := range futures {
		price, err := f.Wait(ctx)
		if err != nil {
			return err
		}
		if best == 0 || price < best {
			best = price
		}
	}
	if best != 110 {
		return fmt.Errorf("the best price is %d, want 110", best)
	}
	f, err := actor.Send(ctx, suppliers[0], func(s *supplier) (int, error) { return s.quote(1000) })
	if err != nil {
		return err
	}
	if _, err := f.Wait(ctx); err == nil { // an error comes where the answer is waited for
		return errors.New("a supplier sold more than it has")
	}
	fmt.Println("3 suppliers worked at once, the best price is 110")
	return nil
}
