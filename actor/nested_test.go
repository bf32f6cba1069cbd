package actor_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/latchkey-go/latchkey/actor"
	"github.com/latchkey-go/latchkey/internal/held"
)

// These tests run in bubbles, where a hang is a failure at once, and not after minutes.

// way is one way to reach an owner.
type way struct {
	name  string
	waits bool
	call  func(ctx context.Context, o *actor.Object[counter]) error
}

func one(c *counter) (int, error) {
	c.n++
	return c.n, nil
}

func ways(t *testing.T) []way {
	done, err := actor.NewMap(map[int]int{1: 1}, actor.Options{})
	must(t, err)
	t.Cleanup(func() { closed(t, done) })
	future, err := actor.Send(t.Context(), done, func(map[int]int) (int, error) { return 1, nil })
	must(t, err)
	<-future.Done()
	return []way{
		{"Ask", true, func(ctx context.Context, o *actor.Object[counter]) error {
			_, err := actor.Ask(ctx, o, one)
			return err
		}},
		{"TryAsk", true, func(ctx context.Context, o *actor.Object[counter]) error {
			_, err := actor.TryAsk(ctx, o, one)
			return err
		}},
		{"Do", true, func(ctx context.Context, o *actor.Object[counter]) error { return o.Do(ctx, add) }},
		{"Tell", true, func(ctx context.Context, o *actor.Object[counter]) error { return o.Tell(ctx, add) }},
		{"Send", true, func(ctx context.Context, o *actor.Object[counter]) error {
			_, err := actor.Send(ctx, o, one)
			return err
		}},
		{"Wait", true, func(ctx context.Context, o *actor.Object[counter]) error { _, err := future.Wait(ctx); return err }},
		{"Close", true, func(ctx context.Context, o *actor.Object[counter]) error { return o.Close(ctx) }},
		{"New", true, func(ctx context.Context, _ *actor.Object[counter]) error {
			o, err := actor.New(ctx, newCounter, actor.Options{})
			if err == nil {
				go o.Close(ctx)
			}
			return err
		}},
		{"Map.Get", true, func(ctx context.Context, _ *actor.Object[counter]) error { _, _, err := done.Get(ctx, 1); return err }},
		{"Map.Contains", true, func(ctx context.Context, _ *actor.Object[counter]) error { _, err := done.Contains(ctx, 1); return err }},
		{"Map.Keys", true, func(ctx context.Context, _ *actor.Object[counter]) error { _, err := done.Keys(ctx); return err }},
		{"Map.Copy", true, func(ctx context.Context, _ *actor.Object[counter]) error { _, err := done.Copy(ctx); return err }},
		{"Map.Set", true, func(ctx context.Context, _ *actor.Object[counter]) error { return done.Set(ctx, 1, 1) }},
		{"Add", true, func(ctx context.Context, _ *actor.Object[counter]) error { return actor.Add(ctx, done, 1, 1) }},
		{"Map.Do", true, func(ctx context.Context, _ *actor.Object[counter]) error {
			return done.Do(ctx, func(map[int]int) error { return nil })
		}},
		{"Map.Tell", true, func(ctx context.Context, _ *actor.Object[counter]) error {
			return done.Tell(ctx, func(map[int]int) error { return nil })
		}},
		{"TryTell", false, func(_ context.Context, o *actor.Object[counter]) error { return o.TryTell(add) }},
		{"Map.TryTell", false, func(_ context.Context, _ *actor.Object[counter]) error {
			return done.TryTell(func(map[int]int) error { return nil })
		}},
		{"TrySend", false, func(_ context.Context, o *actor.Object[counter]) error { _, err := actor.TrySend(o, one); return err }},
		{"NewMap", false, func(ctx context.Context, _ *actor.Object[counter]) error {
			m, err := actor.NewMap[int, int](nil, actor.Options{})
			if err == nil {
				go m.Close(ctx)
			}
			return err
		}},
	}
}

