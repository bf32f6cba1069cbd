package engine

import "github.com/latchkey-go/latchkey/lease"

// own returns the session's request with this id, or nil.
func (e *Engine) own(s *Session, id string) *request {
	for r := e.ids.first(id); r != nil; r = e.ids.after(r) {
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
	return e.ids.first(id)
}

// ambiguous reports whether several sessions have a request with r's id.
func (e *Engine) ambiguous(r *request) bool {
	return e.ids.after(e.ids.first(r.id)) != nil
}

// forget takes an ended request out of its session and the index, and remembers
// how it ended.
func (e *Engine) forget(r *request, how lease.Code) {
	r.sess.unlink(r)
	e.ids.remove(r)
	e.outcomes.add(r.sess, r.id, how)
}
