package feed_test

import (
	"fmt"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A stage is how far a follower has got with a question or with reading everything.
type stage uint8

const (
	quiet    stage = iota
	asking         // the store has not yet read its head
	waiting        // the answer is in the line
	answered       // the answer is here, and was not looked at
)

// A purpose is what a question is for.
type purpose uint8

const (
	toCheck purpose = iota
	toBegin         // the head before everything is read
	toEnd           // the head after
)

// A world is a store, the line to one follower, and the follower. Its methods are the steps that can happen, one at a
// time, in any order that can says.
type world struct {
	cur    *state
	ever   []*state
	names  uint64
	moves  int // of the store
	line   []item
	errors error

	cursor *feed.Cursor // replaced, never changed, so that worlds can share it
	data   entries

	stage   stage
	purpose purpose
	asked   feed.Position
	movesAt int // moves of the store when it was asked
	again   bool
	head    *state // the answer

	scanning bool
	scanned  int
	read     entries
	begin    *state   // head at the beginning of the reading
	buffer   []*state // what arrived since it was asked for

	// A change that nobody heard of, and that is undone in the store, between the two heads of one reading leaves no trace
	// in them, though it was read in part. What sets a store back is a failover or a restored backup, which ends the
	// subscription, and with it the reading; so the follower is told when both happen in one.
	lost, wentBack bool

	counts *counts
}

// counts tell that a test came by what it is about.
type counts struct {
	worlds, next, duplicate, reload, current, apart, ahead, adopted, failed, resets, missed int
}

func newWorld(c *counts) *world {
	first := &state{}
	return &world{cur: first, ever: []*state{first}, cursor: new(feed.Cursor), counts: c}
}

// fail notes the first error.
func (w *world) fail(format string, args ...any) {
	if w.errors == nil {
		w.errors = fmt.Errorf(format, args...)
	}
}

// ask asks for the head.
func (w *world) ask(p purpose) {
	w.stage, w.purpose, w.asked, w.movesAt, w.again = asking, p, w.cursor.At(), w.moves, false
	switch p {
	case toBegin:
		w.buffer, w.scanning, w.lost, w.wentBack = nil, false, false, false
	case toEnd:
		w.asked = w.begin.at // from there on the changes are in the buffer
	}
}

// answer has the store read its head.
func (w *world) answer() {
	w.stage = waiting
	w.send(item{answer: w.cur})
}

// deliver hands the first item of the line to the follower.
func (w *world) deliver() {
	i := w.take()
	if i.answer != nil {
		w.stage, w.head = answered, i.answer
		return
	}
	reading := w.scanning || w.stage != quiet && w.purpose != toCheck
	if reading {
		w.buffer = append(w.buffer[:len(w.buffer):len(w.buffer)], i.change)
	}
	switch w.cursor.Judge(i.change.change()) {
	case feed.Next:
		w.counts.next++
		c := *w.cursor
		c.Advance(i.change.change())
		w.cursor, w.data = &c, i.change.op.do(w.data, i.change.at.Nonce)
	case feed.Duplicate:
		w.counts.duplicate++
	default:
		w.counts.reload++
		if w.stage == quiet && !reading {
			w.ask(toCheck)
		} else if w.stage != asking {
			w.again = true // the head may have been read before this change was made
		}
	}
}

// conclude looks at the answer.
func (w *world) conclude() {
	w.stage = quiet
	switch w.purpose {
	case toCheck:
		w.concludeCheck()
	case toBegin:
		w.begin, w.scanning, w.scanned, w.read = w.head, true, 0, entries{}
		if !w.head.at.Exists() { // there is nothing to read
			c := new(feed.Cursor)
			c.Replace(w.head.at)
			w.adopt(c, entries{}, w.head)
		}
	case toEnd:
		w.concludeReading()
	}
}

func (w *world) concludeCheck() {
	again := w.again
	switch w.cursor.Meet(w.asked, w.head.at) {
	case feed.Current:
		w.counts.current++
		w.checkCurrent()
		if again {
			w.ask(toCheck)
		}
	case feed.Ahead:
		w.counts.ahead++
		w.ask(toCheck)
	default:
		w.counts.apart++
		w.ask(toBegin)
	}
}

// checkCurrent holds what a follower concludes from a head against the truth.
func (w *world) checkCurrent() {
	mine := w.held()
	if mine == nil {
		return
	}
	if !w.head.within(mine) && w.head.at != mine.at {
		w.fail("at %v, head %v is said to be held", mine.at, w.head.at)
	}
	if w.moves == w.movesAt && w.cursor.At() == w.asked && mine.at != w.cur.at {
		w.fail("nothing happened since the head was asked for at %v; it is said to be current, and the store is at %v", mine.at, w.cur.at)
	}
}

// scan reads the next key of the store as it is at this moment.
func (w *world) scan() {
	w.read[w.scanned] = w.cur.data[w.scanned]
	if w.scanned++; w.scanned == keys {
		w.scanning = false
		w.ask(toEnd)
	}
}

// concludeReading puts the changes that arrived meanwhile on what was read, and takes it if that leads to the head.
func (w *world) concludeReading() {
	c, data := new(feed.Cursor), w.read
	c.Replace(w.begin.at)
	ok := !w.lost || !w.wentBack
	for _, s := range w.buffer {
		if s.at.Generation == w.begin.at.Generation && s.at.Number <= w.begin.at.Number {
			continue // from before the reading
		}
		switch c.Judge(s.change()) {
		case feed.Next:
			c.Advance(s.change())
			data = s.op.do(data, s.at.Nonce)
		case feed.Reload:
			ok = false
		}
	}
	if !ok || c.Meet(w.asked, w.head.at) != feed.Current {
		w.counts.failed++
		w.ask(toBegin)
		return
	}
	w.adopt(c, data, w.head)
}

// adopt takes what was read as the copy, and checks what subscribers are told about it.
func (w *world) adopt(c *feed.Cursor, data entries, head *state) {
	w.counts.adopted++
	before := w.held()
	reset := w.cursor.IsReset(c.At(), head.cleared)
	w.cursor, w.data, w.scanning = c, data, false
	after := w.held()
	if before == nil || after == nil || !before.at.Exists() {
		return
	}
	cleared := false // since what was held before
	for s := after; s != nil && s != before; s = s.from {
		cleared = cleared || s.op.clear
	}
	truth := !before.within(after) || !after.at.Exists() || after.at.Generation != before.at.Generation || cleared
	if reset && !truth {
		w.fail("from %v to %v only changes were missed, and subscribers hear of a reset", before.at, after.at)
	}
	if reset {
		w.counts.resets++
	}
	// That the store went back and then on, past the number that was held, cannot be told from having missed changes. All
	// else must be told, and a clear that the follower saw on its way to the head was told then.
	if truth && !reset && after.at.Generation == before.at.Generation && after.at.Number <= before.at.Number {
		w.fail("from %v to %v subscribers must hear of a reset", before.at, after.at)
	}
	if truth && !reset && before.within(after) && head == after {
		w.fail("a clear between %v and %v was not told", before.at, after.at)
	}
	if truth && !reset {
		w.counts.missed++
	}
}

// cut ends the subscription and begins another: what was in the line is lost, what was read so far is worth nothing, and
// the heads are compared.
func (w *world) cut() {
	w.line, w.scanning = nil, false
	w.ask(toCheck)
}

// held is the state whose position the follower has, and the place where the copy is checked: it must be exactly that
// state.
func (w *world) held() *state {
	at := w.cursor.At()
	if !at.Exists() {
		if w.data != (entries{}) {
			w.fail("the copy of nothing holds %v", w.data)
		}
		return w.ever[0]
	}
	for _, s := range w.ever {
		if s.at == at {
			if s.data != w.data {
				w.fail("the copy at %v is %v, and the store was %v then", at, w.data, s.data)
			}
			return s
		}
	}
	w.fail("the store was never at %v", at)
	return nil
}

// settle lets everything arrive and asks twice, as two heartbeats do, after which the copy must be the store.
func (w *world) settle() {
	for beats, steps := 0, 0; w.errors == nil; steps++ {
		switch {
		case steps > 200:
			w.fail("nothing happens any more, and the follower does not come to rest")
		case len(w.line) > 0:
			w.deliver()
		case w.stage == asking:
			w.answer()
		case w.stage == answered:
			w.conclude()
		case w.scanning:
			w.scan()
		case beats < 2:
			beats++
			w.ask(toCheck)
		default:
			if w.held(); w.cursor.At() != w.cur.at || w.data != w.cur.data {
				w.fail("after quiet and two heads the copy is %v at %v, the store %v at %v", w.data, w.cursor.At(), w.cur.data, w.cur.at)
			}
			return
		}
	}
}
