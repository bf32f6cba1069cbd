package stm

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/latchkey-go/latchkey/internal/held"
)

// Retry, returned by a transaction's function, takes back what it has set and runs it
// again when something that it has read has changed. It may be wrapped.
//
//lint:ignore ST1012 it is an order rather than a failure
var Retry = errors.New("stm: retry")

// ErrNothingRead is the error of a transaction that returns [Retry] and has read
// nothing: there is no change that it could wait for.
var ErrNothingRead = errors.New("stm: Retry in a transaction that has read nothing would wait for ever")

// ErrNested is matched by every [NestedError].
var ErrNested = held.ErrNested

// NestedError says what would have waited for itself, inside of what, and what to do
// instead.
type NestedError = held.NestedError

const (
	// How often a transaction may lose before it goes through the gate.
	triesBeforeGate     = 10
	viewTriesBeforeGate = 3

	// patience is about how long one that has lost gives way to others. To give way
	// once may take much longer, when they have a lot to compute.
	patience = 100 * time.Microsecond
)

// Tx is a transaction as its function sees it. It is void once the function has
// returned, and to use it then panics. It belongs to its goroutine: another one must not
// use it, and panics when it sets a variable or gets one that was not read yet.
type Tx struct {
	r   *run
	gen uint64
}

func (tx Tx) run() *run {
	if tx.r == nil || tx.r.gen.Load() != tx.gen {
		void()
	}
	return tx.r
}

func void() { panic("stm: a transaction was used after its end") }

// Context is the context that Atomically was given, the outermost one.
func (tx Tx) Context() context.Context {
	r := tx.run()
	if !r.known { // a nested call finds the transaction in here
		return context.WithValue(r.ctx, txKey{}, tx)
	}
	return r.ctx
}

type txKey struct{}

// AfterCommit has fn called once after the commit, outside of the transaction, by the
// goroutine that Atomically was called in and before that returns. It is forgotten
// when the transaction, or the nested one that it was called in, does not commit.
// Functions are called in order; when one panics, the others are called all the same.
func (tx Tx) AfterCommit(fn func()) {
	r := tx.run()
	r.own()
	if fn == nil {
		panic("stm: AfterCommit was given a nil function; there is nothing to call")
	}
	r.hooks = append(r.hooks, fn)
}

// Atomically runs fn as a transaction and returns nil once that is committed. An
// error of fn takes back all that it has set and is returned; so does a panic, or
// runtime.Goexit, which goes on. [Retry] makes it wait. When the context ends while
// it waits or before it runs fn again, its error and its cause are returned, wrapped,
// and nothing has happened; an end while fn runs is no reason not to commit.
//
// Inside of a transaction fn becomes a part of that: what it sets is published, or
// taken back, with the rest. Its error, Retry too, takes back only what it has set
// itself and is returned to the outer function, which may go on or pass it up. A panic
// takes back the same, for an outer function that recovers from it.
func Atomically(ctx context.Context, fn func(Tx) error) error {
	return do(held.Who(), ctx, fn, false)
}

// View runs fn as a transaction that only reads: all of one moment. However busy
// others are, it is run at most three times, and once more behind the gate. Set in it
// panics.
func View(ctx context.Context, fn func(Tx) error) error {
	return do(held.Who(), ctx, fn, true)
}

// Read is a [View] that returns what fn does: values that are of one moment. With an
// error it returns the zero T.
func Read[T any](ctx context.Context, fn func(Tx) (T, error)) (T, error) {
	if fn == nil {
		missing(ctx)
	}
	var x, zero T
	err := View(ctx, func(tx Tx) (err error) {
		x, err = fn(tx)
		return err
	})
	if err != nil {
		return zero, err
	}
	return x, nil
}

// OrElse runs a as a part of the transaction; when that returns [Retry], what it has
// set is taken back and b is run. When b returns Retry too, so does OrElse, and a
// transaction that passes it on waits for a change of what either has read.
func OrElse(tx Tx, a, b func(Tx) error) error {
	r := tx.run()
	r.own()
	if a == nil || b == nil {
		panic("stm: OrElse was given a nil function; it needs two")
	}
	if err := r.join(tx, a, false); !errors.Is(err, Retry) {
		return err
	}
	return r.join(tx, b, false)
}

