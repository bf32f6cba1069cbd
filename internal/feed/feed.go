// Package feed decides what a follower does with a numbered change: apply it, ignore it, or read everything again.
//
// A feed is a sequence of changes that a store makes and broadcasts. Each change has a [Position]: the generation of the
// data (a new one begins whenever the store finds nothing there), a number that rises by one within a generation, and a
// nonce, which is a random name for the change. The nonce is what tells two changes with the same generation and number
// apart: a store that was set back to an older state gives the numbers out again, for other contents.
//
// A [Cursor] is the position of one follower, and pure: no clock, no lock, no I/O. Whoever owns it serialises its use.
// Two domains stand on it, the replicated map and the cache, and neither decides any of this for itself.
//
// The idea of a generation beside a revision is that of a repair in Pulse (goadesign/pulse, pull request 92); the chain
// of nonces was added because a generation alone does not see a rollback to the same number.
package feed

// A Position names one state of the data. Its zero value is "nothing there": never written, expired, or removed.
type Position struct {
	Generation uint64 // random, never zero for data that exists
	Number     uint64 // 1 for the first change of a generation, then one more for each
	Nonce      uint64 // random name of the change that led here, never zero
}

// Exists tells whether there is any data at p.
func (p Position) Exists() bool { return p.Generation != 0 }

// A Change is the place of one broadcast change in the feed: where it leads, and the nonce of the change before it.
// The first change of a generation has zero as the previous nonce.
type Change struct {
	Position
	Prev uint64
}

// A Verdict is what a follower does.
type Verdict uint8

const (
	// Next: the change follows what is held. Apply it and call [Cursor.Advance].
	Next Verdict = iota + 1
	// Duplicate: the change is held already. Ignore it.
	Duplicate
	// Reload: it cannot be told from here what is missing. Ask the store for its head, and read everything again
	// unless [Cursor.Meet] says that the head is held.
	Reload
)

// String returns the verdict's name for logs and tests.
func (v Verdict) String() string {
	switch v {
	case Next:
		return "next"
	case Duplicate:
		return "duplicate"
	case Reload:
		return "reload"
	}
	return "no verdict"
}

// Remembered is how many of the latest nonces a cursor keeps. It bounds how far a head may lie behind a follower that
// went on while the head was on its way; at a million changes a second it is a millisecond, and a follower that
// outruns it asks again.
const Remembered = 1024

// A Cursor is where one follower stands. The zero Cursor holds nothing, which is right for data that does not exist.
type Cursor struct {
	at     Position
	oldest uint64             // the lowest number whose nonce is in recent
	recent [Remembered]uint64 // nonce of number n at n % Remembered, for oldest <= n <= at.Number
}

// At returns the position that the follower holds.
func (c *Cursor) At() Position { return c.at }

// Judge says what to do with a change, and changes nothing.
//
// A change of a generation that is not held is never adopted, not even by a follower that holds nothing: it may be a
// late message of a life that is over.
func (c *Cursor) Judge(ch Change) Verdict {
	if !ch.Exists() || ch.Generation != c.at.Generation || ch.Nonce == 0 {
		return Reload
	}
	if ch.Number != 0 && ch.Number-1 == c.at.Number && ch.Prev == c.at.Nonce { // at the last number nothing follows
		return Next
	}
	if c.passed(ch.Position) == yes {
		return Duplicate
	}
	return Reload
}

// Advance moves the cursor to a change that was judged [Next] and has been applied.
func (c *Cursor) Advance(ch Change) {
	c.at = ch.Position
	c.recent[ch.Number%Remembered] = ch.Nonce
	if ch.Number-c.oldest >= Remembered {
		c.oldest = ch.Number - Remembered + 1
	}
}

// A Meeting is how a cursor stands to a head of the store.
type Meeting uint8

const (
	// Current: everything up to the head is held.
	Current Meeting = iota + 1
	// Apart: the head is not among what was followed. Read everything again.
	Apart
	// Ahead: the cursor went on from the head further than it remembers. Ask for the head again.
	Ahead
)

// Meet compares the cursor with a head that the store gave in the feed's order, which means that every change
// broadcast before the head was read has been handed to the follower. The cursor may have gone on since; asked is where
// it stood, by [Cursor.At], before the store was asked.
//
// A head that the follower passed before it asked is not current: the store went back to it. One that it passed later
// is, as far as can be told from here; if the store did go back, that shows when it is asked again.
func (c *Cursor) Meet(asked, head Position) Meeting {
	if head == c.at {
		return Current
	}
	if head.Generation == asked.Generation && head.Number < asked.Number && c.passed(asked) == yes {
		return Apart
	}
	switch c.passed(head) {
	case yes:
		return Current
	case unknown:
		return Ahead
	}
	return Apart
}

// Covers tells whether what p names is part of what is held, as far as the cursor can know: a position of the same
// generation that is older than the remembered nonces is taken to be covered. It serves those who carry a position
// from one process to another and want to read what was written there. The zero position names no change: only a cursor
// that holds nothing covers it.
func (c *Cursor) Covers(p Position) bool {
	return p == c.at || c.passed(p) != no
}

// Remembers tells whether what p names is surely part of what is held: the cursor stands there, or came through it
// and remembers so.
func (c *Cursor) Remembers(p Position) bool {
	return p == c.at || c.passed(p) == yes
}

type answer uint8

const (
	no answer = iota
	yes
	unknown
)

// passed tells whether the follower went through p on its way to where it stands.
func (c *Cursor) passed(p Position) answer {
	if !p.Exists() || p.Generation != c.at.Generation || p.Number > c.at.Number {
		return no
	}
	if p.Number < c.oldest {
		return unknown
	}
	if c.recent[p.Number%Remembered] != p.Nonce {
		return no
	}
	return yes
}

// Replace puts the cursor at the position of data that was read as a whole. What was known of the way there is
// forgotten.
func (c *Cursor) Replace(p Position) {
	*c = Cursor{at: p, oldest: p.Number}
	c.recent[p.Number%Remembered] = p.Nonce
}

// IsReset tells whether going from one whole state to another must be told as a reset, and not merely as changes that
// were missed: the data began a new life or is gone, went back, or was cleared in between. cleared is the number of
// the last change of to's generation that cleared the data, zero when none did.
func (c *Cursor) IsReset(to Position, cleared uint64) bool {
	if !c.at.Exists() {
		return false // nothing was held, so nothing is taken away
	}
	if to.Generation != c.at.Generation || to.Number < c.at.Number {
		return true
	}
	if to.Number == c.at.Number && to.Nonce != c.at.Nonce {
		return true
	}
	return cleared > c.at.Number
}
