// Command claim shows a deploy lock that four race for. Each of them announces that it deploys from inside of the
// update, which is sound because an update runs exactly once: there is one announcement, by the one who won.
//
//	go run ./examples/claim
package main

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/locked"
)

// errTaken keeps an update from storing anything.
var errTaken = errors.New("somebody else deploys")

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "claim:", err)
		os.Exit(1)
	}
}

func run() error {
	var holder locked.Var[string]
	var announced []string // appended to under the lock alone
	claim := func(me string) error {
		_, err := holder.Update(func(now string) (string, error) {
			if now != "" {
				return "", fmt.Errorf("%w: %s", errTaken, now)
			}
			announced = append(announced, me+" deploys")
			return me, nil
		})
		return err
	}

	var won atomic.Pointer[string]
	var winners, losers atomic.Int64
	var racing sync.WaitGroup
	for _, name := range []string{"ann", "ben", "cho", "dee"} {
		racing.Go(func() {
			switch err := claim(name); {
			case err == nil:
				winners.Add(1)
				won.Store(&name)
			case errors.Is(err, errTaken):
				losers.Add(1)
			}
		})
	}
	racing.Wait()

	if winners.Load() != 1 || losers.Load() != 3 {
		return fmt.Errorf("%d won and %d were told that they did not, want 1 and 3", winners.Load(), losers.Load())
	}
	if now := holder.Load(); now != *won.Load() || len(announced) != 1 || announced[0] != now+" deploys" {
		return fmt.Errorf("%s won, the lock says %s, and these were announced: %q", *won.Load(), now, announced)
	}
	fmt.Println("4 raced for the deploy lock, 1 won and said so once")
	return nil
}
