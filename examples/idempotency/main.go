// Command idempotency shows orders that are sent again and not charged again. A map with a lock for each key has the
// receipt of each order under its idempotency key. Whoever sends an order while it is being charged waits for that
// receipt. A charge that was refused leaves nothing behind, so that the next who sends the order tries again.
//
//	go run ./examples/idempotency
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/locked"
)

const (
	orders = 30
	copies = 8 // how often each order is sent
)

var errClosed = errors.New("the bank is closed, and has charged nothing")

// bank refuses the first time that it is asked about the first order. A refusal is safe to repeat; after no answer at all the
// bank itself would have to be asked under the same key, since it may have charged.
type bank struct{ charged, refused atomic.Int64 }

func (b *bank) charge(order int) (receipt string, err error) {
	if order == 0 && b.refused.CompareAndSwap(0, 1) {
		return "", errClosed
	}
	b.charged.Add(1)
	return fmt.Sprint("receipt ", order), nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "idempotency:", err)
		os.Exit(1)
	}
}

func run() error {
	receipts := locked.NewKeyMap[string, string](nil)
	var b bank
	var right, failed, wrong atomic.Int64
	var sending sync.WaitGroup
	for i := range orders * copies {
		sending.Go(func() {
			order := i % orders
			receipt, err := receipts.GetOrCreate(fmt.Sprint("order-", order), func() (string, error) { return b.charge(order) })
			switch {
			case errors.Is(err, errClosed):
				failed.Add(1)
			case err == nil && receipt == fmt.Sprint("receipt ", order):
				right.Add(1)
			default:
				wrong.Add(1)
			}
		})
	}
	sending.Wait()
	if b.charged.Load() != orders || right.Load() != orders*copies-1 || failed.Load() != 1 || wrong.Load() != 0 {
		return fmt.Errorf("%d charges; of the answers %d were receipts, %d were failures and %d were wrong",
			b.charged.Load(), right.Load(), failed.Load(), wrong.Load())
	}
	fmt.Println("30 orders were sent 240 times, and each was charged once")
	return nil
}
