package feed_test

import (
	"slices"

	"github.com/latchkey-go/latchkey/internal/feed"
)

const keys = 3

// entries are the data of the simulated store: for each key the nonce of the change that wrote it, 0 when absent. So a
// mixture of two states can be told from either.
type entries [keys]uint64

// An operation is what a change does to entries.
type operation struct {
	key           int
	remove, clear bool
}

func (o operation) do(e entries, nonce uint64) entries {
	switch {
	case o.clear:
		return entries{}
	case o.remove:
		e[o.key] = 0
	default:
		e[o.key] = nonce
	}
	return e
}

// A state is one state that the store has been in. States are never changed, so a world can be copied by copying
// pointers.
type state struct {
	at      feed.Position
	from    *state // the state before it, of a life before this one too; nil for the first
	prev    uint64
	op      operation
	data    entries
	cleared uint64
}

func (s *state) change() feed.Change { return feed.Change{Position: s.at, Prev: s.prev} }

// within tells whether everything that made s is part of t.
func (s *state) within(t *state) bool {
	for ; t != nil; t = t.from {
		if s == t {
			return true
		}
	}
	return false
}

// write makes the next state and broadcasts it.
func (w *world) write(op operation) {
	w.names++
	next := &state{at: w.cur.at, from: w.cur, prev: w.cur.at.Nonce, op: op, cleared: w.cur.cleared}
	if !next.at.Exists() {
		w.names++
		next.at.Generation = w.names
	}
	next.at.Number++
	next.at.Nonce = w.names + 1
	w.names++
	if op.clear {
		next.cleared = next.at.Number
	}
	next.data = op.do(w.cur.data, next.at.Nonce)
	w.become(next)
	w.send(item{change: next})
}

// expire ends the life of the data, and tells nobody (S3).
func (w *world) expire() {
	w.become(&state{from: w.cur})
	w.lost = true
}

// back sets the store n states back, and tells nobody (H1, P8).
func (w *world) back(n int) {
	to := w.cur
	for ; n > 0 && to.from != nil; n-- {
		to = to.from
	}
	if w.cur != to {
		w.wentBack = true
	}
	w.cur = to
	w.moves++
}

func (w *world) become(s *state) {
	w.cur = s
	w.moves++
	w.ever = append(w.ever[:len(w.ever):len(w.ever)], s)
}

// An item is on its way to the follower: a change, or the answer to a question. Answers keep their place among the
// changes that were sent before them, as Feed.Head promises.
type item struct {
	change *state
	answer *state
}

func (w *world) send(i item) { w.line = append(w.line[:len(w.line):len(w.line)], i) }

// take removes the first item from the line.
func (w *world) take() item {
	first := w.line[0]
	w.line = w.line[1:]
	return first
}

// drop loses the first item, which is a change: a lost answer is an error of Head, and no answer.
func (w *world) drop() {
	w.take()
	w.lost = true
}

// swap has the second change overtake the first.
func (w *world) swap() {
	w.line = slices.Clone(w.line)
	w.line[0], w.line[1] = w.line[1], w.line[0]
}
