package engine

import (
	"hash/maphash"

	"github.com/latchkey-go/latchkey/lease"
)

// index finds requests by id. Ids are unique within a session only: the table has
// one request of each id, and those of other sessions hang off that one. So an id
// that a hundred thousand sessions use, such as "1", costs none of them a search.
type index struct {
	heads table[*request]
	n     int
}

func newIndex(seed maphash.Seed) index { return index{heads: newTable[*request](seed)} }

func (x *index) add(r *request) {
	x.n++
	h := x.heads.first(r.id)
	if h == nil {
		x.heads.add(r)
		return
	}
	r.flags |= namesake
	r.next, r.twin = h.twin, h
	if r.next != nil {
		r.next.twin = r
	}
	h.twin = r
}

func (x *index) remove(r *request) {
	x.n--
	if r.flags&namesake == 0 {
		x.heads.remove(r)
		if t := r.twin; t != nil { // the next one takes its place
			t.flags &^= namesake
			t.next, t.twin = nil, t.next
			if t.twin != nil {
				t.twin.twin = t
			}
			x.heads.add(t)
		}
		r.twin = nil
		return
	}
	if p := r.twin; p.flags&namesake != 0 {
		p.next = r.next
	} else {
		p.twin = r.next
	}
	if r.next != nil {
		r.next.twin = r.twin
	}
	r.flags &^= namesake
	r.next, r.twin = nil, nil
}

// following returns the next request with the id of r, after the first.
func following(r *request) *request {
	if r.flags&namesake != 0 {
		return r.next
	}
	return r.twin
}

// all calls yield with every request; the index must not change meanwhile.
func (x *index) all(yield func(*request) bool) {
	for h := range x.heads.all {
		for r := h; r != nil; r = following(r) {
			if !yield(r) {
				return
			}
		}
	}
}

// own returns the session's request with this id, or nil. It looks through the
// requests with the id and through those of the session side by side, and is done
// with the shorter of the two.
func (e *Engine) own(s *Session, id string) *request {
	for r, mine := e.ids.heads.first(id), s.first; r != nil && mine != nil; r, mine = following(r), mine.snext {
		switch {
		case r.sess == s:
			return r
		case mine.id == id:
			return mine
		}
	}
	return nil
}

// anyones returns the session's request with this id, or else another session's.
func (e *Engine) anyones(s *Session, id string) *request {
	if r := e.own(s, id); r != nil {
		return r
	}
	return e.ids.heads.first(id)
}

// ambiguous reports whether several sessions have a request with r's id.
func (e *Engine) ambiguous(r *request) bool {
	return r.flags&namesake != 0 || r.twin != nil
}

// forget takes an ended request out of its session and the index, and remembers
// how it ended.
func (e *Engine) forget(r *request, how lease.Code) {
	r.sess.unlink(r)
	e.ids.remove(r)
	e.outcomes.add(r.sess, r.id, how)
}
