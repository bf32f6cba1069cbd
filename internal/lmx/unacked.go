package lmx

import "time"

// unacked lists grants from the queue that their clients have not acknowledged, in
// the order of their grants. It costs one timer for all.
//
// A live-mutex client that gave up waiting says so to nobody, and ignores the grant
// that comes later. Brokers take such a lock away after some seconds, and with it
// those of clients that live and are only slow. Here the grant is sent once more
// instead: the first copy ended the client's wish to ignore it, so it rejects the
// second one, which frees the key at once. A client that lives has acknowledged
// the first copy by then, and what it says of the second is ignored.
type unacked struct {
	oldest, newest *request
}

func (u *unacked) add(r *request, due time.Time) {
	r.due = due
	r.older = u.newest
	if u.newest != nil {
		u.newest.newer = r
	} else {
		u.oldest = r
	}
	u.newest = r
}

func (u *unacked) remove(r *request) {
	switch {
	case r.older != nil:
		r.older.newer = r.newer
	case u.oldest == r:
		u.oldest = r.newer
	default:
		return // not listed
	}
	if r.newer != nil {
		r.newer.older = r.older
	} else {
		u.newest = r.older
	}
	r.older, r.newer = nil, nil
}

// expectAck lists r. The mutex is held.
func (s *Server) expectAck(r *request) {
	s.unacked.add(r, time.Now().Add(askAgain))
	if s.unacked.oldest != r {
		return
	}
	if s.reminder == nil {
		s.reminder = time.AfterFunc(askAgain, s.remind)
	} else {
		s.reminder.Reset(askAgain)
	}
}

// remind sends again what is due.
func (s *Server) remind() {
	s.mu.Lock()
	var again []*request
	now := time.Now()
	for r := s.unacked.oldest; r != nil && !r.due.After(now); r = s.unacked.oldest {
		s.unacked.remove(r)
		again = append(again, r)
	}
	if r := s.unacked.oldest; r != nil {
		s.reminder.Reset(r.due.Sub(now))
	}
	s.mu.Unlock()
	for _, r := range again {
		r.conn.send(r.granted())
	}
}
