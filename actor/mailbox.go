package actor

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// Sizes of a mailbox, in messages that wait for their turn.
const (
	// DefaultMailbox is enough to keep an owner busy through the scheduler's pauses,
	// and small enough that a slow owner is felt by those who send.
	DefaultMailbox = 128

	// MaxMailbox bounds Options.Mailbox: a longer queue only hides that the owner
	// cannot keep up. The space is taken at once, 24 bytes a message.
	MaxMailbox = 1 << 20
)

// entry is one message: a tell, or a call that somebody waits for.
type entry[S any] struct {
	tell func(S) error
	call call[S]
}

// call is a message with an answer.
type call[S any] interface {
	begin() bool         // false when the caller has given up
	run(S)               // to be followed by end
	end(err error) error // answers; returns what could not be told to anybody
}

// patience is how a message is sent that finds no room.
type patience struct {
	wait   bool          // otherwise ErrFull
	answer chan struct{} // where the sender waits for the answer, too; nil for a tell
	from   *node         // the owner in whose message this is, if any
	to     *node         // the owner of the mailbox
}

// sender waits for room.
type sender[S any] struct {
	entry[S]
	patience
	ready      chan struct{} // gets one value when it is refused or, for a tell, let in
	linked     bool
	refused    bool // the owner is closing
	prev, next *sender[S]
}

// goOn ends the wait. The edge is taken back first: see node.
func (s *sender[S]) goOn() {
	if s.from != nil {
		s.from.proceed()
	}
	s.ready <- struct{}{}
}

// mailbox is a bounded queue of messages: many put, the owner takes.
//
// Messages are put under the mutex, and tail then tells the owner how far it may go. It
// takes them without the mutex, and head tells how far it is; a place is written again
// only by who has seen head behind it.
type mailbox[S any] struct {
	ring  []entry[S] // a power of two long
	limit uint64     // how many may wait
	wake  chan struct{}

	_     [64]byte      // what the owner writes and what senders write are on lines of their own
	head  atomic.Uint64 // the next to run; only the owner writes it
	upto  uint64        // the owner's: tail as it has last seen it
	found finding       // the owner's: what next found last
	_     [40]byte

	tail        atomic.Uint64 // where the next goes; written under the mutex
	mu          sync.Mutex    // guards the rest, and the fields of senders
	resting     bool          // the owner waits for wake, or is about to
	closed      bool
	first, last *sender[S]
	waiting     atomic.Int64 // length of that list; read by the owner without the mutex
}

// finding is what the owner has found, and so has to do.
type finding int

const (
	busy  finding = iota // look for messages
	empty                // wait for one
	ended                // nothing more
)

func (m *mailbox[S]) init(limit int) {
	if limit == 0 {
		limit = DefaultMailbox
	}
	m.limit = uint64(limit)
	m.ring = make([]entry[S], 1<<bits.Len(uint(limit-1)))
	m.wake = make(chan struct{}, 1)
}

// next takes the next message, and lets in a sender that waited for its room. When
// there is none, found tells why.
func (m *mailbox[S]) next(e *entry[S]) bool {
	h := m.head.Load()
	if h == m.upto && m.look(h) != busy {
		return false
	}
	at := &m.ring[h&uint64(len(m.ring)-1)]
	*e = *at
	*at = entry[S]{}
	m.head.Store(h + 1)
	// A sender first adds itself to waiting and then looks at head again; this is the
	// other way around, so that one of the two sees the other.
	if m.waiting.Load() > 0 {
		m.mu.Lock()
		m.admitLocked()
		m.mu.Unlock()
	}
	return true
}

// look sees whether there are messages from head on.
func (m *mailbox[S]) look(head uint64) finding {
	if m.upto = m.tail.Load(); m.upto != head {
		return busy
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch m.upto = m.tail.Load(); {
	case m.upto != head:
	case m.closed:
		m.found = ended
	default:
		m.found, m.resting = empty, true
	}
	return m.found
}

// rest waits for a message, if next has found none.
func (m *mailbox[S]) rest() {
	if m.found == empty {
		m.found = busy
		<-m.wake
	}
}

// put queues a message. When there is no room, it returns a sender that waits for it.
func (m *mailbox[S]) put(e entry[S], p patience) (s *sender[S], err error) {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return nil, p.to.named(ErrClosed)
	}
	if m.first == nil && m.tail.Load()-m.head.Load() < m.limit {
		m.pushLocked(e)
		m.unlockAndWake()
		return nil, nil
	}
	if !p.wait {
		m.mu.Unlock()
		return nil, p.to.named(ErrFull)
	}
	s = &sender[S]{entry: e, patience: p, ready: p.answer}
	if s.ready == nil {
		s.ready = make(chan struct{}, 1)
	}
	m.linkLocked(s)
	m.admitLocked()
	if s.linked && p.from != nil && p.answer == nil {
		// The owner has not gone on to another message since, and cannot before the
		// mutex is free; then it takes the edge back when it makes room.
		if err = p.from.await(p.to, nil, "to wait for room in the mailbox of"); err != nil {
			m.unlinkLocked(s)
			s = nil
		}
	}
	m.unlockAndWake()
	return s, err
}

func (m *mailbox[S]) pushLocked(e entry[S]) {
	tail := m.tail.Load()
	m.ring[tail&uint64(len(m.ring)-1)] = e
	m.tail.Store(tail + 1)
}

// unlockAndWake wakes an owner that rests although there is something for it.
func (m *mailbox[S]) unlockAndWake() {
	wake := m.resting
	m.resting = false
	m.mu.Unlock()
	if wake {
		m.wake <- struct{}{}
	}
}

// admitLocked lets senders in, first come first served, while there is room.
func (m *mailbox[S]) admitLocked() {
	for m.first != nil && m.tail.Load()-m.head.Load() < m.limit {
		s := m.first
		m.unlinkLocked(s)
		m.pushLocked(s.entry)
		if s.answer == nil {
			s.goOn()
		}
	}
}

// shut refuses new messages and those that wait for room.
func (m *mailbox[S]) shut() {
	m.mu.Lock()
	m.closed = true
	for m.first != nil {
		s := m.first
		m.unlinkLocked(s)
		s.refused = true
		s.goOn()
	}
	m.unlockAndWake()
}

// withdraw takes a sender back and reports whether it still waited for room. If not,
// its message is in the queue, or refused.
func (m *mailbox[S]) withdraw(s *sender[S]) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !s.linked {
		return false
	}
	m.unlinkLocked(s)
	return true
}

func (m *mailbox[S]) linkLocked(s *sender[S]) {
	s.linked, s.prev = true, m.last
	if m.last != nil {
		m.last.next = s
	} else {
		m.first = s
	}
	m.last = s
	m.waiting.Add(1)
}

func (m *mailbox[S]) unlinkLocked(s *sender[S]) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		m.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		m.last = s.prev
	}
	s.linked, s.prev, s.next = false, nil, nil
	m.waiting.Add(-1)
}
