package lmx

import (
	"slices"

	"github.com/latchkey-go/latchkey/lease"
)

// The read-preferring client keeps writers out by a lock. Its readers lock their
// key, are told how many they are, and unlock it. The first one locks the write
// key before it unlocks, for all of them; the last one, which locks once more when
// it ends, unlocks the write key then by force, whoever locked it. What would go
// wrong in between is mended here, since the monitor of the readers' key knows who
// reads: it has the lock of the write key, a bar, until the last reader has
// unlocked it, whichever connections end.

// countReader counts the reader that a granted lock brings or takes, and returns
// the number that goes with the grant: after one that begins, before one that ends,
// since that client acts when it sees that it was the last. The mutex is held.
func (s *Server) countReader(r *request) (int, effects) {
	name := r.one[0]
	n := s.readersOf(name)
	switch {
	case r.role == beginRead:
		return n + 1, s.inMonitor(name, func(m *monitor) effects {
			m.count(r.conn)
			if n == 0 {
				r.conn.first(name)
			}
			r.conn.track(name, m)
			return effects{}
		})
	case r.role == endRead:
		return n, s.inMonitor(name, func(m *monitor) effects {
			if m.discount(r.conn) {
				r.readKey = name
				if m.total == 0 && len(m.bars) > 0 {
					m.last = r.conn
				}
			}
			r.conn.track(name, m)
			return effects{}
		})
	case r.readKey != "":
		return n, s.inMonitor(r.readKey, func(m *monitor) effects {
			if m.total > 0 {
				m.bars = append(m.bars, r)
			} else {
				r.readKey = "" // it is an ordinary lock: nobody reads
			}
			return effects{}
		})
	}
	return n, effects{}
}

// uncountReader undoes countReader for a grant that nobody wants, and for a lock
// of the write key that nobody waits for any more: its reader has failed. The mutex
// is held.
func (s *Server) uncountReader(r *request) effects {
	name := r.readKey
	switch {
	case r.role == beginRead:
		name = r.one[0]
	case name == "":
		return effects{}
	}
	return s.inMonitor(name, func(m *monitor) effects {
		if r.role == endRead {
			m.count(r.conn)
			if m.last == r.conn {
				m.last = nil
			}
		} else {
			m.discount(r.conn)
		}
		if i := slices.Index(r.conn.firsts, name); r.role == beginRead && r.count == 1 && i >= 0 {
			r.conn.firsts = slices.Delete(r.conn.firsts, i, i+1)
		}
		r.conn.track(name, m)
		return effects{}
	})
}

// maxFirst bounds how many keys are remembered that a connection is the first
// reader of, until it locks their write keys.
const maxFirst = 64

// first notes that the connection has the first reader of a key. The lock of a
// write key that follows is for that one. The mutex is held.
func (c *Conn) first(name string) {
	if len(c.firsts) == maxFirst {
		c.firsts = c.firsts[1:]
	}
	c.firsts = append(c.firsts, name)
}

// bars notes which key's readers a lock is for, if it is that of a write key. The
// mutex is held.
func (r *request) bars() {
	if c := r.conn; r.role == lockWriteKey && len(c.firsts) > 0 {
		r.readKey, c.firsts = c.firsts[0], c.firsts[1:]
	}
}

// mayOpen reports whether a connection that unlocks the write key for the readers
// is to unlock r. One that was not the last of them comes late, and would let a
// writer in beside those who read now. The mutex is held.
func (c *Conn) mayOpen(r *request) bool {
	if r.role != lockWriteKey || r.readKey == "" {
		return r.role == lockWriteKey
	}
	k := c.srv.keys[r.readKey]
	return k != nil && k.monitor != nil && k.monitor.last == c
}

// outlives reports whether r must outlive its connection: others read behind it, or
// the last one is about to unlock it. The mutex is held.
func (s *Server) outlives(r *request) bool {
	if r.role != lockWriteKey || r.readKey == "" {
		return false
	}
	k := s.keys[r.readKey]
	return k != nil && k.monitor != nil && slices.Contains(k.monitor.bars, r)
}

// unbar takes out of the monitor what has ended. The mutex is held.
func (s *Server) unbar(r *request) {
	if r.role != lockWriteKey || r.readKey == "" {
		return
	}
	if k := s.keys[r.readKey]; k != nil && k.monitor != nil {
		k.monitor.drop(r)
		s.tidy(r.readKey, k)
	}
}

// releaser is the session that releases a bar: that of its connection, or, when
// that one is gone, our own.
func (c *Conn) releaser(r *request) lease.Session {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	if r.conn.left {
		return c.sess
	}
	return r.conn.sess
}
