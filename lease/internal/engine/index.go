package engine

import "github.com/latchkey-go/latchkey/lease"

// The index of ids finds a request by its id. Ids are unique per session only,
// so requests of several sessions may share one: they form a chain.

func (e *Engine) indexID(r *request) {
	r.idNext = e.ids[r.id]
	e.ids[r.id] = r
}

// own returns the session's request with this id, or nil.
func (e *Engine) own(s *Session, id string) *request {
	for r := e.ids[id]; r != nil; r = r.idNext {
		if r.sess == s {
			return r
		}
	}
	return nil
}

// anyones returns the session's request with this id, or else another session's.
func (e *Engine) anyones(s *Session, id string) *request {
	if r := e.own(s, id); r != nil {
		return r
	}
	return e.ids[id]
}

// ambiguous reports whether several sessions have a request with r's id.
func (e *Engine) ambiguous(r *request) bool {
	return e.ids[r.id].idNext != nil
}

// forget takes an ended request out of its session and the index, and remembers
// how it ended.
func (e *Engine) forget(r *request, how lease.Code) {
	r.sess.unlink(r)
	head := e.ids[r.id]
	switch {
	case head == r && r.idNext == nil:
		delete(e.ids, r.id)
	case head == r:
		e.ids[r.id] = r.idNext
	default:
		for p := head; p != nil; p = p.idNext {
			if p.idNext == r {
				p.idNext = r.idNext
				break
			}
		}
	}
	r.idNext = nil
	e.outcomes.add(r.sess, r.id, how)
}
