package stm

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// A reader must wait for a commit that has locked what it read before, even if that
// has not published yet: others may have built upon what it is about to publish. Here
// a commit of x has found y unchanged; then y changes. To see the new y and the old x
// fits no order.
func TestReaderSeesLocks(t *testing.T) {
	for _, size := range []int{0, small, 2 * small} { // what the view has read before
		x, y := NewVar(0), NewVar(0)
		more := make([]Var[int], size)
		var gotX, gotY, runs int
		var wg sync.WaitGroup
		var returned atomic.Bool
		err := View(context.Background(), func(tx Tx) error {
			for i := range more {
				more[i].Get(tx)
			}
			gotX = x.Get(tx)
			if runs++; runs == 1 {
				if !x.core.tryLock(publishing) {
					t.Fatal("x is locked")
				}
				stamp := tick()
				addElsewhere(y)
				wg.Go(func() {
					for i := 0; i < 10_000 && !returned.Load(); i++ {
						runtime.Gosched()
					}
					one := 1
					x.core.publish(unsafe.Pointer(&one), stamp)
					x.core.lock.Store(0)
				})
			}
			gotY = y.Get(tx)
			return nil
		})
		returned.Store(true)
		wg.Wait()
		if err != nil || gotX != 1 || gotY != 1 {
			t.Errorf("%d more: the view has seen x = %d and y = %d, in no order (%v)", size, gotX, gotY, err)
		}
		clean(t, x, y)
	}
}

// A big transaction is told of commits that had not seen it: it waits for their locks.
func TestBigSeesEarlierLocks(t *testing.T) {
	x, y := NewVar(0), NewVar(0)
	more := make([]Var[int], small-1)
	var gotX, gotY, runs int
	var wg sync.WaitGroup
	var returned atomic.Bool
	err := View(context.Background(), func(tx Tx) error {
		gotX = x.Get(tx)
		for i := range more {
			more[i].Get(tx)
		}
		if runs++; runs == 1 {
			for _, v := range []*Var[int]{x, y} {
				if !v.core.tryLock(publishing) {
					t.Fatal("it is locked")
				}
			}
			stamp := tick()
			if stamp != 0 {
				t.Fatal("the transaction is big already")
			}
			wg.Go(func() {
				for i := 0; i < 10_000 && !returned.Load(); i++ {
					runtime.Gosched()
				}
				one := 1
				x.core.publish(unsafe.Pointer(&one), stamp)
				y.core.publish(unsafe.Pointer(&one), stamp)
				x.core.lock.Store(0)
				y.core.lock.Store(0)
			})
		}
		gotY = y.Get(tx)
		return nil
	})
	returned.Store(true)
	wg.Wait()
	if err != nil || gotX != 1 || gotY != 1 {
		t.Errorf("the view has seen x = %d and y = %d (%v)", gotX, gotY, err)
	}
	clean(t, x, y)
}

// Two transactions of which each reads what the other writes cannot both commit,
// whichever step of the one comes between which of the other.
func TestSkewStepByStep(t *testing.T) {
	x, y := NewVar(0), NewVar(0)
	one, two := begun(false), begun(false)
	one.get(&x.core)
	two.get(&y.core)
	one.set(&y.core, -1, unsafe.Pointer(new(int)))
	two.set(&x.core, -1, unsafe.Pointer(new(int)))
	if !one.lockAll(one.word() | publishing) {
		t.Fatal("nobody is in the way of the first")
	}
	if two.lockAll(two.word() | publishing) {
		t.Error("the second commits between the check of the first and what it publishes")
	}
	if !one.commitLocked() {
		t.Error("the first does not commit")
	}
	if two.commit() {
		t.Error("the second commits though what it read has changed")
	}
	clean(t, x, y)
}

// commitLocked is the rest of commit.
func (r *run) commitLocked() bool {
	for i := range r.writes.entries {
		r.writes.entries[i].core.publish(r.writes.entries[i].value, tick())
	}
	r.unlock(len(r.writes.entries))
	return true
}

