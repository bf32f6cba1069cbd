package inproc

import (
	"sync"
	"sync/atomic"
)

// Rows that others are set against.
const (
	noSharing  = "no sharing"
	mutexValue = "sync.Mutex"
	rwMap      = "map + RWMutex"
)

func label(read, write, mix, increment string) map[Op]string {
	m := make(map[Op]string)
	for op, l := range []string{read, write, mix, increment} {
		if l != "" {
			m[Op(op)] = l
		}
	}
	return m
}

func everywhere(name string) map[Op]string { return label(name, name, name, name) }

func standard() []Subject {
	const closure = "sync.Mutex, closure"
	return []Subject{
		{Labels: everywhere(noSharing), Alone: true, New: newAlone},
		{Labels: label("atomic.Pointer", "atomic.Pointer CAS", "atomic.Pointer CAS", "atomic.Int64"), New: newAtomic},
		{Labels: everywhere(mutexValue), New: newMutex},
		{Labels: label("", closure, "", closure), New: newClosure},
		{Labels: everywhere("sync.RWMutex"), New: newRWMutex},
		{Labels: everywhere("channel actor, ask"), New: func(int) (Thing, error) { return newChannel(false) }},
		{Labels: label("", "channel actor, tell", "", "channel actor, tell"), New: func(int) (Thing, error) { return newChannel(true) }},
	}
}

func newAlone(int) (Thing, error) {
	x := &struct {
		_ apart
		r *Record
		n int64
		_ apart
	}{r: begin()}
	return Thing{
		Worker: func(int) Worker {
			return Worker{
				Read:  func() Record { return *x.r },
				Write: func() { x.r = next(x.r) },
				Add:   func() { x.n++ },
			}
		},
		State: func(int) (Record, int64) { return *x.r, x.n },
	}, nil
}

func newAtomic(int) (Thing, error) {
	var x struct {
		_ apart
		r atomic.Pointer[Record]
		n atomic.Int64
		_ apart
	}
	x.r.Store(begin())
	return Thing{
		Worker: func(int) Worker {
			return Worker{
				Read: func() Record { return *x.r.Load() },
				Write: func() {
					old := x.r.Load()
					for !x.r.CompareAndSwap(old, next(old)) {
						old = x.r.Load()
					}
				},
				Add: func() { x.n.Add(1) },
			}
		},
		State: func(int) (Record, int64) { return *x.r.Load(), x.n.Load() },
	}, nil
}

// guarded is a value and a number behind a lock.
type guarded[L any] struct {
	_  apart
	mu L
	r  *Record
	n  int64
	_  apart
}

func newMutex(int) (Thing, error) {
	x := &guarded[sync.Mutex]{r: begin()}
	return Thing{
		Worker: func(int) Worker {
			return Worker{
				Read: func() Record {
					x.mu.Lock()
					r := *x.r
					x.mu.Unlock()
					return r
				},
				Write: func() {
					x.mu.Lock()
					x.r = next(x.r)
					x.mu.Unlock()
				},
				Add: func() {
					x.mu.Lock()
					x.n++
					x.mu.Unlock()
				},
			}
		},
		State: func(int) (Record, int64) { return *x.r, x.n },
	}, nil
}

// newClosure is a mutex as our own types use theirs: a function of the caller runs
// under the lock, which a panic of it releases.
func newClosure(int) (Thing, error) {
	x := &guarded[sync.Mutex]{r: begin()}
	update := func(fn func()) {
		x.mu.Lock()
		defer x.mu.Unlock()
		fn()
	}
	write := func() { x.r = next(x.r) }
	add := func() { x.n++ }
	return Thing{
		Worker: func(int) Worker {
			return Worker{Write: func() { update(write) }, Add: func() { update(add) }}
		},
		State: func(int) (Record, int64) { return *x.r, x.n },
	}, nil
}

func newRWMutex(int) (Thing, error) {
	x := &guarded[sync.RWMutex]{r: begin()}
	return Thing{
		Worker: func(int) Worker {
			return Worker{
				Read: func() Record {
					x.mu.RLock()
					r := *x.r
					x.mu.RUnlock()
					return r
				},
				Write: func() {
					x.mu.Lock()
					x.r = next(x.r)
					x.mu.Unlock()
				},
				Add: func() {
					x.mu.Lock()
					x.n++
					x.mu.Unlock()
				},
			}
		},
		State: func(int) (Record, int64) { return *x.r, x.n },
	}, nil
}

// mailbox is how many messages wait for a channel's actor.
const mailbox = 128

// message asks the owner for something. Without a reply it is told.
type message struct {
	op    Op
	reply chan Record
}

// newChannel is the actor that people write by hand: a goroutine that owns the value
// and reads what to do from a channel.
func newChannel(tell bool) (Thing, error) {
	inbox := make(chan message, mailbox)
	ended := make(chan struct{})
	var n int64
	go func() {
		defer close(ended)
		r := begin()
		for m := range inbox {
			switch m.op {
			case Write:
				r = next(r)
			case Increment:
				n++
			}
			if m.reply != nil {
				m.reply <- *r
			}
		}
	}()
	worker := func(int) Worker {
		reply := make(chan Record, 1)
		ask := func(op Op) Record {
			inbox <- message{op, reply}
			return <-reply
		}
		w := Worker{Read: func() Record { return ask(Read) }, Write: func() { ask(Write) }, Add: func() { ask(Increment) }}
		if tell {
			w.Write = func() { inbox <- message{op: Write} }
			w.Add = func() { inbox <- message{op: Increment} }
			w.Flush = func() { ask(Read) }
		}
		return w
	}
	return Thing{
		Worker: worker,
		State:  func(int) (Record, int64) { return worker(0).Read(), n }, // the answer comes after all that was told
		Close:  func() error { close(inbox); <-ended; return nil },
	}, nil
}
