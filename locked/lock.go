package locked

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// The word of a lock: three flags, and above them how often it was released.
const (
	taken   = 1 << iota // somebody has it
	waiting             // somebody is in the queue
	woken               // somebody has left the queue and competes: wake nobody else

	flags   = taken | waiting | woken
	release = flags + 1
)

const (
	// patience is how long a waiter competes with newcomers. Who waited longer is
	// handed the lock by its next holder, so that nobody waits for ever.
	patience = time.Millisecond

	// spins is how often a newcomer looks again before it queues: an update takes
	// less time than parking a goroutine.
	spins = 30
)

// lock is a mutual exclusion that can be waited for with a context. Its releases are
// counted, so that a reader that takes nothing can tell whether anybody had it in
// between. The zero value is free. It must not be copied.
type lock struct {
	word atomic.Uint64
	mu   sync.Mutex // guards head, and the flag waiting together with it
	head *waiter    // a ring in the order of service, nil when nobody waits
}

// waiter is one goroutine in the queue of a lock. What is not said otherwise belongs
// to that goroutine while it is not queued, and to who has the mutex while it is.
type waiter struct {
	ready      chan struct{} // told once for each time it leaves the queue
	prev, next *waiter
	queued     bool
	reads      bool // only waits for the end of what is in flight
	woken      bool // has left the queue before, and owns the flag woken until it has the lock or is back
	impatient  bool // has waited longer than patience
	granted    bool // was handed the lock
}

// lock waits for the lock until the context ends. What is free it takes even then.
func (l *lock) lock(ctx context.Context) error {
	if s := l.word.Load(); s&flags == 0 && l.word.CompareAndSwap(s, s|taken) {
		return nil
	}
	return l.lockSlow(ctx)
}

func (l *lock) lockSlow(ctx context.Context) error {
	for range spins {
		if s := l.word.Load(); s&taken == 0 && l.word.CompareAndSwap(s, s|taken) {
			return nil
		}
	}
	if ctx.Err() != nil {
		return over(ctx)
	}
	done := ctx.Done() // a context that panics does so before anybody is queued
	w := &waiter{ready: make(chan struct{}, 1)}
	since := time.Now()
	for l.join(w) {
		if !w.wait(done) {
			l.quit(w)
			return gaveUp(ctx)
		}
		if w.granted || l.compete() {
			return nil
		}
		w.woken = true
		w.impatient = time.Since(since) > patience
	}
	return nil
}

// compete takes the lock for a waiter that was woken, if it is free.
func (l *lock) compete() bool {
	for {
		s := l.word.Load()
		if s&taken != 0 {
			return false
		}
		if l.word.CompareAndSwap(s, (s|taken)&^woken) {
			return true
		}
	}
}

// join puts the waiter into the queue and reports true, unless the lock is free: then
// a reader has nothing to wait for, and anybody else has taken it.
func (l *lock) join(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := uint64(0)
	if w.woken {
		mine = woken
	}
	for {
		s := l.word.Load()
		if s&taken != 0 {
			if l.word.CompareAndSwap(s, (s|waiting)&^mine) {
				l.push(w)
				return true
			}
		} else if w.reads || l.word.CompareAndSwap(s, (s|taken)&^mine) {
			return false
		}
	}
}

// settle waits until who has the lock now has released it. It takes nothing.
func (l *lock) settle(ctx context.Context) error {
	for range spins {
		if l.word.Load()&taken == 0 {
			return nil
		}
	}
	if ctx.Err() != nil {
		return over(ctx)
	}
	done := ctx.Done()
	w := &waiter{ready: make(chan struct{}, 1), reads: true}
	if l.join(w) && !w.wait(done) {
		l.quit(w)
		return gaveUp(ctx)
	}
	return nil
}

// wait waits until the waiter is told that it left the queue, and reports false when the
// context's end came first.
func (w *waiter) wait(done <-chan struct{}) bool {
	select {
	case <-w.ready:
		return true
	case <-done:
		return false
	}
}

// quit undoes a wait that was given up. A waiter that was chosen at that very moment
// passes on what it was given.
func (l *lock) quit(w *waiter) {
	l.mu.Lock()
	if w.queued {
		l.remove(w)
		if l.head == nil {
			l.word.And(^uint64(waiting))
		}
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if w.granted || !w.reads && l.pass() {
		l.unlock()
	}
}

// pass gives the flag woken back. When the lock is free it takes it instead, so that
// its release wakes the next waiter, and reports true.
func (l *lock) pass() bool {
	for {
		s := l.word.Load()
		if s&taken != 0 {
			if l.word.CompareAndSwap(s, s&^woken) {
				return false
			}
		} else if l.word.CompareAndSwap(s, (s|taken)&^woken) {
			return true
		}
	}
}

// unlock releases the lock.
func (l *lock) unlock() {
	if s := l.word.Load(); s&flags != taken || !l.word.CompareAndSwap(s, s-taken+release) {
		l.unlockSlow()
	}
}

func (l *lock) unlockSlow() {
	for {
		s := l.word.Load()
		if s&waiting == 0 || s&woken != 0 {
			if l.word.CompareAndSwap(s, s-taken+release) {
				return
			}
			continue
		}
		l.mu.Lock()
		readers, next := l.choose()
		for !l.word.CompareAndSwap(s, l.after(s, next)) {
			s = l.word.Load() // only flags that newcomers set change here
		}
		l.mu.Unlock()
		for readers != nil {
			w := readers
			readers = w.next
			w.ready <- struct{}{}
		}
		if next != nil {
			next.ready <- struct{}{}
		}
		return
	}
}

// choose takes the next waiter out of the queue and, listed by their field next, the
// readers before and behind it.
func (l *lock) choose() (readers, next *waiter) {
	for l.head != nil && (l.head.reads || next == nil) {
		w := l.head
		l.remove(w)
		if w.reads {
			w.next, readers = readers, w
		} else {
			next = w
		}
	}
	if next != nil {
		next.granted = next.impatient
	}
	return readers, next
}

// after is the word once the lock is released to the waiter, or to nobody.
func (l *lock) after(s uint64, next *waiter) uint64 {
	s += release
	if l.head == nil {
		s &^= waiting
	}
	switch {
	case next == nil:
		return s &^ taken
	case next.granted:
		return s
	}
	return s&^taken | woken
}

// push puts readers, and waiters that were in the queue before, in front of it.
func (l *lock) push(w *waiter) {
	w.queued = true
	if l.head == nil {
		w.prev, w.next, l.head = w, w, w
		return
	}
	w.prev, w.next = l.head.prev, l.head
	w.prev.next, w.next.prev = w, w
	if w.reads || w.woken {
		l.head = w
	}
}

func (l *lock) remove(w *waiter) {
	w.queued = false
	if w.next == w {
		l.head = nil
	} else if l.head == w {
		l.head = w.next
	}
	w.prev.next, w.next.prev = w.next, w.prev
	w.prev, w.next = nil, nil
}

// taken reports whether somebody has the lock.
func (l *lock) taken() bool { return l.word.Load()&taken != 0 }
