package lmx

import (
	"slices"

	"github.com/latchkey-go/latchkey/lease"
)

// monitor handles the questions and reports of readers and writers.
func (c *Conn) monitor(f *frame, kind string) {
	q := question{conn: c, echo: string(f.uuid), key: string(f.key)}
	name, err := keyOf(f.key)
	q.name = name
	if err == nil {
		_, _, err = ident("uuid", f.uuid)
	}
	if err != nil {
		c.send(&reply{echo: q.echo, key: q.key, queue: -1, readers: -1, err: reason(err)})
		return
	}
	s := c.srv
	s.mu.Lock()
	var base *request // the lock to give up because the question waits
	e := s.inMonitor(name, func(m *monitor) (out effects) {
		switch kind {
		case `"decrement-readers"`:
			m.discount(c)
		case `"set-write-flag-false-and-broadcast"`:
			m.lower(c)
		default:
			out, base = c.put(s.keys[name], q, kind)
			return out
		}
		a := &reply{kind: successOf(kind), echo: q.echo, key: q.key, queue: -1, readers: m.total}
		return answerWith(c, a)
	})
	s.mu.Unlock()
	c.carryOut(e)
	if base != nil {
		c.sess.Do(lease.Command{Verb: lease.Release, ID: base.id, Key: name}, func(lease.Lease, error) {
			s.finished(base, name)
		})
	}
}

// effects are what a change of a monitor brings about, to be carried out when the
// mutex is not held any more.
type effects struct {
	answers []outgoing
	freed   []*request // locks that nobody needs any more
}

// outgoing is a frame for a connection.
type outgoing struct {
	conn  *Conn
	reply *reply
}

func answerWith(c *Conn, r *reply) effects { return effects{answers: []outgoing{{c, r}}} }

// carryOut does what a change brought about; the connection is the one that made it.
func (c *Conn) carryOut(e effects) {
	for _, a := range e.answers {
		a.conn.send(a.reply)
	}
	for _, r := range e.freed {
		if c.sess == nil {
			c.srv.finished(r, r.one[0]) // a client that is not one of those; the ttl ends it
			continue
		}
		c.sess.Do(lease.Command{Verb: lease.Release, ID: r.id, Key: r.one[0]}, func(lease.Lease, error) {
			c.srv.finished(r, r.one[0])
		})
	}
}

// inMonitor lets do change the monitor of a key. The effects are what do returns,
// and then the answers of those who need not wait any more. The mutex is held.
func (s *Server) inMonitor(name string, do func(*monitor) effects) effects {
	k := s.use(name)
	if k.monitor == nil {
		k.monitor = &monitor{}
	}
	m := k.monitor
	before := m.total
	out := do(m)
	for _, q := range m.wake() {
		q.conn.waiting--
		out.answers = append(out.answers, outgoing{q.conn, q.answer(m)})
	}
	if m.total == 0 {
		out.freed, m.barred = m.barred, nil
	}
	s.readers += m.total - before
	for _, o := range out.answers {
		o.conn.track(name, m)
	}
	s.tidy(name, k)
	return out
}

// track notes whether the connection has a part in a key's monitor.
func (c *Conn) track(name string, m *monitor) {
	switch {
	case !m.has(c):
		delete(c.monitors, name)
	case c.monitors == nil:
		c.monitors = map[string]struct{}{name: {}}
	default:
		c.monitors[name] = struct{}{}
	}
}

// put puts a question to the monitor. It returns the answer, or none and the lock
// to give up because the question waits.
func (c *Conn) put(k *key, q question, kind string) (effects, *request) {
	switch kind {
	case `"increment-readers"`:
		q.ask = addReader
	case `"register-write-flag-and-readers-check"`:
		q.ask = mayWrite
	default:
		q.ask = mayRead
		if c.legacy {
			q.ask = enterRead
		}
	}
	if c.waiting >= lease.MaxInFlight {
		return answerWith(c, tooMany(&reply{echo: q.echo, key: q.key, queue: -1, readers: -1})), nil
	}
	if k.monitor.put(q) {
		return answerWith(c, q.answer(k.monitor)), nil
	}
	c.waiting++
	c.track(q.name, k.monitor)
	for _, r := range slices.Backward(k.holders) {
		if r.conn == c && !r.many {
			return effects{}, r
		}
	}
	return effects{}, nil
}

func successOf(kind string) string {
	if kind == `"set-write-flag-false-and-broadcast"` {
		return "write-flag-false-and-broadcast-success"
	}
	return "decrement-readers-success"
}

// answer is the answer to a question.
func (q question) answer(m *monitor) *reply {
	kind := "register-write-flag-success"
	switch q.ask {
	case addReader:
		kind = "increment-readers-success"
	case mayWrite:
		kind = "register-write-flag-and-readers-check-success"
	}
	return &reply{kind: kind, echo: q.echo, key: q.key, queue: -1, readers: m.total}
}

// countReader counts the reader that a granted lock brings or takes, and returns
// the number that goes with the grant: after one that begins, before one that ends,
// since that client acts when it sees that it was the last. The mutex is held.
func (s *Server) countReader(r *request) (int, effects) {
	name := r.one[0]
	n := s.readersOf(name)
	switch r.role {
	case beginRead:
		return n + 1, s.inMonitor(name, func(m *monitor) effects {
			m.count(r.conn)
			r.conn.track(name, m)
			if n == 0 {
				r.conn.first(name)
			}
			return effects{}
		})
	case endRead:
		return n, s.discount(r, name)
	}
	return n, effects{}
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

// outlives reports whether r must outlive its connection, because others still
// read behind it. The monitor then has it. The mutex is held.
func (s *Server) outlives(r *request) bool {
	if r.readKey == "" || s.readersOf(r.readKey) == 0 {
		return false
	}
	m := s.keys[r.readKey].monitor
	m.barred = append(m.barred, r)
	return true
}

// uncountReader undoes countReader for a grant that nobody wants. The mutex is
// held.
func (s *Server) uncountReader(r *request) effects {
	if r.role != beginRead {
		return effects{}
	}
	return s.discount(r, r.one[0])
}

func (s *Server) discount(r *request, name string) effects {
	return s.inMonitor(name, func(m *monitor) effects {
		m.discount(r.conn)
		r.conn.track(name, m)
		return effects{}
	})
}

// leaveMonitors takes a connection out of all monitors. The mutex is held.
func (s *Server) leaveMonitors(c *Conn) effects {
	var all effects
	for name := range c.monitors {
		e := s.inMonitor(name, func(m *monitor) effects {
			m.leave(c)
			return effects{}
		})
		all.answers = append(all.answers, e.answers...)
		all.freed = append(all.freed, e.freed...)
	}
	c.monitors = nil
	return all
}
