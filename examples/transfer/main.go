// Command transfer shows money that moves between accounts and is never lost or made on the way. Eight goroutines move
// it to and fro and add all accounts up in between. A payment of more than there is waits, without a loop or a
// timer, until enough has come in.
//
//	go run ./examples/transfer
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/latchkey-go/latchkey/stm"
)

const (
	accounts, each    = 4, 100
	movers, transfers = 8, 500 // of each mover
)

var errTooLittle = errors.New("too little money")

type account = stm.Var[int] // what is in it

// transfer moves an amount. When there is too little it moves nothing and returns what short says.
func transfer(ctx context.Context, from, to *account, amount int, short error) error {
	return stm.Atomically(ctx, func(tx stm.Tx) error {
		if from.Get(tx) < amount {
			return short
		}
		stm.Add(tx, from, -amount)
		stm.Add(tx, to, amount)
		return nil
	})
}

func total(ctx context.Context, bank []account) (sum int, err error) {
	err = stm.View(ctx, func(tx stm.Tx) error {
		sum = 0 // a view may run again
		for i := range bank {
			sum += bank[i].Get(tx)
		}
		return nil
	})
	return sum, err
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	bank := make([]account, accounts)
	for i := range bank {
		stm.AddNow(&bank[i], each)
	}
	var house account // is owed more than all accounts have at first
	paid := make(chan error, 1)
	go func() { paid <- transfer(ctx, &bank[0], &house, accounts*each+1, stm.Retry) }()

	var moving sync.WaitGroup
	var errs [movers]error
	for m := range movers {
		moving.Go(func() {
			for n := range transfers {
				err := transfer(ctx, &bank[(m+n)%accounts], &bank[(m*n+1)%accounts], n%70, errTooLittle)
				sum, failed := total(ctx, bank)
				if err != nil && !errors.Is(err, errTooLittle) || failed != nil || sum != accounts*each {
					errs[m] = errors.Join(err, failed, fmt.Errorf("an audit found %d", sum))
				}
			}
		})
	}
	moving.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	stm.AddNow(&bank[0], accounts*each+1) // now there is enough, whatever the movers left
	err := <-paid
	if sum, failed := total(ctx, bank); err != nil || failed != nil || sum != accounts*each || house.Load() != accounts*each+1 {
		return errors.Join(err, failed, fmt.Errorf("the accounts have %d and the house %d", sum, house.Load()))
	}
	fmt.Println("4000 transfers kept the total of 400; a payment of 401 was made when there was enough")
	return nil
}
