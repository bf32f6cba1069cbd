package lmx

import (
	"cmp"
	"context"
	"fmt"

	"github.com/latchkey-go/latchkey/lease"
)

const (
	wrongID = "this is not the correct uuid: pass that of your own lock, or use force"
	needsID = "pass the correct uuid of the lock, or use force"
)

// unlock handles the release of a key.
func (c *Conn) unlock(f *frame) {
	key, name, err := echoed(f.key)
	echo, _, wrong := ident("uuid", f.uuid)
	if err == nil {
		err = wrong
	}
	a := reply{kind: "unlock", echo: echo, key: key, readers: -1}
	var id string
	if err == nil && !f.hold.Null() {
		_, id, err = ident("_uuid", f.hold)
	}
	if err != nil {
		c.refuse(&a, reason(err))
		return
	}
	switch {
	case id != "":
		c.unlockID(a, f, id, name)
	case f.force.True():
		c.force(a, f, name)
	default:
		c.unlockNone(a, name)
	}
}

func (c *Conn) refuse(a *reply, why string) {
	a.unlocked, a.err = no, why
	c.send(a)
}

// unlockID releases the hold with this id, whoever has it.
func (c *Conn) unlockID(a reply, f *frame, id, name string) {
	s := c.srv
	s.mu.Lock()
	if r := c.reqs[id]; r != nil && r.stage == asked {
		c.catchUp() // it is sent without waiting for its grant, which the disk has kept
	}
	a.queue = s.waitingFor(name)
	r := s.holder(c, id, name)
	if r != nil {
		r.ends(c, name)
	}
	late := r == nil && s.ended.take(id, name)
	s.mu.Unlock()
	switch {
	case late:
		a.unlocked = yes
		c.send(&a)
		return
	case r == nil:
		c.unlockForeign(a, f, id, name)
		return
	}
	own, err := c.session(f)
	if err != nil {
		c.refuse(&a, reason(err))
		return
	}
	// This is the way of most unlocks: what it keeps is little.
	echo, key, queue := a.echo, a.key, a.queue
	c.command(own, r, lease.Command{Verb: lease.Release, ID: id, Key: name}, func(_ lease.Lease, err error) {
		c.released(&reply{kind: "unlock", echo: echo, key: key, queue: queue, readers: -1}, r, name, err)
	})
}

// released answers an unlock of r. To find it ended is as good: that was while the
// frame was underway.
func (c *Conn) released(a *reply, r *request, name string, err error) {
	switch {
	case isOver(err):
		c.srv.finished(r, name)
		a.unlocked = yes
	case lease.CodeOf(err) == lease.ErrClosed:
		return
	default:
		a.unlocked, a.err = no, reason(err)
	}
	c.answer(a, r)
}

// answer sends the answer to a command on r, from its callback. When the hold was
// another connection's, it is that one's session that settles, not ours.
func (c *Conn) answer(a *reply, r *request) {
	if r == nil || r.conn == c {
		c.bring(a)
	} else {
		c.send(a)
	}
}

// finished notes that r released a key.
func (s *Server) finished(r *request, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(r, name)
	s.unbar(r)
}

// unlockForeign releases a hold that this dialect did not make, or that outlived
// its connection.
func (c *Conn) unlockForeign(a reply, f *frame, id, name string) {
	if c.unlockFree(&a, name) {
		return
	}
	sess, err := c.session(f)
	if err != nil {
		c.refuse(&a, reason(err))
		return
	}
	sess.Do(lease.Command{Verb: lease.Release, ID: id, Key: name}, func(_ lease.Lease, err error) {
		switch lease.CodeOf(err) {
		case "":
			a.unlocked = yes
		case lease.ErrNotHeld:
			a.unlocked, a.err = no, wrongID
		case lease.ErrClosed, lease.ErrSessionLost:
			return
		default:
			a.unlocked, a.err = no, reason(err)
		}
		c.bring(&a)
	})
}

// unlockNone handles an unlock that names no lock and does not force.
func (c *Conn) unlockNone(a reply, name string) {
	if !c.unlockFree(&a, name) {
		c.refuse(&a, needsID)
	}
}

// unlockFree answers for a key that nobody has and nobody waits for: there is
// nothing to do. It reports whether it answered.
func (c *Conn) unlockFree(a *reply, name string) bool {
	k, err := c.look(name)
	if err != nil {
		c.refuse(a, reason(err))
		return true
	}
	a.queue = k.Waiting
	if len(k.Holders) > 0 || k.Waiting > 0 {
		return false
	}
	a.unlocked, a.warning = yes, "no lock with key "+lease.QuoteKey(name)
	c.send(a)
	return true
}

// look asks the service about one key.
func (c *Conn) look(name string) (lease.KeyInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	l, err := c.srv.svc.List(ctx, lease.Query{Key: name, Brief: true})
	if err != nil || len(l.Keys) == 0 {
		return lease.KeyInfo{Key: name}, err
	}
	return l.Keys[0], nil
}

// force ends every hold of a key. As the end of a write it ends only what that
// write took: an end that comes late must not evict the writer after it.
func (c *Conn) force(a reply, f *frame, name string) {
	switch string(f.role) {
	case endWrite:
		c.endRole(a, f, name, func(r *request) bool { return r.conn == c && r.role == beginWrite })
		return
	case unlockWriteKey:
		c.endRole(a, f, name, c.mayOpen)
		return
	}
	c.srv.mu.Lock()
	a.queue = c.srv.waitingFor(name)
	c.srv.mu.Unlock()
	by := "live-mutex client"
	if pid, err := f.pid.Positive("pid", ""); err == nil {
		by += fmt.Sprintf(" pid %d", pid)
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	_, err := c.srv.svc.Force(ctx, lease.ForceRequest{Key: name, By: by, Reason: "unlock with force"})
	switch lease.CodeOf(err) {
	case "":
		a.unlocked = yes
	case lease.ErrNotHeld:
		a.unlocked, a.warning = yes, "no lock with key "+lease.QuoteKey(name)
	default:
		a.unlocked, a.err = no, reason(err)
	}
	c.send(&a)
}

// endRole releases the holds of a key that match.
func (c *Conn) endRole(a reply, f *frame, name string, match func(*request) bool) {
	s := c.srv
	s.mu.Lock()
	a.queue = s.waitingFor(name)
	var mine []*request
	if k := s.keys[name]; k != nil {
		for _, r := range k.holders {
			if match(r) {
				mine = append(mine, r)
			}
		}
	}
	s.mu.Unlock()
	if len(mine) == 0 {
		a.unlocked, a.warning = yes, "no such lock with key "+lease.QuoteKey(name)+" any more; other holders were left alone"
		c.send(&a)
		return
	}
	own, err := c.session(f)
	if err != nil {
		c.refuse(&a, reason(err))
		return
	}
	left, failed := len(mine), error(nil) // guarded by the server's mutex
	for _, r := range mine {
		c.command(own, r, lease.Command{Verb: lease.Release, ID: r.id, Key: name}, func(_ lease.Lease, err error) {
			if isOver(err) {
				s.finished(r, name)
				err = nil
			}
			s.mu.Lock()
			left--
			failed = cmp.Or(failed, err)
			last, err := left == 0, failed
			s.mu.Unlock()
			if last {
				c.released(&a, r, name, err)
			}
		})
	}
}
