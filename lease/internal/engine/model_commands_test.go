package engine

import (
	"fmt"
	"slices"

	"github.com/latchkey-go/latchkey/lease"
)

// The commands of the model, each with every way that it can fail.

// alive is what every command of a session begins with.
func (m *model) alive(s *modelSession) lease.Code {
	if s.ended {
		return lease.ErrSessionLost
	}
	s.seen = m.now
	return ""
}

func (m *model) acquire(s *modelSession, q lease.Request, caller int) {
	refuse := func(code lease.Code) { m.say("%s", sayDone(caller, lease.Lease{}, never, code)) }
	if code := m.alive(s); code != "" {
		refuse(code)
		return
	}
	if r := m.find(s, q.ID); r != nil {
		m.repeat(r, q, caller)
		return
	}
	if _, over := m.outcomes[s.id+"/"+q.ID]; over {
		m.stats.Repeats++
		refuse(lease.ErrOver)
		return
	}
	m.seq++
	r := &modelRequest{s: s, q: q, detached: q.Detach, callers: []int{caller}, arrival: m.now, seq: m.seq, until: never}
	if m.now < recoverWindow && !q.Try {
		r.arrival -= q.Waited
	}
	if q.Wait > 0 {
		r.until = m.now + q.Wait
	}
	where, blocked := m.inTheWay(r)
	if q.Try && m.defect == "a try does not look at the queue" {
		where, blocked = "", m.quiet > 0
		for _, k := range q.Keys {
			blocked = blocked || !m.room(r, k)
		}
	}
	switch {
	case blocked && q.Try:
		m.stats.Busy++
		refuse(lease.ErrBusy)
	case blocked:
		r.waiting = true
		m.reqs = append(m.reqs, r)
		m.stats.Queued++
		for _, k := range q.Keys {
			m.event(lease.EventQueued, r, k, 0, 0, "")
		}
		m.sayQueued(r, where, caller)
	default:
		l, granted := m.grants[caller]
		if !granted {
			m.fault("%s fits and is not granted", q.ID)
			return
		}
		m.reqs = append(m.reqs, r)
		m.grant(r, l)
	}
}

// sayQueued names the first key in the way; when there is none the first key.
func (m *model) sayQueued(r *modelRequest, where string, caller int) {
	if where == "" {
		where = r.q.Keys[0]
	}
	m.say("queued %d %s %s %d", caller, r.q.ID, where, slices.Index(m.queue(where), r))
}

func (m *model) repeat(r *modelRequest, q lease.Request, caller int) {
	m.stats.Repeats++
	ttl := r.q.TTL
	if r.ttlChanged {
		ttl = q.TTL
	}
	same := q.Mode == r.q.Mode && q.Limit == r.q.Limit && slices.Equal(q.Keys, r.q.Keys) && q.TTL == ttl && q.Label == r.q.Label &&
		q.MaxHold == r.q.MaxHold && q.LockDelay == r.q.LockDelay && q.PreferReaders == r.q.PreferReaders && !(r.waiting && q.Try)
	switch {
	case !same:
		m.say("%s", sayDone(caller, lease.Lease{}, never, lease.ErrRefused))
	case !r.waiting:
		m.say("%s", sayDone(caller, m.leaseOf(r), m.endOf(r), nil))
	default:
		r.callers = append(r.callers, caller)
		where, _ := m.inTheWay(r)
		m.sayQueued(r, where, caller)
	}
}

func (m *model) do(s *modelSession, c lease.Command, n int) {
	l, end, code := m.command(s, c)
	if code != "" {
		m.say("%s", sayDone(n, lease.Lease{}, never, code))
		return
	}
	m.say("%s", sayDone(n, l, end, nil))
}

func (m *model) command(s *modelSession, c lease.Command) (lease.Lease, modelTime, lease.Code) {
	if code := m.alive(s); code != "" {
		return lease.Lease{}, never, code
	}
	switch c.Verb {
	case lease.Ping:
		return lease.Lease{}, never, ""
	case lease.Cancel:
		return m.cancel(s, c.ID)
	}
	r, only, code := m.named(s, c)
	if code != "" {
		return lease.Lease{}, never, code
	}
	switch c.Verb {
	case lease.Renew:
		return m.renew(r, only, c)
	case lease.Release:
		l, end := m.release(s, r, only)
		return l, end, ""
	}
	if !r.detached {
		r.detached = true
		for _, h := range r.holds {
			m.event(lease.EventDetached, r, h.key, h.token, m.now-h.since, "")
		}
	}
	return m.leaseOf(r), m.endOf(r), ""
}

