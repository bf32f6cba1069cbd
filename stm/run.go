package stm

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/latchkey-go/latchkey/internal/held"
)

// run is one transaction, over all its attempts. Runs are pooled.
type run struct {
	gen     atomic.Uint64 // changes with every attempt: a Tx of an older one is void
	ctx     context.Context
	me      held.Me // the goroutine, inside of the transaction
	inside  bool    // me has not left yet
	known   bool    // the goroutine is told from others
	reading bool    // it must not write
	doomed  bool    // what it has read is not valid any more: it will not commit
	gated   bool    // it has the gate, and keeps what it reads
	big     bool    // it is counted in bigs
	clock   uint64  // of a big one: its reads are of the moment when the clock was that
	work    int     // of a big one: how many reads it has checked again

	reads  log
	writes log
	undo   []undo // of writes, while a savepoint is open
	saves  int    // open savepoints
	mark   int    // writes from here on are newer than the innermost savepoint
	hooks  []func()
	after  []func() // the hooks of the attempt that has committed
}

// undo restores a write that is older than a savepoint.
type undo struct {
	place int
	value unsafe.Pointer
}

// savepoint is what to go back to.
type savepoint struct {
	writes, undo, hooks, mark int
	reading                   bool
}

var pool = sync.Pool{New: func() any {
	r := new(run)
	r.reads.reset()
	r.writes.reset()
	return r
}}

// lost is the panic that ends an attempt in the middle. It does not go further than
// the attempt; and a function that recovers from it does not commit.
type lost struct{}

// Error is what a function sees that recovers from it.
func (lost) Error() string {
	return "stm: another transaction has changed what this run has read; it is run again, and must not recover from this"
}

// conflict ends an attempt that has lost.
func (r *run) conflict() {
	r.doomed = true
	panic(lost{})
}

// get returns what the transaction sees of a variable.
func (r *run) get(c *core) unsafe.Pointer {
	if len(r.writes.entries) > 0 {
		if i := r.writes.find(c); i >= 0 {
			return r.writes.entries[i].value
		}
	}
	if r.big || r.gated || len(r.reads.entries) == small {
		return r.getFar(c)
	}
	p := c.settled()
	for i := range r.reads.entries {
		e := &r.reads.entries[i]
		if e.core == c {
			return e.value
		}
		if e.core.settled() != e.value {
			r.conflict()
		}
	}
	r.own()
	if r.doomed {
		r.conflict()
	}
	r.reads.entries = append(r.reads.entries, entry{c, p})
	return p
}

// getFar is get for a transaction that is big, or is becoming so, or is behind the
// gate.
func (r *run) getFar(c *core) unsafe.Pointer {
	if i := r.reads.find(c); i >= 0 {
		return r.reads.entries[i].value
	}
	r.own()
	if r.doomed {
		r.conflict()
	}
	var p unsafe.Pointer
	if r.gated {
		c.keep(r.word())
		p = c.load()
	} else {
		if !r.big {
			r.grow()
		}
		p = r.getBig(c)
	}
	r.reads.add(c, p)
	return p
}

// check makes sure that all that was read before is still so.
func (r *run) check() {
	for i := range r.reads.entries {
		if e := &r.reads.entries[i]; e.core.settled() != e.value {
			r.conflict()
		}
	}
}

// grow makes the transaction one that commits look out for. Those that did not see it
// have their variables locked already, and are waited for.
func (r *run) grow() {
	shared.bigs.Add(1)
	r.big = true
	r.extend()
}

// extend makes what a big transaction has read be of this moment.
func (r *run) extend() {
	r.work += len(r.reads.entries)
	if r.work > 16*len(r.reads.entries) {
		r.conflict() // to go on like this takes the square of the number of variables
	}
	now := shared.clock.Load()
	r.check()
	r.clock = now
}

// getBig reads a variable for a big transaction. If no stamp tells of a later commit,
// the value was there at the moment that the other reads are of.
func (r *run) getBig(c *core) unsafe.Pointer {
	for {
		p := c.settled()
		if c.stamp.Load() <= r.clock {
			return p
		}
		r.extend()
	}
}

// pending returns the place of a variable that was set, -1 if it was not, and the
// value if that may be overwritten.
func (r *run) pending(c *core) (int, unsafe.Pointer) {
	if r.reading {
		panic("stm: Set or Add in a View, which only reads; use Atomically")
	}
	r.own()
	i := r.writes.find(c)
	if i >= 0 && (r.saves == 0 || i >= r.mark) {
		return i, r.writes.entries[i].value
	}
	return i, nil
}

// set remembers what is to be published. The place is that of pending.
func (r *run) set(c *core, place int, p unsafe.Pointer) {
	if place < 0 {
		r.writes.add(c, p)
		return
	}
	e := &r.writes.entries[place]
	r.undo = append(r.undo, undo{place, e.value})
	e.value = p
}

// own panics in a goroutine that is not the transaction's. It is asked whenever something
// is set, and once for each variable that is read, which is seldom enough to be cheap.
func (r *run) own() {
	if r.known && !r.me.Here() {
		panic("stm: a transaction was used by another goroutine than its own")
	}
}

func (r *run) save(reading bool) savepoint {
	s := savepoint{len(r.writes.entries), len(r.undo), len(r.hooks), r.mark, r.reading}
	r.saves++
	r.mark = s.writes
	r.reading = r.reading || reading
	return s
}

// restore closes a savepoint, and takes back what was set since if it says so. What
// was read stays: it decided that this was to be taken back.
func (r *run) restore(s savepoint, back bool) {
	r.saves--
	r.mark, r.reading = s.mark, s.reading
	if back {
		for i := len(r.undo) - 1; i >= s.undo; i-- {
			r.writes.entries[r.undo[i].place].value = r.undo[i].value
		}
		r.writes.truncate(s.writes)
		clear(r.hooks[s.hooks:])
		r.hooks = r.hooks[:s.hooks]
	}
	if back || r.saves == 0 {
		n := s.undo
		if r.saves == 0 {
			n = 0
		}
		clear(r.undo[n:])
		r.undo = r.undo[:n]
	}
}

// release gives back what an attempt has taken from others, and makes its Tx void.
func (r *run) release() {
	r.gen.Add(1)
	if r.gated {
		for i := range r.reads.entries {
			r.reads.entries[i].core.lock.CompareAndSwap(r.word(), 0) // a commit has given some back
		}
	}
	if r.big {
		shared.bigs.Add(-1)
		r.big = false
	}
}

// forget prepares for the next attempt, or for the pool.
func (r *run) forget() {
	r.reads.reset()
	r.writes.reset()
	clear(r.undo)
	clear(r.hooks)
	r.undo, r.hooks = r.undo[:0], r.hooks[:0]
	if cap(r.undo)+cap(r.hooks) > pooled {
		r.undo, r.hooks = nil, nil
	}
	r.saves, r.mark, r.work, r.doomed = 0, 0, 0, false
}

// passGate lets the next one through the gate.
func (r *run) passGate() {
	if r.gated {
		r.gated = false
		<-gate
	}
}

// enter notes that the goroutine is inside of the transaction.
func (r *run) enter() {
	r.me = r.me.Enter(held.Frame{Kind: held.Transaction, Of: unsafe.Pointer(r)})
	r.known, r.inside = r.me.Depth() > 0, true
}

// leave ends the transaction, however it went.
func (r *run) leave() {
	if r.inside {
		r.inside = false
		r.passGate()
		r.me.Leave()
		r.ctx = nil
	}
}
