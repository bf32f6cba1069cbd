package stm

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/held"
)

// waiters are the transactions that wait for a change of a variable. All are woken
// by one: the one that is woken may find that it has to wait again.
type waiters struct {
	n  atomic.Int32
	mu sync.Mutex // guards ch
	ch map[chan struct{}]struct{}
}

// wait enters a channel of room for one, which a change of the variable fills.
func (c *core) wait(ch chan struct{}) {
	w := c.waiters.Load()
	for w == nil {
		c.waiters.CompareAndSwap(nil, new(waiters))
		w = c.waiters.Load()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ch == nil {
		w.ch = map[chan struct{}]struct{}{}
	}
	w.ch[ch] = struct{}{}
	w.n.Store(int32(len(w.ch)))
}

func (c *core) unwait(ch chan struct{}) {
	w := c.waiters.Load()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ch, ch)
	w.n.Store(int32(len(w.ch)))
	if len(w.ch) == 0 {
		w.ch = nil // maps do not shrink
	}
}

// wake wakes all who wait for a change of the variable.
func (c *core) wake() {
	if w := c.waiters.Load(); w != nil && w.n.Load() > 0 {
		w.wake()
	}
}

func (w *waiters) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ch := range w.ch {
		select {
		case ch <- struct{}{}:
		default: // woken already
		}
	}
	w.ch = nil // so that nobody wakes them again until they have run
	w.n.Store(0)
}

// await waits until one of the variables that were read is not what it was. A commit
// stores first and then looks for waiters; we are among them first and then look.
func await(ctx context.Context, reads []entry) error {
	ch := make(chan struct{}, 1)
	entered := 0
	defer func() {
		for i := range reads[:entered] {
			reads[i].core.unwait(ch)
		}
	}()
	for i := range reads {
		reads[i].core.wait(ch)
		entered++
		if reads[i].core.load() != reads[i].value {
			return nil
		}
	}
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		return gaveUp(ctx)
	}
}

// gaveUp is the error of a transaction whose context has ended.
func gaveUp(ctx context.Context) error {
	return fmt.Errorf("stm: the transaction was given up: %w", held.Over(ctx))
}
