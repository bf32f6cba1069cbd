// Command flags shows feature flags that three processes share through a Redis. This process writes them. Two others
// have a copy each, read it whenever they like, and act when something changes.
//
//	go run ./examples/flags
//	LATCHKEY_STORE=redis://localhost:6379 go run ./examples/flags
//
// It checks what the others say, and exits with 1 when one of them misses a change, goes back, or sees half of one.
package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/examples/internal/process"
	"github.com/latchkey-go/latchkey/examples/internal/redisserver"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// A flag is on for a part of the users. It is kept as JSON; all processes must use the same type.
type flag struct {
	Percent int
	Owner   string
}

// patience is how long anything may take on a busy machine.
const patience = 30 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	var err error
	if len(os.Args) == 3 && os.Args[1] == "reader" {
		err = read(ctx, os.Args[2])
	} else {
		err = run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flags:", err)
		os.Exit(1)
	}
}

// join opens the store and the map in it. Every process does this, and does it once.
func join(ctx context.Context, url, name string) (*rmap.Map[string, flag], func(), error) {
	store, err := rmapredis.Open(ctx, url, rmapredis.Options{})
	if err != nil {
		return nil, nil, err
	}
	flags, err := rmap.Join(ctx, store, name, rmap.Options[string, flag]{})
	if err != nil {
		store.Close()
		return nil, nil, err
	}
	return flags, func() { flags.Close(); store.Close() }, nil
}

func run(ctx context.Context) error {
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	name := "example-flags-" + rand.Text()
	flags, leave, err := join(ctx, server.URL, name)
	if err != nil {
		return err
	}
	defer leave()
	defer flags.Destroy(context.WithoutCancel(ctx))
	if _, err := flags.Set(ctx, "checkout", flag{0, "ann"}); err != nil {
		return err
	}
	var readers []*reader
	for _, who := range []string{"first", "second"} {
		p, err := process.Start(ctx, []string{redisserver.Variable + "=" + server.URL}, "reader", name)
		if err != nil {
			return err
		}
		defer p.Stop()
		readers = append(readers, &reader{Process: p, who: who})
	}
	return write(ctx, flags, readers)
}

// write changes the flags, and goes on when both readers have said that they act on it.
func write(ctx context.Context, flags *rmap.Map[string, flag], readers []*reader) error {
	await := func(want string) error {
		for _, r := range readers {
			if err := r.await(want); err != nil {
				return err
			}
		}
		fmt.Println("both readers:", want)
		return nil
	}
	if err := await("checkout for 0 %"); err != nil {
		return err
	}
	for _, percent := range []int{1, 10, 50, 100} {
		if _, err := flags.Set(ctx, "checkout", flag{percent, "ann"}); err != nil {
			return err
		}
		if err := await(fmt.Sprintf("checkout for %d %%", percent)); err != nil {
			return err
		}
	}
	// Two flags in one change: no reader sees one of them without the other.
	_, err := flags.Batch().Set("checkout", flag{0, "ben"}).Set("old-checkout", flag{100, "ben"}).Write(ctx)
	if err != nil {
		return err
	}
	if err := await("checkout for 0 %, old-checkout for 100 %"); err != nil {
		return err
	}
	fmt.Println("every change was acted on by both, in order, and the last one as a whole")
	return nil
}

// read is a reader: it says what it acts on, at first and after each change, until its input ends.
func read(ctx context.Context, name string) error {
	flags, leave, err := join(ctx, os.Getenv(redisserver.Variable), name)
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now, events := flags.Follow(ctx, rmap.WatchOptions{})
	act(now)
	var watching sync.WaitGroup
	watching.Go(func() {
		for range events {
			act(flags.Snapshot()) // shows this change, or a later one
		}
	})
	err = process.Needed()
	cancel()
	watching.Wait()
	return err
}

func act(flags rmap.Snapshot[string, flag]) {
	checkout, _ := flags.Get("checkout")
	if old, ok := flags.Get("old-checkout"); ok {
		fmt.Printf("checkout for %d %%, old-checkout for %d %%\n", checkout.Percent, old.Percent)
		return
	}
	fmt.Printf("checkout for %d %%\n", checkout.Percent)
}

// A reader is a process that reads.
type reader struct {
	*process.Process
	who  string
	last string
}

// await takes the reader's next line that is not a repetition, which must be the wanted one.
func (r *reader) await(want string) error {
	for {
		line, err := r.Line()
		if err != nil {
			return fmt.Errorf("the %s reader does not act on %q: %w", r.who, want, err)
		}
		if line == r.last {
			continue // it looked later than the change it was told of, and then was told of that one
		}
		if r.last = line; line != want {
			return fmt.Errorf("the %s reader acts on %q, want %q", r.who, line, want)
		}
		return nil
	}
}
