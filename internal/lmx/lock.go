package lmx

import (
	"context"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Values of rwStatus that mean something here.
const (
	beginRead      = `"begin_read"`
	endRead        = `"end_read"`
	beginWrite     = `"begin_write"`
	endWrite       = `"end_write"`
	lockWriteKey   = `"locking_write_key"`
	unlockWriteKey = `"unlocking_write_key"`
)

// lock handles a request for one key.
func (c *Conn) lock(f *frame) {
	r, q, err := c.newLock(f)
	if err != nil {
		c.send(&reply{kind: "lock", echo: string(f.uuid), key: string(f.key), acquired: no, err: reason(err)})
		return
	}
	s := c.srv
	s.mu.Lock()
	if old := c.reqs[r.uuid]; old != nil && !old.ending {
		answer := old.repeat(r)
		s.mu.Unlock()
		c.send(answer)
		return
	}
	if c.full() {
		s.mu.Unlock()
		c.send(tooMany(r.refused()))
		return
	}
	k := s.use(r.one[0])
	if q.Limit > 0 {
		k.max = q.Limit
	} else {
		q.Limit = max(k.max, 1)
	}
	r.bars()
	s.ask(r)
	s.mu.Unlock()
	if q.Limit > 1 {
		q.Mode = lease.Counted
	} else {
		q.Limit = 0
	}
	c.sess.Acquire(q, r)
}

// full reports whether as many requests wait as may. Those that only the service's
// disk has kept from their answers do not count: it looks again when these are
// there. The mutex is held, but not meanwhile.
func (c *Conn) full() bool {
	if c.waiting < lease.MaxInFlight {
		return false
	}
	c.catchUp()
	return c.waiting >= lease.MaxInFlight
}

// catchUp waits until all that the connection asked is answered or queued. The
// mutex is held, but not meanwhile.
func (c *Conn) catchUp() {
	c.srv.mu.Unlock()
	defer c.srv.mu.Lock()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	c.settle(ctx)
}

func tooMany(r *reply) *reply {
	r.err = lease.Refuse("%d requests of this connection wait, no more are taken (MaxInFlight)", lease.MaxInFlight).Reason
	return r
}

// newLock reads a lock frame. The limit of the request is 0 when the frame has none.
func (c *Conn) newLock(f *frame) (*request, lease.Request, error) {
	var q lease.Request
	echo, id, err := ident("uuid", f.uuid)
	if err != nil {
		return nil, q, err
	}
	key, name, err := echoed(f.key)
	if err != nil {
		return nil, q, err
	}
	if q.Limit, err = c.limit(f); err != nil {
		return nil, q, err
	}
	if q.TTL, err = ttlOf(f.ttl); err != nil {
		return nil, q, err
	}
	r := &request{conn: c, id: id, uuid: id, echo: echo, key: key, role: roleOf(f.role), detached: f.keep.True()}
	if r.role == beginRead {
		if err := c.room(name); err != nil {
			return nil, q, err
		}
	}
	if _, err := c.session(f); err != nil {
		return nil, q, err
	}
	r.one[0] = name
	r.keys = r.one[:]
	q.ID, q.Keys, q.Try, q.Detach = id, r.keys, f.wait.False(), r.detached
	return r, q, nil
}

// roleOf is an rwStatus that means something here, or none.
func roleOf(v wire.Value) string {
	for _, role := range [...]string{beginRead, endRead, beginWrite, endWrite, lockWriteKey, unlockWriteKey} {
		if string(v) == role {
			return role
		}
	}
	return ""
}

// limit is the max that fits what the lock is for, cut to the most that a key can
// have; 0 when none is given.
func (c *Conn) limit(f *frame) (int, error) {
	var given [3]int64
	for i, m := range [...]struct {
		name string
		v    wire.Value
	}{{"max", f.max}, {"maxRead", f.maxRead}, {"maxWrite", f.maxWrite}} {
		if m.v.Null() {
			continue
		}
		n, err := m.v.Positive(m.name, "")
		if err != nil {
			return 0, err
		}
		given[i] = n
	}
	limit := given[0]
	switch {
	case given[1] > 0 && string(f.role) == beginRead:
		limit = given[1]
	case string(f.role) == beginRead:
		limit = 1 // the first reader locks the write key before the next one counts
	case given[2] > 0 && string(f.role) == beginWrite:
		limit = given[2]
	}
	if limit > lease.MaxHolders {
		limit = lease.MaxHolders
		c.srv.clamps.Add(1)
	}
	return int(limit), nil
}

// ttlOf reads a ttl: null is for ever, none or 0 the default.
func ttlOf(v wire.Value) (time.Duration, error) {
	switch {
	case len(v) == 0 || string(v) == "0":
		return defaultTTL, nil
	case v.Null():
		return lease.Forever, nil
	}
	n, err := v.Positive("ttl", " of milliseconds, or null for one that never ends")
	if err != nil {
		return 0, err
	}
	if n > lease.MaxTTL.Milliseconds() {
		return 0, lease.Refuse("ttl is %d ms, at most %d are allowed (MaxTTL); send null for one that never ends", n, lease.MaxTTL.Milliseconds())
	}
	return time.Duration(n) * time.Millisecond, nil
}

// repeat answers a frame that came before: the client did not see the answer yet,
// or sends again after a while. The mutex is held.
func (r *request) repeat(again *request) *reply {
	s := r.conn.srv
	switch {
	case r.many || r.keys[0] != again.one[0]:
		a := again.refused()
		a.err = "the uuid is in use for another request of this connection"
		return a
	case r.stage == held:
		return r.granted()
	}
	return &reply{kind: "lock", echo: r.echo, key: r.key, acquired: no,
		queue: max(s.waitingFor(r.keys[0])-1, 0), readers: s.readersOf(r.keys[0])}
}

func (r *request) refused() *reply {
	return &reply{kind: "lock", echo: r.echo, key: r.key, acquired: no}
}

// granted is the answer to a lock that holds.
func (r *request) granted() *reply {
	return &reply{kind: "lock", echo: r.echo, key: r.key, acquired: yes, token: r.tokens[0].Token, readers: r.count}
}

// Queued tells the client that it has to wait.
func (r *request) Queued(q lease.Queued) {
	s := r.conn.srv
	s.mu.Lock()
	if r.stage != asked {
		s.mu.Unlock()
		return
	}
	s.enqueue(r)
	readers := s.readersOf(r.keys[0])
	s.mu.Unlock()
	if r.many {
		r.conn.bring(&reply{kind: "acquire-many", echo: r.echo, keys: r.keys, acquired: no,
			contended: q.Key, queue: q.Position + 1, readers: -1})
		return
	}
	r.conn.bring(&reply{kind: "lock", echo: r.echo, key: r.key, acquired: no, queue: q.Position, readers: readers})
}

// Done tells the client what became of its request.
func (r *request) Done(l lease.Lease, err error) {
	s, c := r.conn.srv, r.conn
	s.mu.Lock()
	switch {
	case r.stage == gone:
		s.mu.Unlock()
		return
	case err != nil:
		waiting := s.waitingFor(r.keys[0])
		readers := s.readersOf(r.keys[0])
		var e effects
		if r.role == lockWriteKey {
			e = s.uncountReader(r)
		}
		s.drop(r)
		s.mu.Unlock()
		if !silent(err) {
			c.bring(r.failed(err, waiting, readers))
		}
		c.carryOut(e)
		return
	}
	fromQueue := r.stage == queued
	s.grant(r, l.Holds)
	var e effects
	var answer *reply
	if r.many {
		answer = &reply{kind: "acquire-many", echo: r.echo, keys: r.keys, acquired: yes, lockUUID: r.id, tokens: l.Holds,
			queue: -1, readers: -1}
	} else {
		r.count, e = s.countReader(r)
		if fromQueue && c.acks {
			s.expectAck(r)
		}
		answer = r.granted()
		answer.queue = s.waitingFor(r.keys[0])
	}
	s.mu.Unlock()
	c.bring(answer)
	c.carryOut(e)
}

// failed is the answer to a request that was not granted.
func (r *request) failed(err error, waiting, readers int) *reply {
	a := &reply{kind: "lock", echo: r.echo, key: r.key, acquired: no, queue: waiting, readers: readers}
	if r.many {
		a = &reply{kind: "acquire-many", echo: r.echo, keys: r.keys, acquired: no, queue: waiting, readers: -1}
	}
	if lease.CodeOf(err) == lease.ErrBusy {
		if e, ok := err.(*lease.Error); ok && r.many {
			a.contended = e.Key
		}
		return a
	}
	a.err = reason(err)
	return a
}

// mine finds a request of this connection by the uuid that a frame names, or nil.
// The mutex is held.
func (c *Conn) mine(f *frame) *request {
	if v := f.uuid; plain(v) {
		return c.reqs[string(v[1:len(v)-1])] // without a string of its own
	}
	_, id, err := ident("uuid", f.uuid)
	if err != nil {
		return nil
	}
	return c.reqs[id]
}

// received handles the acknowledgement of a grant. It may say that the hold is to
// outlive the connection: the option of the client as a whole comes only here.
func (c *Conn) received(f *frame) {
	s := c.srv
	s.mu.Lock()
	c.acks = true
	r := c.mine(f)
	if r == nil || r.stage != held {
		s.mu.Unlock()
		return
	}
	r.acked = true
	s.unacked.remove(r)
	detach := f.keep.True() && !r.detached
	r.detached = r.detached || detach
	s.mu.Unlock()
	if detach {
		c.sess.Do(lease.Command{Verb: lease.Detach, ID: r.id}, nil)
	}
}

// rejected handles a client that does not want a grant: it has given up waiting. A
// rejection of what it acknowledged is one of a second copy.
func (c *Conn) rejected(f *frame) { c.undo(f, false) }

// gaveUp handles a client that does not wait any more. A grant that is on its way
// goes too.
func (c *Conn) gaveUp(f *frame) { c.undo(f, true) }

// undo takes back a grant that was not acknowledged, and with waiting a request
// that waits too.
func (c *Conn) undo(f *frame, waiting bool) {
	s := c.srv
	s.mu.Lock()
	r := c.mine(f)
	if r == nil || r.acked || r.many || r.stage != held && !waiting {
		s.mu.Unlock()
		return
	}
	var e effects
	if r.stage == held || r.role == lockWriteKey {
		e = s.uncountReader(r)
	}
	if r.stage == held {
		s.endAll(r)
		s.unbar(r)
	} else {
		s.drop(r)
	}
	s.mu.Unlock()
	c.sess.Do(lease.Command{Verb: lease.Cancel, ID: r.id}, nil)
	c.carryOut(e)
}
