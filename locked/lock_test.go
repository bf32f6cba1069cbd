package locked

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"
)

// At most one goroutine has the lock, however many come, wait, look or give up, and nobody
// is forgotten: everyone comes to an end, and the lock is free and has no queue then.
func TestLockExcludes(t *testing.T) {
	const workers, rounds = 16, 1000
	var l lock
	var inside atomic.Int32
	var total, got int // total is guarded by l
	var count atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range rounds {
				ctx, cancel := context.WithCancel(context.Background())
				switch rand.IntN(6) {
				case 0:
					cancel()
				case 1:
					go cancel()
				case 2:
					if err := l.settle(ctx); err != nil {
						t.Error(err)
					}
					cancel()
					continue
				}
				if err := l.lock(ctx); err == nil {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d have the lock", n)
					}
					total++
					runtime.Gosched()
					inside.Add(-1)
					l.unlock()
					count.Add(1)
				} else if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if got = int(count.Load()); got != total {
		t.Errorf("%d changes by holders are seen, want %d", total, got)
	}
	if s := l.word.Load(); s&flags != 0 || l.head != nil {
		t.Errorf("in the end the lock has the flags %b and the queue %v", s&flags, l.head)
	}
}

// Who waited longer than patience and was overtaken is handed the lock: no newcomer can
// have it in between.
func TestLockStarvesNobody(t *testing.T) {
	for range 200 {
		synctest.Test(t, func(t *testing.T) {
			var l lock
			var served atomic.Bool
			_ = l.lock(context.Background())
			go func() {
				_ = l.lock(context.Background())
				served.Store(true)
				l.unlock()
			}()
			synctest.Wait()
			time.Sleep(2 * patience)
			l.unlock()
			_ = l.lock(context.Background()) // overtakes the waiter, if it is quick enough
			synctest.Wait()
			l.unlock()
			if s := l.word.Load(); s&taken == 0 && !served.Load() {
				t.Error("a newcomer could overtake a second time")
			}
			synctest.Wait()
			if !served.Load() {
				t.Error("the waiter was never served")
			}
		})
	}
}

// Waiters are served in the order in which they came.
func TestLockOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lock
		var order []int
		_ = l.lock(context.Background())
		for i := range 10 {
			go func() {
				_ = l.lock(context.Background())
				order = append(order, i)
				l.unlock()
			}()
			synctest.Wait()
		}
		l.unlock()
		synctest.Wait()
		for i, got := range order {
			if got != i {
				t.Fatalf("served in the order %v", order)
			}
		}
		if len(order) != 10 {
			t.Fatalf("%d were served, want 10", len(order))
		}
	})
}

// A context ends a wait, and only the wait of who brought it.
func TestLockGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lock
		_ = l.lock(context.Background())
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(context.Background())
		var errs [3]error
		var served bool
		go func() { errs[0] = l.lock(ctx) }()
		go func() { errs[1] = l.settle(ctx) }()
		go func() { errs[2] = l.lock(t.Context()); served = true; l.unlock() }()
		synctest.Wait()
		cancel(cause)
		synctest.Wait()
		for _, err := range errs[:2] {
			if !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
				t.Errorf("gave up with %v, want the error and the cause of the context", err)
			}
		}
		l.unlock()
		synctest.Wait()
		if errs[2] != nil || !served {
			t.Errorf("the other waiter: %v, served %v", errs[2], served)
		}
	})
}

// Whoever looks while the lock is taken returns after that hold, even when others have taken
// it at once again.
func TestLockSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lock
		var settled [3]bool
		_ = l.lock(context.Background())
		for i := range settled {
			go func() {
				_ = l.settle(context.Background())
				settled[i] = true
			}()
		}
		synctest.Wait()
		if settled != [3]bool{} {
			t.Error("a reader did not wait")
		}
		l.unlock()
		_ = l.lock(context.Background())
		synctest.Wait()
		if settled != [3]bool{true, true, true} {
			t.Errorf("readers of a hold that has ended still wait: %v", settled)
		}
		l.unlock()
	})
}

// A waiter that gives up at the moment it is chosen passes the lock on. The moment is met by
// doing the steps of the waiter by hand.
func TestLockPassesOn(t *testing.T) {
	for _, impatient := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var l lock
			_ = l.lock(context.Background())
			first := &waiter{ready: make(chan struct{}, 1), impatient: impatient}
			if !l.join(first) {
				t.Fatal("a taken lock is given away")
			}
			served := false
			go func() { _ = l.lock(context.Background()); served = true; l.unlock() }()
			synctest.Wait()
			l.unlock() // chooses the first
			synctest.Wait()
			if served {
				t.Fatal("the second was chosen before the first")
			}
			l.quit(first)
			synctest.Wait()
			if !served {
				t.Error("what was given to a waiter that gave up is lost")
			}
			if s := l.word.Load(); s&flags != 0 {
				t.Errorf("flags %b are left", s&flags)
			}
		})
	}
}

// The releases are counted, handing over included.
func TestLockCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l lock
		for range 3 {
			_ = l.lock(context.Background())
			l.unlock()
		}
		_ = l.lock(context.Background())
		w := &waiter{ready: make(chan struct{}, 1), impatient: true}
		l.join(w)
		l.unlock()
		if s := l.word.Load(); s/release != 4 || s&flags != taken {
			t.Errorf("word %b, want 4 releases and taken", s)
		}
		l.unlock()
		if s := l.word.Load(); s != 5*release {
			t.Errorf("word %b, want 5 releases and no flag", s)
		}
	})
}

func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(lock{}); n != 24 {
		t.Errorf("a lock has %d bytes, want 24", n)
	}
	if n := unsafe.Sizeof(part[int, int]{}); n != 64 {
		t.Errorf("a part of a KeyMap has %d bytes, want a cache line", n)
	}
}
