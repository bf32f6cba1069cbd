package stm_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/stm"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errMine = errors.New("mine")

// atomically fails the test if the transaction does.
func atomically(t *testing.T, fn func(stm.Tx)) {
	t.Helper()
	if err := stm.Atomically(t.Context(), func(tx stm.Tx) error { fn(tx); return nil }); err != nil {
		t.Error(err)
	}
}

func want[T comparable](t *testing.T, v *stm.Var[T], x T) {
	t.Helper()
	if got := v.Load(); got != x {
		t.Errorf("the variable holds %v, want %v", got, x)
	}
}

// What is set is seen by the transaction at once, and by others when it commits.
func TestCommit(t *testing.T) {
	a, b := stm.NewVar(1), stm.NewVar("x")
	var zero stm.Var[[]int]
	atomically(t, func(tx stm.Tx) {
		a.Set(tx, a.Get(tx)+1)
		a.Set(tx, a.Get(tx)+1)
		b.Set(tx, "y")
		if got := a.Get(tx); got != 3 {
			t.Errorf("the transaction sees %d, want 3", got)
		}
		if zero.Get(tx) != nil {
			t.Error("the zero Var does not hold the zero value")
		}
		want(t, a, 1)
		want(t, b, "x")
	})
	want(t, a, 3)
	want(t, b, "y")
	if got := a.String(); got != "3" {
		t.Errorf("String is %q", got)
	}
}

// An error takes back all that was set, and is returned.
func TestError(t *testing.T) {
	a := stm.NewVar(1)
	err := stm.Atomically(t.Context(), func(tx stm.Tx) error {
		a.Set(tx, 2)
		tx.AfterCommit(func() { t.Error("a hook of a transaction that failed was called") })
		return errMine
	})
	if !errors.Is(err, errMine) {
		t.Errorf("the error is %v", err)
	}
	want(t, a, 1)
}

// Nested transactions join: their errors take back their own part only, at any depth,
// values that were overwritten included.
func TestNested(t *testing.T) {
	a, b := stm.NewVar(1), stm.NewVar(1)
	var hooks []int
	atomically(t, func(tx stm.Tx) {
		a.Set(tx, 2)
		tx.AfterCommit(func() { hooks = append(hooks, 1) })
		err := stm.Atomically(t.Context(), func(tx stm.Tx) error {
			if got := a.Get(tx); got != 2 {
				t.Errorf("the inner part sees %d, want 2", got)
			}
			a.Set(tx, 3)
			b.Set(tx, 3)
			tx.AfterCommit(func() { hooks = append(hooks, 2) })
			atomically(t, func(tx stm.Tx) { a.Set(tx, 4); b.Set(tx, 4) })
			if got := a.Get(tx) + b.Get(tx); got != 8 {
				t.Errorf("the middle part sees %d, want 8", got)
			}
			return errMine
		})
		if !errors.Is(err, errMine) {
			t.Errorf("the inner error is %v", err)
		}
		if got := a.Get(tx)*10 + b.Get(tx); got != 21 {
			t.Errorf("the outer part sees %d, want 21", got)
		}
		atomically(t, func(tx stm.Tx) {
			b.Set(tx, 7)
			tx.AfterCommit(func() { hooks = append(hooks, 3) })
		})
	})
	want(t, a, 2)
	want(t, b, 7)
	if !slices.Equal(hooks, []int{1, 3}) {
		t.Errorf("hooks called: %v, want 1 and 3", hooks)
	}
}

// A context that has ended is an error before anything is run, which is told by the
// context's own error as well as by its cause.
func TestContextEnded(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errMine)
	err := stm.Atomically(ctx, func(stm.Tx) error { t.Error("it was run"); return nil })
	if !errors.Is(err, errMine) || !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want context.Canceled and the cause", err)
	}
}

// A View reads, also inside of a transaction and around one; Set in it panics.
func TestViewOnlyReads(t *testing.T) {
	a := stm.NewVar(1)
	refused := func(fn func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Error("Set in a View was not refused")
			}
		}()
		fn()
	}
	refused(func() {
		_ = stm.View(t.Context(), func(tx stm.Tx) error { a.Set(tx, 2); return nil })
	})
	refused(func() {
		_ = stm.View(t.Context(), func(stm.Tx) error {
			return stm.Atomically(t.Context(), func(tx stm.Tx) error { a.Set(tx, 2); return nil })
		})
	})
	refused(func() {
		_ = stm.View(t.Context(), func(stm.Tx) error { stm.AddNow(a, 1); return nil })
	})
	atomically(t, func(tx stm.Tx) {
		refused(func() {
			_ = stm.View(t.Context(), func(tx stm.Tx) error { a.Set(tx, 2); return nil })
		})
		a.Set(tx, 5) // after the View it may be set again
	})
	want(t, a, 5)
}

