package lmx

import (
	"crypto/rand"
	"slices"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// acquireMany handles a request for several keys, all or none. Each is a hold of
// its own under one id.
func (c *Conn) acquireMany(f *frame) {
	keys, err := keysOf(f.keys)
	a := &reply{kind: "acquire-many", echo: string(f.uuid), keys: keys, listed: true, acquired: no, queue: -1, readers: -1}
	fail := func(err error) {
		a.err = reason(err)
		c.send(a)
	}
	if err != nil {
		fail(err)
		return
	}
	echo, uuid, err := ident("uuid", f.uuid)
	if err != nil {
		fail(err)
		return
	}
	q := lease.Request{ID: rand.Text(), Keys: keys, Try: f.wait.False(), Detach: f.keep.True()}
	if q.TTL, err = ttlOf(f.ttl); err != nil {
		fail(err)
		return
	}
	sess, err := c.session(f)
	if err != nil {
		fail(err)
		return
	}
	r := &request{conn: c, id: q.ID, uuid: uuid, echo: echo, many: true, keys: keys, detached: q.Detach}
	s := c.srv
	s.mu.Lock()
	if old := c.reqs[uuid]; old != nil && !old.ending {
		old.repeatMany(a, keys)
		s.mu.Unlock()
		c.send(a)
		return
	}
	if c.full() {
		s.mu.Unlock()
		c.send(tooMany(a))
		return
	}
	s.ask(r)
	s.mu.Unlock()
	sess.Acquire(q, r)
}

// repeatMany answers a frame that came before. The mutex is held.
func (r *request) repeatMany(a *reply, keys []string) {
	switch {
	case !r.many || !r.asksFor(keys):
		a.err = "the uuid is in use for another request of this connection"
	case r.stage == held:
		a.acquired, a.lockUUID, a.keys = yes, r.id, r.keys
		a.tokens = slices.DeleteFunc(slices.Clone(r.tokens), func(h lease.Hold) bool { return !slices.Contains(r.keys, h.Key) })
	default:
		a.queue = r.conn.srv.waitingFor(r.keys[0])
	}
}

// asksFor reports whether these are the keys that r asked for, whatever is left of
// them.
func (r *request) asksFor(keys []string) bool {
	if r.stage != held {
		return slices.Equal(r.keys, keys)
	}
	return len(r.tokens) == len(keys) && !slices.ContainsFunc(keys, func(k string) bool { return r.tokenOf(k) == 0 })
}

// keysOf reads the keys of an acquire-many, sorted and each once.
func keysOf(v wire.Value) ([]string, error) {
	var keys []string
	var err error
	n := 0
	isList := v.Each(func(entry wire.Value) {
		n++
		if err != nil || n > lease.MaxKeys {
			return
		}
		var k string
		if k, err = keyOf(entry); err == nil {
			keys = append(keys, k)
		} else {
			err = lease.Refuse("keys[%d]: %s", n-1, reason(err))
		}
	})
	switch {
	case !isList || n == 0:
		return nil, lease.Refuse("keys must be a list of 1 to %d strings", lease.MaxKeys)
	case err != nil:
		return nil, err
	case n > lease.MaxKeys:
		return nil, lease.Refuse("keys has %d entries, at most %d are allowed (MaxKeys)", n, lease.MaxKeys)
	}
	return sortedKeys(keys), nil
}

// releaseMany releases what is left of an acquire-many, from any connection.
func (c *Conn) releaseMany(f *frame) {
	a := &reply{kind: "release-many", echo: string(f.uuid), lockUUID: "", queue: -1, readers: -1}
	_, _, err := ident("uuid", f.uuid)
	var id string
	if err == nil {
		_, id, err = ident("lockUuid", f.lockUUID)
	}
	var own lease.Session
	if err == nil {
		own, err = c.session(f)
	}
	if err != nil {
		a.released, a.err = no, reason(err)
		c.send(a)
		return
	}
	s := c.srv
	s.mu.Lock()
	r := s.holder(c, id, "")
	if r != nil {
		r.ends(c, "")
	}
	late := r == nil && s.ended.take(id, "")
	s.mu.Unlock()
	a.lockUUID = id
	if late {
		a.released, a.listed = yes, true
		c.send(a)
		return
	}
	c.command(own, r, lease.Command{Verb: lease.Release, ID: id}, func(l lease.Lease, err error) {
		switch lease.CodeOf(err) {
		case "":
			a.released, a.listed = yes, true
			for _, h := range l.Holds {
				a.keys = append(a.keys, h.Key)
			}
		case lease.ErrClosed, lease.ErrSessionLost:
			return
		case lease.ErrNotHeld:
			a.released, a.lockUUID = no, ""
			a.err = "no lock with lockUuid " + lease.QuoteKey(id) + ": it was released already, or never granted"
		default:
			a.released, a.err = no, reason(err)
		}
		if r != nil && isOver(err) {
			s.mu.Lock()
			s.endAll(r)
			s.unbar(r)
			s.mu.Unlock()
		}
		c.answer(a, r)
	})
}