// Inside a lock, what may wait is refused; inside a transaction, everything; inside a
// message of another owner, nothing that does not close a circle.
func TestMatrix(t *testing.T) {
	for _, kind := range []held.Kind{held.Var, held.Map, held.KeyMap, held.Transaction, held.Actor} {
		synctest.Test(t, func(t *testing.T) {
			for _, w := range ways(t) {
				o, err := actor.New(t.Context(), newCounter, actor.Options{})
				must(t, err)
				if kind == held.Actor {
					other := counting(t, actor.Options{})
					must(t, other.Do(t.Context(), func(*counter) error { return w.call(t.Context(), o) }))
					closed(t, o)
					continue
				}
				var lock int
				me := held.Who().Enter(held.Frame{Kind: kind, Of: unsafe.Pointer(&lock)})
				err = w.call(t.Context(), o)
				me.Leave()
				var nested *actor.NestedError
				switch refused := w.waits || kind == held.Transaction; {
				case refused && (!errors.As(err, &nested) || !errors.Is(err, actor.ErrNested)):
					t.Errorf("%s inside of %v: %v, want a NestedError", w.name, kind, err)
				case refused && (nested.Inside != kind || nested.Advice == ""):
					t.Errorf("%s inside of %v: %v", w.name, kind, err)
				case refused && kind == held.Transaction && !strings.Contains(err.Error(), "AfterCommit"):
					t.Errorf("%s inside of %v: %v, want advice", w.name, kind, err)
				case !refused && err != nil:
					t.Errorf("%s inside of %v: %v, want it allowed", w.name, kind, err)
				}
				if n := value(t, o); kind == held.Transaction && n != 0 {
					t.Errorf("%s inside of %v was refused and run", w.name, kind)
				}
				closed(t, o)
			}
		})
	}
}

// fill makes an owner's mailbox full while a message of it runs.
func fill(t *testing.T, o *actor.Object[counter]) {
	for o.TryTell(add) == nil {
		runtime.Gosched()
	}
}

// Whatever would have a message wait for its own owner is refused; what goes into the
// mailbox at once is not.
func TestSelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, w := range ways(t)[:7] {
			o := counting(t, actor.Options{Name: "till", Mailbox: 4})
			err := o.Do(t.Context(), func(*counter) error {
				if w.name == "Tell" || w.name == "Send" {
					must(t, w.call(t.Context(), o))
					fill(t, o)
				}
				if w.name == "Wait" {
					f, err := actor.Send(t.Context(), o, one)
					must(t, err)
					_, err = f.Wait(t.Context())
					return err
				}
				return w.call(t.Context(), o)
			})
			advice := "directly"
			if w.name == "Close" {
				advice = "go o.Close(ctx)"
			}
			var nested *actor.NestedError
			if !errors.As(err, &nested) || !strings.Contains(err.Error(), "till") || !strings.Contains(err.Error(), advice) {
				t.Errorf("%s to itself: %v, want a NestedError with the name and what to do", w.name, err)
			}
		}
	})
}

// A circle of owners is refused where it would be closed, and all the others are
// answered. The circle is named.
func TestCircle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, w := range ways(t)[:7] {
			for length := 2; length <= 12; length += 5 {
				ring := make([]*actor.Object[counter], length)
				for i := range ring {
					ring[i] = counting(t, actor.Options{Name: string(rune('A' + i)), Mailbox: 3})
				}
				var last error
				var step func(i int) error
				step = func(i int) error {
					if i+1 < length {
						return ring[i+1].Do(t.Context(), func(*counter) error { return step(i + 1) })
					}
					switch w.name {
					case "Tell", "Send":
						fill(t, ring[0])
					case "Wait":
						f, err := actor.TrySend(ring[0], one)
						must(t, err)
						_, last = f.Wait(t.Context())
						return nil
					}
					last = w.call(t.Context(), ring[0])
					return nil
				}
				must(t, ring[0].Do(t.Context(), func(*counter) error { return step(0) }))
				if !errors.Is(last, actor.ErrNested) || !strings.Contains(last.Error(), "A waits for B") {
					t.Errorf("%s in a circle of %d: %v, want a NestedError that names it", w.name, length, last)
				}
			}
		}
	})
}

// A constructor that asks the owner whose message waits for it is refused too.
func TestCircleByConstructor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := counting(t, actor.Options{Name: "A"})
		err := a.Do(t.Context(), func(*counter) error {
			_, err := actor.New(t.Context(), func() (*counter, error) { return new(counter), a.Do(t.Context(), add) }, actor.Options{Name: "B"})
			return err
		})
		wantIs(t, "New", err, actor.ErrNested)
	})
}

// Two owners, each with a full mailbox: one waits for room at the other, which waits
// for its answer. Elsewhere that has stopped services for hours.
func TestWedged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		a := counting(t, actor.Options{Name: "A", Mailbox: 1})
		b := counting(t, actor.Options{Name: "B", Mailbox: 1})
		asked := make(chan struct{})
		var wg sync.WaitGroup
		var errA, errB error
		wg.Go(func() {
			errB = b.Do(ctx, func(*counter) error {
				<-asked // A is about to ask, or has
				synctest.Wait()
				return a.Tell(ctx, add)
			})
		})
		wg.Go(func() {
			errA = a.Do(ctx, func(*counter) error {
				fill(t, a)
				close(asked)
				return b.Do(ctx, add)
			})
		})
		wg.Wait()
		if (errA == nil) == (errB == nil) {
			t.Errorf("A's ask: %v, B's tell: %v; want one of them refused", errA, errB)
		}
		wantIs(t, "the refused one", errors.Join(errA, errB), actor.ErrNested)
		// Both are alive.
		value(t, a)
		value(t, b)
	})
}

