package stm_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/stm"
)

// What is given nil says so, at once and in words.
func TestNil(t *testing.T) {
	var none context.Context
	ok := func(stm.Tx) error { return nil }
	inside := func(fn func(stm.Tx)) func() {
		return func() { _ = stm.Atomically(t.Context(), func(tx stm.Tx) error { fn(tx); return nil }) }
	}
	for name, c := range map[string]struct {
		says string
		fn   func()
	}{
		"Atomically without a function": {"function", func() { _ = stm.Atomically(t.Context(), nil) }},
		"Atomically without a context":  {"context.Background", func() { _ = stm.Atomically(none, ok) }},
		"View without a function":       {"function", func() { _ = stm.View(t.Context(), nil) }},
		"View without a context":        {"context.Background", func() { _ = stm.View(none, ok) }},
		"Read without a function":       {"function", func() { _, _ = stm.Read[int](t.Context(), nil) }},
		"Read without a context": {"context.Background", func() {
			_, _ = stm.Read(none, func(stm.Tx) (int, error) { return 1, nil })
		}},
		"nested without a function": {"function", inside(func(tx stm.Tx) { _ = stm.Atomically(tx.Context(), nil) })},
		"OrElse without a first":    {"OrElse", inside(func(tx stm.Tx) { _ = stm.OrElse(tx, nil, ok) })},
		"OrElse without a second":   {"OrElse", inside(func(tx stm.Tx) { _ = stm.OrElse(tx, ok, nil) })},
		"AfterCommit of nothing":    {"AfterCommit", inside(func(tx stm.Tx) { tx.AfterCommit(nil) })},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				text, _ := recover().(string)
				if !strings.HasPrefix(text, "stm: ") || !strings.Contains(text, "nil") || !strings.Contains(text, c.says) {
					t.Errorf("it panics with %q", text)
				}
			}()
			c.fn()
		})
	}
	if _, err := stm.Read(t.Context(), func(stm.Tx) (int, error) { return 1, nil }); err != nil {
		t.Error(err) // nothing was left behind
	}
}

// The error of an ended context is what the context says, and its cause, wherever the
// end is met.
func TestContextEnds(t *testing.T) {
	ended := func(t *testing.T, err, says, cause error) {
		t.Helper()
		if !errors.Is(err, says) || !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "stm: ") {
			t.Errorf("the error is %v, want one of %v and %v", err, says, cause)
		}
	}
	t.Run("before", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errMine)
		never := func(stm.Tx) error { t.Error("it was run"); return nil }
		ended(t, stm.Atomically(ctx, never), context.Canceled, errMine)
		atomically(t, func(stm.Tx) { ended(t, stm.Atomically(ctx, never), context.Canceled, errMine) })
		plain, stop := context.WithCancel(t.Context())
		stop()
		ended(t, stm.View(plain, never), context.Canceled, context.Canceled)
	})
	t.Run("between runs", func(t *testing.T) {
		a := stm.NewVar(1)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended(t, stm.Atomically(ctx, func(tx stm.Tx) error {
			stm.Add(tx, a, 1)
			interfere(a, 10)
			cancel(errMine)
			return nil
		}), context.Canceled, errMine)
		want(t, a, 11)
	})
	t.Run("in Retry", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a := stm.NewVar(1)
			wait := func(tx stm.Tx) error { a.Get(tx); return stm.Retry }
			ctx, cancel := context.WithTimeoutCause(context.Background(), time.Hour, errMine)
			defer cancel()
			ended(t, stm.Atomically(ctx, wait), context.DeadlineExceeded, errMine)
			plain, cancel := context.WithTimeout(context.Background(), time.Hour)
			defer cancel()
			err := stm.Atomically(plain, wait)
			ended(t, err, context.DeadlineExceeded, context.DeadlineExceeded)
			if strings.Count(err.Error(), context.DeadlineExceeded.Error()) != 1 {
				t.Errorf("the error says it twice: %v", err)
			}
		})
	})
}

// A context of somebody's own that has ended may have a parent that has not, and so no
// cause. Nothing has happened then, and no error would mean that it has.
func TestContextWithoutCause(t *testing.T) {
	parent, cancel := context.WithCancel(t.Context())
	defer cancel()
	a := stm.NewVar(1)
	err := stm.Atomically(over{parent}, func(tx stm.Tx) error { a.Set(tx, 2); return nil })
	if !errors.Is(err, errMine) {
		t.Errorf("the error is %v", err)
	}
	want(t, a, 1)
}

// over is a context that has ended before its parent.
type over struct{ context.Context }

func (over) Err() error { return errMine }
