package locked

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Var is one value behind a lock. The zero Var holds the zero value of T and is ready
// for use. A Var must not be copied after its first use.
//
// Go cannot freeze values. What is behind a pointer, a slice or a map in T is shared
// with every reader: replace it, and do not modify what was stored.
type Var[T any] struct {
	lock lock
	cell cell[T]
}

// NewVar returns a Var that holds v.
func NewVar[T any](v T) *Var[T] {
	x := new(Var[T])
	x.cell.put(v)
	return x
}

// Peek returns the value that was stored last. It takes no lock and never waits, so it
// is allowed anywhere. An update in flight is not seen.
func (v *Var[T]) Peek() T {
	x, _ := v.cell.get()
	return x
}

// Load returns the value. When an update is in flight it waits for its end, so that the
// whole function of an update is one step for it. It panics with a [*NestedError] inside
// of an update, a section or a transaction; use [Var.Peek] there.
func (v *Var[T]) Load() T {
	if top := held.Who().Top(); refuses(top) {
		panic(refusal(v.call("Load of a locked.Var"), top))
	}
	if v.lock.taken() {
		_ = v.lock.settle(context.Background()) // cannot fail without a context
	}
	return v.Peek()
}

// LoadContext is Load until the context ends, and returns a [*NestedError] where Load
// panics. When the context ends first the error matches ctx.Err() and context.Cause(ctx);
// where there is nothing to wait for the context does not matter.
func (v *Var[T]) LoadContext(ctx context.Context) (x T, err error) {
	if ctx == nil {
		panic(noContext("LoadContext of a locked.Var"))
	}
	if top := held.Who().Top(); refuses(top) {
		return x, refusal(v.call("LoadContext of a locked.Var"), top)
	}
	if v.lock.taken() {
		if err := v.lock.settle(ctx); err != nil {
			return x, err
		}
	}
	return v.Peek(), nil
}

// Update replaces the value by what the function makes of it, and returns that. The
// function runs exactly once, while nobody else updates the value or loads it: keep it
// short. When it returns an error nothing is stored, and Update returns the zero value and
// that error; when it panics or calls runtime.Goexit nothing is stored either.
//
// Inside of another update, a section or a transaction Update fails with a
// [*NestedError], and the function does not run.
func (v *Var[T]) Update(fn func(old T) (T, error)) (T, error) {
	return v.update(context.Background(), "Update of a locked.Var", fn)
}

// UpdateContext is Update, but gives up when the context ends before the function has
// started, and returns an error that matches ctx.Err() and context.Cause(ctx).
func (v *Var[T]) UpdateContext(ctx context.Context, fn func(old T) (T, error)) (T, error) {
	return v.update(ctx, "UpdateContext of a locked.Var", fn)
}

func (v *Var[T]) update(ctx context.Context, name string, fn func(T) (T, error)) (zero T, err error) {
	if fn == nil {
		panic(noFunction(name))
	}
	if ctx == nil {
		panic(noContext(name))
	}
	me := held.Who()
	if top := me.Top(); refuses(top) {
		return zero, refusal(v.call(name), top)
	}
	if ctx.Err() != nil {
		return zero, over(ctx)
	}
	if err := v.lock.lock(ctx); err != nil {
		return zero, err
	}
	me = me.Enter(held.Frame{Kind: held.Var, Of: unsafe.Pointer(v)})
	defer v.leave(me)
	old, _ := v.cell.get()
	x, err := fn(old)
	if err != nil {
		return zero, err
	}
	v.cell.put(x)
	return x, nil
}

// Store sets the value, whatever it was. It waits for an update in flight. What depends on
// the old value is an [Var.Update]: between a Load and a Store others come. It panics with a
// [*NestedError] inside of an update, a section or a transaction.
func (v *Var[T]) Store(x T) {
	if top := held.Who().Top(); refuses(top) {
		panic(refusal(v.call("Store to a locked.Var"), top))
	}
	v.lock.lock(context.Background())
	v.cell.put(x)
	v.lock.unlock()
}

func (v *Var[T]) leave(me held.Me) {
	me.Leave()
	v.lock.unlock()
}

func (v *Var[T]) call(name string) call {
	return call{name: name, kind: held.Var, of: unsafe.Pointer(v)}
}

// String formats the value that was stored last, as fmt.Sprint does. It never waits.
func (v *Var[T]) String() string { return fmt.Sprint(v.Peek()) }

// Add adds n to a number and returns the sum. It is an Update that allocates nothing. It
// panics with a [*NestedError] inside of an update, a section or a transaction.
func Add[T Number](v *Var[T], n T) T {
	if top := held.Who().Top(); refuses(top) {
		panic(refusal(v.call("Add to a locked.Var"), top))
	}
	v.lock.lock(context.Background())
	old, _ := v.cell.get()
	v.cell.putNumber(old + n)
	v.lock.unlock()
	return old + n
}
