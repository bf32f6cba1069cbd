package lmx

import "github.com/latchkey-go/latchkey/lease"

// monitor handles the questions and reports of readers and writers.
func (c *Conn) monitor(f *frame, kind string) {
	q := question{conn: c, echo: string(f.uuid), key: string(f.key)}
	name, err := keyOf(f.key)
	q.name = name
	if err == nil {
		_, _, err = ident("uuid", f.uuid)
	}
	if err == nil {
		err = c.room(name)
	}
	if err != nil {
		c.send(&reply{echo: q.echo, key: q.key, queue: -1, readers: -1, err: reason(err)})
		return
	}
	s := c.srv
	s.mu.Lock()
	var base []*request // the locks to give up because the question waits
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
	for _, r := range base {
		s.giveUp(c.sess, r, name)
	}
}

// giveUp releases a hold that nobody asked to release. What the service cannot
// release stays known, as it stays held.
func (s *Server) giveUp(sess lease.Session, r *request, name string) {
	sess.Do(lease.Command{Verb: lease.Release, ID: r.id, Key: name}, func(_ lease.Lease, err error) {
		if isOver(err) {
			s.finished(r, name)
		}
	})
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
		sess := c.releaser(r)
		if sess == nil {
			c.srv.finished(r, r.one[0]) // a client that is not one of those; the ttl ends it
			continue
		}
		c.srv.giveUp(sess, r, r.one[0])
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
	out.freed = m.spare()
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

// put puts a question to the monitor. It returns the answer, or none and the locks
// to give up because the question waits: all that the connection has, since it is
// not said which one was taken for this question, and the wrong one may be of a
// task that needs it no more.
func (c *Conn) put(k *key, q question, kind string) (effects, []*request) {
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
	var base []*request
	for _, r := range k.holders {
		if r.conn == c && !r.many {
			base = append(base, r)
		}
	}
	return effects{}, base
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