// A run behind the gate cannot lose; who wants to commit to what it has read does,
// and a reader does not notice.
func TestKept(t *testing.T) {
	x, y := NewVar(1), NewVar(1)
	g := begun(false)
	g.gated = true
	gate <- struct{}{}
	g.get(&x.core)
	g.set(&y.core, -1, unsafe.Pointer(new(int)))

	other := begun(false)
	other.get(&x.core)
	if !other.commit() {
		t.Error("a reader loses against a run behind the gate")
	}
	other.set(&x.core, -1, unsafe.Pointer(new(int)))
	if other.commit() {
		t.Error("a variable was changed though it is kept")
	}
	added := make(chan int)
	go func() { added <- AddNow(x, 1) }()
	if !g.commit() {
		t.Error("a run behind the gate loses")
	}
	g.release()
	g.forget()
	g.passGate()
	if got := <-added; got != 2 {
		t.Errorf("AddNow returns %d, want 2", got)
	}
	if y.Load() != 0 {
		t.Errorf("y holds %d, want 0", y.Load())
	}
	clean(t, x, y)
}

// SetNow waits for a commit that has its variable, and for a run behind the gate that
// keeps it: what they publish was computed before.
func TestSetNowWaits(t *testing.T) {
	x, r := NewVar(1), begun(false)
	for _, word := range []uintptr{publishing, r.word()} {
		if !x.core.tryLock(word) {
			t.Fatal("x is locked")
		}
		done := make(chan struct{})
		go func() { defer close(done); SetNow(x, 7) }()
		for range 1000 {
			runtime.Gosched()
		}
		if got := x.Load(); got == 7 {
			t.Error("a variable was set though another has it")
		}
		two := 2
		x.core.publish(unsafe.Pointer(&two), tick())
		x.core.lock.Store(0)
		<-done
		if got := x.Load(); got != 7 {
			t.Errorf("x holds %d, want 7", got)
		}
		mustCommit(t, func(tx Tx) { x.Set(tx, 1) })
	}
	runtime.KeepAlive(r)
	clean(t, x)
}

// Where goroutines are not told apart, a nested call finds its transaction in the
// context that it is given, until that has ended.
func TestUndetected(t *testing.T) {
	v, w := NewVar(1), NewVar(1)
	nobody := held.Me{}
	var old context.Context
	err := do(nobody, context.Background(), func(tx Tx) error {
		v.Set(tx, 2)
		old = tx.Context()
		err := do(nobody, tx.Context(), func(tx Tx) error {
			if got := v.Get(tx); got != 2 {
				t.Errorf("the inner part sees %d, want 2", got)
			}
			v.Set(tx, 3)
			return errEnds
		}, false)
		if err != errEnds || v.Get(tx) != 2 {
			t.Errorf("after the inner part: %v, %d", err, v.Get(tx))
		}
		return do(nobody, tx.Context(), func(tx Tx) error { w.Set(tx, 5); return nil }, false)
	}, false)
	if err != nil || v.Load() != 2 || w.Load() != 5 {
		t.Errorf("%v; %d and %d, want 2 and 5", err, v.Load(), w.Load())
	}
	if err := do(nobody, old, func(tx Tx) error { v.Set(tx, 7); return nil }, false); err != nil || v.Load() != 7 {
		t.Errorf("with the context of one that has ended: %v, %d", err, v.Load())
	}
	clean(t, v, w)
}

// Retry is refused inside of a lock, transactions are not.
func TestRetryInsideLock(t *testing.T) {
	v := NewVar(1)
	var lock int
	for _, kind := range []held.Kind{held.Var, held.Map, held.KeyMap} {
		me := held.Who().Enter(held.Frame{Kind: kind, Of: unsafe.Pointer(&lock)})
		mustCommit(t, func(tx Tx) { Add(tx, v, 1) })
		err := Atomically(context.Background(), func(tx Tx) error { v.Get(tx); return Retry })
		me.Leave()
		nested, ok := err.(*NestedError)
		if !ok || nested.Inside != kind || nested.Wanted != "stm.Retry" {
			t.Errorf("inside of %v: %v", kind, err)
		}
		clean(t, v)
	}
	actor := held.Who().Enter(held.Frame{Kind: held.Actor, Of: unsafe.Pointer(&lock)})
	defer actor.Leave()
	err := Atomically(context.Background(), func(tx Tx) error {
		if v.Get(tx) < 10 {
			go AddNow(v, 10)
			return Retry
		}
		return nil
	})
	if err != nil {
		t.Errorf("inside of an actor: %v", err)
	}
}
