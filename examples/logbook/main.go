// Command logbook shows logs that are appended to in place by three workers. The logs are buffers in a map that one
// goroutine owns; a worker sends the function that appends, and waits for nothing. What one worker writes keeps its order.
//
//	go run ./examples/logbook
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/latchkey-go/latchkey/actor"
)

const (
	workers = 3
	entries = 200 // of each worker
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "logbook:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	logs, err := actor.NewMap[string, *strings.Builder](nil, actor.Options{Name: "logs"})
	if err != nil {
		return err
	}
	write := func(log, line string) error {
		return logs.Tell(ctx, func(m map[string]*strings.Builder) error {
			b := m[log]
			if b == nil {
				b = new(strings.Builder)
				m[log] = b
			}
			_, err := fmt.Fprintln(b, line)
			return err
		})
	}

	var writing sync.WaitGroup
	errs := make([]error, workers)
	for id := range workers {
		writing.Go(func() {
			for n := range entries {
				errs[id] = errors.Join(errs[id], write("all", fmt.Sprint(id, " ", n)))
			}
		})
	}
	writing.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The answer is a text: a copy that nobody changes. The buffer itself must stay with its owner.
	text, err := actor.Ask(ctx, logs, func(m map[string]*strings.Builder) (string, error) { return m["all"].String(), nil })
	if err != nil {
		return err
	}
	if err := logs.Close(ctx); err != nil {
		return err
	}
	return check(text)
}

// check finds every line of every worker, in that worker's order.
func check(text string) error {
	var next [workers]int
	for line := range strings.Lines(text) {
		var id, n int
		if _, err := fmt.Sscan(line, &id, &n); err != nil {
			return fmt.Errorf("the log has the line %q: %w", line, err)
		}
		if n != next[id] {
			return fmt.Errorf("worker %d wrote %d where %d was next", id, n, next[id])
		}
		next[id]++
	}
	if next != [workers]int{entries, entries, entries} {
		return fmt.Errorf("lines of each worker: %v", next)
	}
	fmt.Println("3 workers appended 600 lines, each its own in order")
	return nil
}
