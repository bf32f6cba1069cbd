package stm_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/latchkey-go/latchkey/stm"
)

// Money moves between accounts, all of it or none.
func Example() {
	alice, bob := stm.NewVar(100), stm.NewVar(0)
	errTooLittle := errors.New("too little money")
	transfer := func(amount int) error {
		return stm.Atomically(context.Background(), func(tx stm.Tx) error {
			stm.Add(tx, bob, amount)
			if stm.Add(tx, alice, -amount) < 0 {
				return errTooLittle // takes back what bob has got
			}
			return nil
		})
	}
	fmt.Println(transfer(70), transfer(70))
	fmt.Println(alice.Load(), bob.Load())
	// Output:
	// <nil> too little money
	// 30 70
}

// A mode and its notice are flipped together, and never seen apart.
func ExampleView() {
	mode, notice := stm.NewVar("open"), stm.NewVar("welcome")
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 1000 {
			_ = stm.Atomically(context.Background(), func(tx stm.Tx) error {
				if i%2 == 0 {
					mode.Set(tx, "closed")
					notice.Set(tx, "come back later")
				} else {
					mode.Set(tx, "open")
					notice.Set(tx, "welcome")
				}
				return nil
			})
		}
	})
	mixed := 0
	for range 1000 {
		var m, n string
		_ = stm.View(context.Background(), func(tx stm.Tx) error {
			m, n = mode.Get(tx), notice.Get(tx)
			return nil
		})
		if (m == "open") != (n == "welcome") {
			mixed++
		}
	}
	wg.Wait()
	fmt.Println(mixed, "mixed")
	// Output: 0 mixed
}

// Variables of a struct are set without a transaction around them.
func ExampleSetNow() {
	type config struct{ Host, Region string }
	var service struct { // its variables need no constructor
		config stm.Var[config]
		seen   stm.Var[int]
	}
	stm.SetNow(&service.config, config{"one.example", "north"})
	stm.AddNow(&service.seen, 1)
	fmt.Println(service.config.Load(), service.seen.Load())
	// Output: {one.example north} 1
}

// A result that is of one moment.
func ExampleRead() {
	alice, bob := stm.NewVar(30), stm.NewVar(70)
	sum, err := stm.Read(context.Background(), func(tx stm.Tx) (int, error) {
		return alice.Get(tx) + bob.Get(tx), nil
	})
	fmt.Println(sum, err)
	// Output: 100 <nil>
}

// A consumer waits until there is something, and takes it.
func ExampleRetry() {
	var queue stm.Var[[]string]
	take := func(ctx context.Context) (item string, err error) {
		err = stm.Atomically(ctx, func(tx stm.Tx) error {
			items := queue.Get(tx)
			if len(items) == 0 {
				return stm.Retry
			}
			item = items[0]
			queue.Set(tx, items[1:])
			return nil
		})
		return item, err
	}
	var wg sync.WaitGroup
	wg.Go(func() { fmt.Println(take(context.Background())) })
	_ = stm.Atomically(context.Background(), func(tx stm.Tx) error {
		// A value is replaced, never changed: others may be reading it.
		queue.Set(tx, append(slices.Clone(queue.Get(tx)), "job 1"))
		return nil
	})
	wg.Wait()
	// Output: job 1 <nil>
}

// The first of two that has something is taken from.
func ExampleOrElse() {
	left, right := stm.NewVar(0), stm.NewVar(3)
	take := func(v *stm.Var[int]) func(stm.Tx) error {
		return func(tx stm.Tx) error {
			if stm.Add(tx, v, -1) < 0 {
				return stm.Retry
			}
			return nil
		}
	}
	err := stm.Atomically(context.Background(), func(tx stm.Tx) error {
		return stm.OrElse(tx, take(left), take(right))
	})
	fmt.Println(err, left.Load(), right.Load())
	// Output: <nil> 0 2
}

// What must happen once, and only if the transaction does, is told to it.
func ExampleTx_AfterCommit() {
	seats := stm.NewVar(1)
	book := func(name string) error {
		return stm.Atomically(context.Background(), func(tx stm.Tx) error {
			if stm.Add(tx, seats, -1) < 0 {
				return errors.New("sold out")
			}
			tx.AfterCommit(func() { fmt.Println("a ticket for", name) })
			return nil
		})
	}
	fmt.Println(book("Ann"))
	fmt.Println(book("Bob"))
	// Output:
	// a ticket for Ann
	// <nil>
	// sold out
}

// A counter that everybody adds to.
func ExampleAddNow() {
	var hits stm.Var[int]
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 1000 {
				stm.AddNow(&hits, 1)
			}
		})
	}
	wg.Wait()
	fmt.Println(hits.Load())
	// Output: 4000
}