// named finds what a command is for, and its one hold if it names one.
func (m *model) named(s *modelSession, c lease.Command) (*modelRequest, *modelHold, lease.Code) {
	if c.ID == "" {
		for _, r := range m.reqs {
			for _, h := range r.holds {
				if r.s == s && !r.s.ended && h.token == c.Token && c.Token != 0 {
					return r, h, ""
				}
			}
		}
		if c.Token == 0 {
			return nil, nil, lease.ErrRefused
		}
		return nil, nil, lease.ErrNotHeld
	}
	r := m.find(s, c.ID)
	if r == nil {
		var others []*modelRequest
		for _, o := range m.reqs {
			if o.q.ID == c.ID {
				others = append(others, o)
			}
		}
		switch len(others) {
		case 0:
			return nil, nil, lease.ErrNotHeld
		case 1:
			r = others[0]
		default:
			return nil, nil, lease.ErrRefused
		}
	}
	if r.waiting && c.Verb != lease.Detach {
		return nil, nil, lease.ErrNotHeld
	}
	if c.Key == "" {
		return r, nil, ""
	}
	for _, h := range r.holds {
		if h.key == c.Key {
			return r, h, ""
		}
	}
	return nil, nil, lease.ErrNotHeld
}

func (m *model) renew(r *modelRequest, only *modelHold, c lease.Command) (lease.Lease, modelTime, lease.Code) {
	if c.TTL != 0 {
		ttl, err := lease.NormalizeTTL(c.TTL)
		if err != nil {
			return lease.Lease{}, never, lease.CodeOf(err)
		}
		r.ttlChanged = r.ttlChanged || ttl != r.q.TTL
		r.q.TTL = ttl
	}
	end := m.lifetime(r)
	for _, h := range r.holds {
		if only == nil || only == h {
			h.end = end
		}
	}
	return m.leaseOf(r), m.endOf(r), ""
}

func (m *model) release(s *modelSession, r *modelRequest, only *modelHold) (lease.Lease, modelTime) {
	l := m.leaseOf(r)
	if only != nil {
		l.Holds = []lease.Hold{{Key: only.key, Token: only.token}}
	}
	for _, h := range slices.Clone(r.holds) {
		if only == nil || only == h {
			if s != r.s && !r.s.ended && !r.s.broken {
				m.say("notice %s %s %s %d %s", r.s.id, r.q.ID, h.key, h.token, lease.ErrNotHeld)
			}
			m.end(r, h, lease.EventReleased, released)
		}
	}
	return l, never
}

func (m *model) cancel(s *modelSession, id string) (lease.Lease, modelTime, lease.Code) {
	r := m.find(s, id)
	switch {
	case id == "":
		return lease.Lease{}, never, lease.ErrRefused
	case r == nil:
		if _, known := m.outcomes[s.id+"/"+id]; !known && s.grace != lease.NoGrace {
			m.outcomes[s.id+"/"+id] = lease.ErrCancelled
		}
		return lease.Lease{}, never, ""
	}
	m.stats.Cancelled++
	if r.waiting {
		m.leave(r, lease.ErrCancelled)
		return lease.Lease{}, never, ""
	}
	l, end := m.release(s, r, nil)
	return l, end, ""
}

func (m *model) force(f lease.ForceRequest) (held []lease.Hold) {
	rs, hs := m.holders(f.Key)
	for i, h := range hs {
		if f.Token == 0 || f.Token == h.token {
			held = append(held, lease.Hold{Key: f.Key, Token: h.token})
			m.end(rs[i], h, lease.EventForced, lease.ErrForced)
		}
	}
	return held
}

// silence drops the callers of a session's waiters.
func (m *model) silence(s *modelSession) {
	for _, r := range m.reqs {
		if r.s == s && r.waiting {
			r.callers = nil
		}
	}
}

func (m *model) suspend(s *modelSession) {
	if s.ended || s.broken {
		return
	}
	s.broken = true
	if s.grace == lease.NoGrace {
		m.endSession(s, lease.ErrSessionLost)
		return
	}
	if s.grace == 0 {
		s.seen = m.now // it owed no sign of life until now
	}
	m.silence(s)
}

func (m *model) resume(s *modelSession) (held []string, code lease.Code) {
	if s.ended {
		return nil, lease.ErrSessionLost
	}
	m.silence(s)
	s.broken = false
	s.seen = m.now
	for _, r := range m.reqs {
		if r.s == s && !r.waiting {
			held = append(held, sayDone(0, m.leaseOf(r), m.endOf(r), nil))
		}
	}
	slices.Sort(held)
	return held, ""
}

func (m *model) goodbye(s *modelSession) {
	if !s.ended {
		m.endSession(s, lease.ErrClosed)
	}
}

func sayDone(who int, l lease.Lease, end modelTime, err error) string {
	if err != nil {
		return fmt.Sprintf("done %d %s", who, lease.CodeOf(err))
	}
	return fmt.Sprintf("done %d %s %v ttl %v end %v waited %v detached %v", who, l.ID, l.Holds, l.TTL, end, l.Waited, l.Detached)
}

func sayEvent(e lease.Event) string {
	return fmt.Sprintf("event %s %s %q %s %d %d %d %v %s", e.Kind, e.Session, e.Label, e.Key, e.Mode, e.Limit, e.Token, e.After, e.Code)
}