// Owners that send to random others in random ways never hang: what cannot go on is
// refused, and what is not refused is answered.
func TestRandomCircles(t *testing.T) {
	rounds := 200
	if testing.Short() {
		rounds = 20
	}
	var refused, answered atomic.Int64
	for range rounds {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			all := make([]*actor.Object[counter], 2+rand.IntN(4))
			for i := range all {
				all[i] = counting(t, actor.Options{Mailbox: 1 + rand.IntN(3), OnError: func(error) {}})
			}
			var chain func(depth int) func(*counter) error
			chain = func(depth int) func(*counter) error {
				return func(*counter) error {
					if depth == 0 {
						return nil
					}
					err := sendSomehow(ctx, all[rand.IntN(len(all))], chain(depth-1))
					if errors.Is(err, actor.ErrNested) {
						refused.Add(1)
						return nil
					}
					answered.Add(1)
					return err
				}
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 20 {
						sendSomehow(ctx, all[rand.IntN(len(all))], chain(rand.IntN(4)))
					}
				})
			}
			wg.Wait()
		})
	}
	if refused.Load() == 0 || answered.Load() == 0 {
		t.Errorf("%d refused and %d answered: the test tests nothing", refused.Load(), answered.Load())
	}
}

// Who has waited for an owner is not taken for one who still does.
func TestNoCircleAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, w := range ways(t)[:6] {
			a, b := counting(t, actor.Options{}), counting(t, actor.Options{Mailbox: 1})
			release := hold(t, b)
			fill(t, b)
			err := a.Do(t.Context(), func(*counter) error {
				free := func() {
					synctest.Wait()
					release()
				}
				switch w.name {
				case "TryAsk":
					wantIs(t, w.name, w.call(t.Context(), b), actor.ErrFull)
					release()
				case "Wait":
					release()
					var started sync.WaitGroup
					started.Add(1)
					f, err := actor.Send(t.Context(), b, func(*counter) (int, error) {
						started.Wait()
						return 0, nil
					})
					must(t, err)
					go func() {
						synctest.Wait()
						started.Done()
					}()
					if _, err := f.Wait(t.Context()); err != nil {
						return err
					}
				default:
					go free()
					must(t, w.call(t.Context(), b))
				}
				// a is in the same message still, and waits for nobody.
				asked := make(chan error)
				go func() {
					asked <- b.Do(t.Context(), func(*counter) error {
						f, err := actor.Send(t.Context(), a, one)
						if err != nil {
							return err
						}
						ctx, cancel := context.WithTimeout(t.Context(), time.Second)
						defer cancel()
						if _, err := f.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
							return fmt.Errorf("%s: waiting for who waits for nobody: %w", w.name, err)
						}
						return nil
					})
				}()
				return <-asked
			})
			if err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		}
	})
}

// Owners that ask only those above them are never refused, however busy.
func TestNoCircle(t *testing.T) {
	ctx := context.Background()
	levels := make([]*actor.Object[counter], 5)
	for i := range levels {
		levels[i] = counting(t, actor.Options{Mailbox: 2})
	}
	var down func(i int) error
	down = func(i int) error {
		if i == len(levels) {
			return nil
		}
		return levels[i].Do(ctx, func(*counter) error { return down(i + 1 + rand.IntN(len(levels)-i)) })
	}
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 500 {
				if err := down(rand.IntN(len(levels))); err != nil {
					t.Errorf("refused: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// An owner that has just answered, or made room, may wait for whom it has done that for,
// although that one has not noticed yet.
func TestAnsweredIsNoCircle(t *testing.T) {
	ctx := context.Background()
	for range 3000 {
		a, b := counting(t, actor.Options{}), counting(t, actor.Options{Mailbox: 2})
		asked := make(chan error, 1)
		back := func(*counter) error {
			asked <- a.Do(ctx, add)
			return nil
		}
		thenBack := func(*counter) (int, error) { return 0, b.TryTell(back) }
		for _, way := range []func() error{
			func() error { _, err := actor.Ask(ctx, b, thenBack); return err },
			func() error {
				f, err := actor.Send(ctx, b, thenBack)
				if err != nil {
					return err
				}
				_, err = f.Wait(ctx)
				return err
			},
			func() error {
				release := hold(t, b)
				must(t, b.TryTell(back))
				fill(t, b)
				go release()
				return b.Tell(ctx, add)
			},
		} {
			must(t, a.Do(ctx, func(*counter) error { return way() }))
			must(t, <-asked)
		}
	}
}
