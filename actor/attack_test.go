package actor_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/latchkey-go/latchkey/actor"
	"github.com/latchkey-go/latchkey/internal/trial"
)

// Ten thousand who ask one owner, half of whom give up: all are answered or told so.
func TestCrowdGivesUp(t *testing.T) {
	o := counting(t, actor.Options{Mailbox: 4})
	release := hold(t, o)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := 0
	for i := range 10_000 {
		c := context.Background()
		if i%2 == 0 {
			c = ctx
		}
		wg.Go(func() {
			_, err := actor.Ask(c, o, func(c *counter) (int, error) { c.n++; return c.n, nil })
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				answered++
			case i%2 == 1:
				t.Errorf("an ask without an end: %v", err)
			case !errors.Is(err, context.Canceled):
				t.Errorf("%v", err)
			case errors.Is(err, actor.ErrUnknown):
				answered++ // it was run
			}
		})
	}
	runtime.Gosched()
	cancel()
	release()
	trial.Soon(t, "the crowd", wg.Wait)
	if n := value(t, o); n != answered {
		t.Errorf("%d were run, %d answered", n, answered)
	}
}

// Handles that were not made say so.
func TestNotMade(t *testing.T) {
	var o actor.Object[counter]
	var m actor.Map[int, int]
	ctx := context.Background()
	for what, fn := range map[string]func(){
		"Tell":    func() { _ = o.Tell(ctx, add) },
		"TryTell": func() { _ = o.TryTell(add) },
		"Do":      func() { _ = o.Do(ctx, add) },
		"Send":    func() { _, _ = actor.Send(ctx, &o, func(*counter) (int, error) { return 0, nil }) },
		"TrySend": func() { _, _ = actor.TrySend(&o, func(*counter) (int, error) { return 0, nil }) },
		"Close":   func() { _ = o.Close(ctx) },
		"Get":     func() { _, _, _ = m.Get(ctx, 1) },
		"Set":     func() { _ = m.Set(ctx, 1, 1) },
		"M.Close": func() { _ = m.Close(ctx) },
	} {
		func() {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "was not made by New") {
					t.Errorf("%s: %q", what, text)
				}
			}()
			fn()
		}()
	}
}

// To print a handle prints the name, while the owner is at work on what it owns. Without
// String, fmt would go through all of that for a verb that does not fit a pointer.
func TestPrinted(t *testing.T) {
	o := counting(t, actor.Options{Name: "till"})
	m, err := actor.NewMap(map[int]int{1: 1}, actor.Options{Name: "stock"})
	must(t, err)
	defer closed(t, m)
	var wg sync.WaitGroup
	wg.Go(func() {
		for range 1000 {
			must(t, o.Tell(context.Background(), add))
			must(t, m.Set(context.Background(), 1, 2))
		}
	})
	for range 100 {
		if got := fmt.Sprintf("%v %s %+v %q", o, o, m, m); got != `till till stock "stock"` {
			t.Errorf("printed as %s", got)
		}
	}
	wg.Wait()
	var zero actor.Object[int]
	var none *actor.Object[int]
	if got := fmt.Sprint(&zero, none); strings.Contains(got, "PANIC") {
		t.Errorf("printed as %s", got)
	}
}

// Nil functions and nil contexts: nothing hangs, and the owner goes on.
func TestNil(t *testing.T) {
	o := counting(t, actor.Options{Mailbox: 1, OnError: func(error) {}})
	ctx := context.Background()
	one := func(*counter) (int, error) { return 1, nil }
	var none context.Context
	for what, fn := range map[string]func() error{
		"Tell":     func() error { return o.Tell(ctx, nil) },
		"TryTell":  func() error { return o.TryTell(nil) },
		"Do":       func() error { return o.Do(ctx, nil) },
		"Ask":      func() error { _, err := actor.Ask[*counter, int](ctx, o, nil); return err },
		"Send":     func() error { _, err := actor.Send[*counter, int](ctx, o, nil); return err },
		"New":      func() error { _, err := actor.New[counter](ctx, nil, actor.Options{}); return err },
		"ctx Tell": func() error { return o.Tell(none, add) },
		"ctx Do":   func() error { return o.Do(none, add) },
		"ctx Send": func() error { _, err := actor.Send(none, o, one); return err },
		"ctx New":  func() error { _, err := actor.New(none, newCounter, actor.Options{}); return err },
		"ctx Wait": func() error {
			f, err := actor.Send(ctx, o, one)
			if err == nil {
				_, err = f.Wait(none)
			}
			return err
		},
	} {
		trial.Soon(t, what, func() {
			defer func() { _ = recover() }()
			var p *actor.PanicError
			if err := fn(); err != nil && !errors.As(err, &p) && !errors.Is(err, actor.ErrFull) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
	trial.Soon(t, "afterwards", func() { value(t, o) })
}

// Circles of two to ten owners, by asks, tells to full mailboxes and futures mixed: each
// is refused somewhere, and all return.
func TestMixedCircles(t *testing.T) {
	ctx := context.Background()
	for n := 2; n <= 10; n++ {
		for mix := range 3 {
			owners := make([]*actor.Object[counter], n)
			for i := range owners {
				owners[i] = counting(t, actor.Options{Mailbox: 1, Name: fmt.Sprint(i), OnError: func(error) {}})
			}
			var ready, wg sync.WaitGroup
			var mu sync.Mutex
			refused := 0
			ready.Add(n)
			trial.Soon(t, fmt.Sprint(n, mix), func() {
				for i := range owners {
					next := owners[(i+1)%n]
					wg.Go(func() {
						err := owners[i].Do(ctx, func(*counter) error {
							ready.Done()
							ready.Wait()
							for range 3 {
								var err error
								switch (i + mix) % 3 {
								case 0:
									err = next.Do(ctx, add)
								case 1:
									err = next.Tell(ctx, add)
								case 2:
									f, e := actor.Send(ctx, next, func(*counter) (int, error) { return 0, nil })
									if err = e; e == nil {
										_, err = f.Wait(ctx)
									}
								}
								if err != nil {
									return err
								}
							}
							return nil
						})
						if errors.Is(err, actor.ErrNested) {
							mu.Lock()
							refused++
							mu.Unlock()
						} else if err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			})
			if refused == 0 {
				t.Errorf("circle of %d, mix %d: nobody was refused", n, mix)
			}
		}
	}
}

// Close from everywhere at once while the mailbox is full and senders wait.
func TestCloseWhileFull(t *testing.T) {
	for range 200 {
		o := counting(t, actor.Options{Mailbox: 2, OnError: func(err error) {
			if !errors.Is(err, actor.ErrNested) {
				t.Error(err)
			}
		}})
		ctx := context.Background()
		release := hold(t, o)
		var wg sync.WaitGroup
		must(t, o.Tell(ctx, func(*counter) error { return o.Close(ctx) }))
		for range 20 {
			wg.Go(func() { o.Tell(ctx, add) })
			wg.Go(func() { o.Do(ctx, add) })
			wg.Go(func() {
				if f, err := actor.Send(ctx, o, func(*counter) (int, error) { return 1, nil }); err == nil {
					if _, err := f.Wait(ctx); err != nil {
						t.Error(err)
					}
				}
			})
		}
		for range 5 {
			wg.Go(func() { closed(t, o) })
		}
		release()
		trial.Soon(t, "closing", wg.Wait)
	}
}
