package stm_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/latchkey-go/latchkey/stm"
)

// SetNow sets a variable, a zero one in a struct too, and wakes who waits for that.
func TestSetNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var config struct{ name, greeting stm.Var[string] }
		stm.SetNow(&config.name, "Ann")
		want(t, &config.name, "Ann")
		done := make(chan error)
		go func() {
			done <- stm.Atomically(context.Background(), func(tx stm.Tx) error {
				if config.greeting.Get(tx) == "" {
					return stm.Retry
				}
				config.name.Set(tx, "Ben")
				return nil
			})
		}()
		synctest.Wait()
		stm.SetNow(&config.greeting, "hello")
		if err := <-done; err != nil {
			t.Error(err)
		}
		want(t, &config.name, "Ben")
	})
}

// SetNow inside of a transaction is a part of it.
func TestSetNowInside(t *testing.T) {
	a := stm.NewVar(1)
	err := stm.Atomically(t.Context(), func(tx stm.Tx) error {
		stm.SetNow(a, 10)
		if got := stm.Add(tx, a, 1); got != 11 {
			t.Errorf("Add returns %d, want 11", got)
		}
		want(t, a, 1)
		return errMine
	})
	if !errors.Is(err, errMine) {
		t.Error(err)
	}
	want(t, a, 1)
	mustPanic(t, func() {
		_ = stm.View(t.Context(), func(stm.Tx) error { stm.SetNow(a, 2); return nil })
	})
	want(t, a, 1)
}

// A transaction that has read what SetNow sets meanwhile is run again.
func TestSetNowIsAConflict(t *testing.T) {
	a, runs := stm.NewVar(1), 0
	atomically(t, func(tx stm.Tx) {
		if n := a.Get(tx); runs == 0 {
			var wg sync.WaitGroup
			wg.Go(func() { stm.SetNow(a, n) }) // the same number is a change all the same
			wg.Wait()
		}
		runs++
		stm.Add(tx, a, 1)
	})
	want(t, a, 2)
	if runs != 2 {
		t.Errorf("%d runs, want 2", runs)
	}
}

// Read returns what its function does, of one moment; with an error the zero value.
func TestRead(t *testing.T) {
	a, b := stm.NewVar(1), stm.NewVar(1)
	both := func(tx stm.Tx) (int, error) { return 10*a.Get(tx) + b.Get(tx), nil }
	if got, err := stm.Read(t.Context(), both); got != 11 || err != nil {
		t.Errorf("%d, %v; want 11", got, err)
	}
	atomically(t, func(tx stm.Tx) {
		a.Set(tx, 2)
		if got, err := stm.Read(tx.Context(), both); got != 21 || err != nil {
			t.Errorf("inside: %d, %v; want 21", got, err)
		}
	})
	if got, err := stm.Read(t.Context(), func(stm.Tx) (int, error) { return 5, errMine }); got != 0 || !errors.Is(err, errMine) {
		t.Errorf("%d, %v; want 0 and an error", got, err)
	}
	mustPanic(t, func() {
		_, _ = stm.Read(t.Context(), func(tx stm.Tx) (int, error) { return stm.Add(tx, a, 1), nil })
	})
	runs := 0
	got, err := stm.Read(context.Background(), func(tx stm.Tx) (int, error) {
		if runs++; runs == 1 {
			a.Get(tx)
			interfere(a, 1)
			interfere(b, 1)
		}
		return both(tx)
	})
	if got != 32 || err != nil || runs != 2 {
		t.Errorf("%d, %v after %d runs; want 32 after 2", got, err, runs)
	}
}
