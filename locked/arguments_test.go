package locked

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What is missing in a call is named, whatever else the call would have come to.
func TestMissingArguments(t *testing.T) {
	one := map[string]int{"a": 1}
	v, k, m := NewVar(1), NewKeyMap(one), NewMap(one)
	ctx := context.Background()
	for name, call := range map[string]func(){
		"Update of a locked.Var":                func() { v.Update(nil) },
		"UpdateContext of a locked.Var":         func() { v.UpdateContext(ctx, nil) },
		"Update of a locked.KeyMap":             func() { k.Update("a", nil) },
		"UpdateContext of a locked.KeyMap":      func() { k.UpdateContext(ctx, "a", nil) },
		"GetOrCreate of a locked.KeyMap":        func() { k.GetOrCreate("a", nil) },
		"GetOrCreateContext of a locked.KeyMap": func() { k.GetOrCreateContext(ctx, "a", nil) },
		"DeleteIf of a locked.KeyMap":           func() { k.DeleteIf("b", nil) },
		"LoadOr of a locked.KeyMap":             func() { k.LoadOr("a", nil) },
		"Synchronize of a locked.Map":           func() { m.Synchronize(nil) },
		"SynchronizeContext of a locked.Map":    func() { m.SynchronizeContext(ctx, nil) },
		"LoadOr of a locked.Map":                func() { m.LoadOr("a", nil) },
	} {
		mustPanic(t, name+": the function is nil", call)
	}
	var none context.Context
	for name, call := range map[string]func(){
		"LoadContext of a locked.Var":           func() { v.LoadContext(none) },
		"UpdateContext of a locked.Var":         func() { v.UpdateContext(none, same) },
		"LoadContext of a locked.KeyMap":        func() { k.LoadContext(none, "b") },
		"UpdateContext of a locked.KeyMap":      func() { k.UpdateContext(none, "a", sameKey) },
		"GetOrCreateContext of a locked.KeyMap": func() { k.GetOrCreateContext(none, "a", func() (int, error) { return 1, nil }) },
		"LoadContext of a locked.Map":           func() { m.LoadContext(none, "a") },
		"SynchronizeContext of a locked.Map":    func() { m.SynchronizeContext(none, func(*Section[string, int]) error { return nil }) },
	} {
		mustPanic(t, name+": the context is nil", call)
	}
}

// contextCalls are the calls with a context that wait for what is locked.
func contextCalls() (hold func(leave chan struct{}), calls map[string]func(context.Context) error) {
	one := map[string]int{"a": 1}
	v, k, m := NewVar(1), NewKeyMap(one), NewMap(one)
	hold = func(leave chan struct{}) {
		go v.Update(func(int) (int, error) { <-leave; return 1, nil })
		go k.Update("a", func(int, bool) (int, error) { <-leave; return 1, nil })
		go k.GetOrCreate("new", func() (int, error) { <-leave; return 1, nil })
		go m.Synchronize(func(*Section[string, int]) error { <-leave; return nil })
	}
	return hold, map[string]func(context.Context) error{
		"Var.LoadContext":      func(ctx context.Context) error { _, err := v.LoadContext(ctx); return err },
		"Var.UpdateContext":    func(ctx context.Context) error { _, err := v.UpdateContext(ctx, same); return err },
		"KeyMap.LoadContext":   func(ctx context.Context) error { _, _, err := k.LoadContext(ctx, "a"); return err },
		"KeyMap.UpdateContext": func(ctx context.Context) error { _, err := k.UpdateContext(ctx, "a", sameKey); return err },
		"KeyMap.GetOrCreateContext": func(ctx context.Context) error {
			_, err := k.GetOrCreateContext(ctx, "new", func() (int, error) { return 1, nil })
			return err
		},
		"Map.LoadContext": func(ctx context.Context) error { _, _, err := m.LoadContext(ctx, "a"); return err },
		"Map.SynchronizeContext": func(ctx context.Context) error {
			return m.SynchronizeContext(ctx, func(*Section[string, int]) error { return nil })
		},
	}
}

// A context that is over before the call is told apart from one that ends while it waits;
// both errors match what the context says and its cause.
func TestContextErrors(t *testing.T) {
	why := errors.New("the shop closes")
	check := func(t *testing.T, name string, err, is error, text string) {
		if !errors.Is(err, is) || !errors.Is(err, why) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: got %v, want %q with %v and %v", name, err, text, is, why)
		}
	}
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			hold, calls := contextCalls()
			leave := make(chan struct{})
			if held {
				hold(leave)
				synctest.Wait()
			}
			over, cancel := context.WithCancelCause(context.Background())
			cancel(why)
			for name, call := range calls {
				if !held && strings.HasSuffix(name, ".LoadContext") {
					continue // it has nothing to wait for
				}
				check(t, name, call(over), context.Canceled, "the context was over before")
				if held {
					ctx, cancel := context.WithTimeoutCause(context.Background(), time.Hour, why)
					check(t, name, call(ctx), context.DeadlineExceeded, "gave up waiting")
					cancel()
				}
			}
			close(leave)
		})
	}
}

// The documentation of a type shows none of its inner parts.
func TestNothingIsEmbedded(t *testing.T) {
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Var[int]](), reflect.TypeFor[Map[int, int]](), reflect.TypeFor[KeyMap[int, int]](), reflect.TypeFor[Section[int, int]](),
	} {
		for f := range typ.NumField() {
			if f := typ.Field(f); f.Anonymous || f.IsExported() {
				t.Errorf("%v shows its field %s", typ, f.Name)
			}
		}
	}
}

// bare is a context of somebody else's making that has ended before its parent, so
// that there is no cause.
type bare struct{ context.Context }

func (bare) Err() error { return context.Canceled }

func TestNoCause(t *testing.T) {
	err := over(bare{t.Context()})
	if !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "%!") {
		t.Errorf("%v", err)
	}
}