// do is Atomically and View, for a goroutine.
func do(me held.Me, ctx context.Context, fn func(Tx) error, reading bool) error {
	if ctx == nil || fn == nil {
		missing(ctx)
	}
	if ctx.Err() != nil {
		return gaveUp(ctx)
	}
	top := me.Top()
	if top.Kind == held.Transaction {
		r := (*run)(top.Of)
		return r.join(Tx{r, r.gen.Load()}, fn, reading)
	}
	r := pool.Get().(*run)
	r.me = me
	if r.enter(); !r.known {
		if tx, ok := ctx.Value(txKey{}).(Tx); ok && tx.r.gen.Load() == tx.gen {
			r.leave()
			pool.Put(r)
			return tx.r.join(tx, fn, reading)
		}
	}
	r.ctx, r.reading = ctx, reading
	became, err := r.attempt(fn)
	if became != over {
		err = r.repeat(fn, became)
	}
	hooks := r.after
	r.after = nil
	r.leave()
	pool.Put(r)
	if len(hooks) > 0 {
		call(hooks)
	}
	return err
}

// missing panics for a transaction that was given nil, before anything is done.
func missing(ctx context.Context) {
	if ctx == nil {
		panic("stm: a transaction was given a nil context; context.Background() is one that never ends")
	}
	panic("stm: a transaction was given a nil function; there is nothing to run")
}

// join runs a part of a transaction, whose error takes back what the part has set.
func (r *run) join(tx Tx, fn func(Tx) error, reading bool) (err error) {
	s := r.save(reading)
	returned := false
	defer func() { r.restore(s, !returned || err != nil) }()
	err = fn(tx)
	returned = true
	return err
}

// What became of an attempt.
type outcome int

const (
	over    outcome = iota // it is committed, or has failed with an error
	beaten                 // it has lost against another transaction
	waiting                // it returned Retry; its reads are left for sleep
)

// attempt runs fn once.
func (r *run) attempt(fn func(Tx) error) (became outcome, err error) {
	finished := false
	defer func() {
		if finished {
			return
		}
		// A panic of a function that had recovered from having lost is of no account:
		// it is run again. Without a panic the goroutine ends.
		again := r.doomed && recover() != nil
		r.release()
		r.forget()
		if !again {
			r.leave() // and it does not go back to the pool
		}
		became, err = beaten, nil
	}()
	err = fn(Tx{r, r.gen.Load()})
	switch {
	case r.doomed: // it has recovered from having lost
		became, err = beaten, nil
	case err == nil:
		if !r.commit() {
			became = beaten
		} else if len(r.hooks) > 0 {
			r.after, r.hooks = r.hooks, nil
		}
	case errors.Is(err, Retry):
		became = waiting
	}
	r.release()
	if became != waiting {
		r.forget()
	}
	finished = true
	return became, err
}

// repeat runs fn until the transaction is committed or fails. It begins with what
// became of the first attempt.
func (r *run) repeat(fn func(Tx) error, became outcome) error {
	returned := false
	defer func() {
		if !returned {
			r.leave() // for a context that panics; after an attempt that did, it has left
		}
	}()
	err := r.loop(fn, became)
	returned = true
	return err
}

func (r *run) loop(fn func(Tx) error, became outcome) (err error) {
	limit := triesBeforeGate
	if r.reading {
		limit = viewTriesBeforeGate
	}
	for losses := 0; became != over; {
		if became == waiting {
			losses = 0
			err = r.sleep()
		} else {
			losses++
			shared.reruns.Add(1)
			err = r.backOff(losses, limit)
		}
		if err != nil {
			return err
		}
		became, err = r.attempt(fn)
	}
	return err
}

// backOff lets others go first, twice as often after each loss; after too many losses
// it takes the gate, behind which there are none.
func (r *run) backOff(losses, limit int) error {
	if losses >= limit {
		select {
		case gate <- struct{}{}:
			r.gated = true
			return nil
		case <-r.ctx.Done():
			return gaveUp(r.ctx)
		}
	}
	for start, n := time.Now(), 1<<min(losses, 6); n > 0 && time.Since(start) < patience; n-- {
		runtime.Gosched()
	}
	if r.ctx.Err() != nil {
		return gaveUp(r.ctx)
	}
	return nil
}

// sleep waits for a change of what the last attempt has read. Meanwhile the goroutine is
// not inside of the transaction, so that many that wait do not fill the table of who is.
func (r *run) sleep() error {
	r.passGate()
	defer r.forget()
	for i := range r.me.Depth() {
		if k := r.me.Frame(i).Kind; k.Lock() {
			return &NestedError{Wanted: "stm.Retry", Inside: k,
				Advice: "what would end the wait may need the lock; decide outside of it whether to wait"}
		}
	}
	if len(r.reads.entries) == 0 {
		return ErrNothingRead
	}
	r.me.Leave()
	r.inside = false
	err := await(r.ctx, r.reads.entries)
	if r.known {
		r.me = held.Who()
	}
	r.enter()
	return err
}

// call calls all functions, those behind one that panics too.
func call(fns []func()) {
	for i, fn := range fns {
		returned := false
		func() {
			defer func() {
				if !returned {
					call(fns[i+1:])
				}
			}()
			fn()
			returned = true
		}()
	}
}
