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
	answers := s.inMonitor(name, func(m *monitor) (out []outgoing) {
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
		return append(out, outgoing{c, a})
	})
	s.mu.Unlock()
	tellAll(answers)
	if base != nil {
		c.sess.Do(lease.Command{Verb: lease.Release, ID: base.id, Key: name}, func(lease.Lease, error) {
			s.finished(base, name)
		})
	}
}

// inMonitor lets do change the monitor of a key and returns the frames to be sent:
// what do answers, and then the answers of those who need not wait any more. The
// mutex is held.
func (s *Server) inMonitor(name string, do func(*monitor) []outgoing) []outgoing {
	k := s.use(name)
	if k.monitor == nil {
		k.monitor = &monitor{}
	}
	m := k.monitor
	before := m.total
	out := do(m)
	for _, q := range m.wake() {
		q.conn.waiting--
		out = append(out, answerTo(q, m))
	}
	s.readers += m.total - before
	for _, o := range out {
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
func (c *Conn) put(k *key, q question, kind string) ([]outgoing, *request) {
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
		return []outgoing{{c, tooMany(&reply{echo: q.echo, key: q.key, queue: -1, readers: -1})}}, nil
	}
	if k.monitor.put(q) {
		return []outgoing{answerTo(q, k.monitor)}, nil
	}
	c.waiting++
	c.track(q.name, k.monitor)
	for _, r := range slices.Backward(k.holders) {
		if r.conn == c && !r.many {
			return nil, r
		}
	}
	return nil, nil
}

func successOf(kind string) string {
	if kind == `"set-write-flag-false-and-broadcast"` {
		return "write-flag-false-and-broadcast-success"
	}
	return "decrement-readers-success"
}

// outgoing is a frame for a connection.
type outgoing struct {
	conn  *Conn
	reply *reply
}

// answerTo is the answer to a question.
func answerTo(q question, m *monitor) outgoing {
	kind := "register-write-flag-success"
	switch q.ask {
	case addReader:
		kind = "increment-readers-success"
	case mayWrite:
		kind = "register-write-flag-and-readers-check-success"
	}
	return outgoing{q.conn, &reply{kind: kind, echo: q.echo, key: q.key, queue: -1, readers: m.total}}
}

// tellAll sends answers. The mutex is not held.
func tellAll(answers []outgoing) {
	for _, a := range answers {
		a.conn.send(a.reply)
	}
}

// countReader counts the reader that a granted lock brings or takes, and returns
// the number that goes with the grant: after one that begins, before one that ends,
// since that client acts when it sees that it was the last. The mutex is held.
func (s *Server) countReader(r *request) (int, []outgoing) {
	name := r.one[0]
	n := s.readersOf(name)
	switch r.role {
	case beginRead:
		return n + 1, s.inMonitor(name, func(m *monitor) []outgoing {
			m.count(r.conn)
			r.conn.track(name, m)
			return nil
		})
	case endRead:
		return n, s.discount(r, name)
	}
	return n, nil
}

// uncountReader undoes countReader for a grant that nobody wants. The mutex is
// held.
func (s *Server) uncountReader(r *request) []outgoing {
	if r.role != beginRead {
		return nil
	}
	return s.discount(r, r.one[0])
}

func (s *Server) discount(r *request, name string) []outgoing {
	return s.inMonitor(name, func(m *monitor) []outgoing {
		m.discount(r.conn)
		r.conn.track(name, m)
		return nil
	})
}

// leaveMonitors takes a connection out of all monitors. The mutex is held.
func (s *Server) leaveMonitors(c *Conn) []outgoing {
	var out []outgoing
	for name := range c.monitors {
		out = append(out, s.inMonitor(name, func(m *monitor) []outgoing {
			m.leave(c)
			return nil
		})...)
	}
	c.monitors = nil
	return out
}