// AddNow inside of a transaction is a part of it.
func TestAddNowInside(t *testing.T) {
	a := stm.NewVar(1)
	err := stm.Atomically(t.Context(), func(tx stm.Tx) error {
		a.Set(tx, 10)
		if got := stm.AddNow(a, 1); got != 11 {
			t.Errorf("AddNow returns %d, want 11", got)
		}
		if got := stm.Add(tx, a, 1); got != 12 {
			t.Errorf("Add returns %d, want 12", got)
		}
		return errMine
	})
	if !errors.Is(err, errMine) {
		t.Error(err)
	}
	want(t, a, 1)
	if got := stm.AddNow(a, -3); got != -2 {
		t.Errorf("AddNow returns %d, want -2", got)
	}
}

// OrElse takes back what the first function has set, and only then runs the second.
func TestOrElse(t *testing.T) {
	a, b := stm.NewVar(1), stm.NewVar(1)
	retry := func(v *stm.Var[int]) func(stm.Tx) error {
		return func(tx stm.Tx) error {
			v.Set(tx, 100)
			tx.AfterCommit(func() { t.Error("a hook of what was taken back was called") })
			return stm.Retry
		}
	}
	set := func(v *stm.Var[int], x int) func(stm.Tx) error {
		return func(tx stm.Tx) error { v.Set(tx, x); return nil }
	}
	atomically(t, func(tx stm.Tx) {
		a.Set(tx, 2)
		if err := stm.OrElse(tx, retry(a), set(b, 3)); err != nil {
			t.Error(err)
		}
		if err := stm.OrElse(tx, set(b, 4), func(stm.Tx) error { t.Error("both were run"); return nil }); err != nil {
			t.Error(err)
		}
		if err := stm.OrElse(tx, retry(a), retry(b)); !errors.Is(err, stm.Retry) {
			t.Errorf("OrElse returns %v, want Retry", err)
		}
		if err := stm.OrElse(tx, func(tx stm.Tx) error { b.Set(tx, 9); return errMine }, set(b, 9)); !errors.Is(err, errMine) {
			t.Errorf("OrElse returns %v, want the error of the first", err)
		}
	})
	want(t, a, 2)
	want(t, b, 4)
}

// Hooks are called once each, in order, outside of the transaction, behind one that
// panics too; and they may use transactions.
func TestAfterCommit(t *testing.T) {
	a := stm.NewVar(1)
	var called []int
	defer func() {
		if got := recover(); got != errMine {
			t.Errorf("the hook's panic came out as %v", got)
		}
		if !slices.Equal(called, []int{1, 2, 3}) {
			t.Errorf("hooks called: %v, want 1, 2 and 3", called)
		}
		want(t, a, 3)
	}()
	atomically(t, func(tx stm.Tx) {
		a.Set(tx, 2)
		tx.AfterCommit(func() {
			want(t, a, 2)
			called = append(called, 1)
			atomically(t, func(tx stm.Tx) { a.Set(tx, 3) })
		})
		tx.AfterCommit(func() { called = append(called, 2); panic(errMine) })
		tx.AfterCommit(func() { called = append(called, 3) })
	})
}

// A panic of a nested transaction that the outer one recovers from takes back what
// the nested one has set, and no more.
func TestNestedPanic(t *testing.T) {
	a, b := stm.NewVar(1), stm.NewVar(1)
	atomically(t, func(tx stm.Tx) {
		a.Set(tx, 2)
		func() {
			defer func() {
				if got := recover(); got != errMine {
					t.Errorf("the panic came out as %v", got)
				}
			}()
			atomically(t, func(tx stm.Tx) {
				a.Set(tx, 3)
				b.Set(tx, 3)
				tx.AfterCommit(func() { t.Error("a hook of what was taken back was called") })
				panic(errMine)
			})
		}()
		if got := a.Get(tx)*10 + b.Get(tx); got != 21 {
			t.Errorf("the outer part sees %d, want 21", got)
		}
	})
	want(t, a, 2)
	want(t, b, 1)
}

// An error that is found in the hands of a broken Unwrap ends the transaction by its
// panic, and leaves nothing behind.
func TestErrorThatPanics(t *testing.T) {
	a := stm.NewVar(1)
	mustPanic(t, func() {
		_ = stm.Atomically(t.Context(), func(tx stm.Tx) error { a.Set(tx, 2); return broken{} })
	})
	atomically(t, func(tx stm.Tx) { stm.Add(tx, a, 1) })
	want(t, a, 2)
}

type broken struct{}

func (broken) Error() string { return "broken" }
func (broken) Unwrap() error { panic("broken") }
