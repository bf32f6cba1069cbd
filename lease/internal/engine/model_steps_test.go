package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// step gives one random command to the engine and to the model.
func (p *pair) step() {
	if p.rng.IntN(5) == 0 {
		p.advance()
		return
	}
	s := p.session()
	h := p.open[s]
	switch p.rng.IntN(16) {
	case 0, 1, 2, 3, 4, 5, 6:
		p.acquire(s, h, p.request())
	case 7:
		if len(p.asked) > 0 {
			a := p.asked[p.rng.IntN(len(p.asked))]
			p.acquire(a.s, p.open[a.s], p.altered(a.q))
		}
	case 8, 9, 10, 11:
		p.command(s, h)
	case 12:
		p.force()
	case 13:
		p.where += "suspend " + s.id
		p.e.Suspend(h.s, h.epoch)
		p.carry()
		p.m.suspend(s)
	case 14:
		p.resume(s)
	case 15:
		if p.rng.IntN(3) == 0 {
			p.where += "goodbye " + s.id
			_ = p.e.CloseSession(h.s, h.epoch)
			p.carry()
			p.m.goodbye(s)
		}
	}
}

func (p *pair) advance() {
	spans := []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 30 * time.Millisecond, 400 * time.Millisecond, 5 * time.Second, time.Hour}
	now := p.m.now + time.Duration(p.rng.Int64N(int64(spans[p.rng.IntN(len(spans))])+1))
	if p.rng.IntN(2) == 0 {
		now = now.Truncate(time.Millisecond)
		now = max(now, p.m.now)
	}
	p.where += fmt.Sprintf("advance to %v", now)
	p.e.Advance(now)
	p.carry()
	p.m.advance(now)
}

// session picks a session that can be used, or opens one.
func (p *pair) session() *modelSession {
	var usable []*modelSession
	for _, s := range p.m.sessions {
		if !s.ended && !s.broken {
			usable = append(usable, s)
		}
	}
	if len(usable) > 0 && (len(usable) > 4 || p.rng.IntN(8) > 0) {
		return usable[p.rng.IntN(len(usable))]
	}
	s := &modelSession{id: fmt.Sprint("s", len(p.m.sessions)), seen: p.m.now,
		grace: []time.Duration{0, 0, lease.NoGrace, 20 * time.Millisecond, 3 * time.Second, time.Hour}[p.rng.IntN(6)]}
	h := &modelHandle{}
	var err error
	h.s, h.epoch, err = p.e.Open(s.id, lease.SessionOptions{Name: s.id, Grace: s.grace, Notify: p.notify(s)})
	if err != nil {
		p.m.fault("open: %v", err)
	}
	p.open[s] = h
	p.m.sessions = append(p.m.sessions, s)
	return s
}

func (p *pair) notify(s *modelSession) func(lease.Notice) {
	return func(n lease.Notice) {
		p.said = append(p.said, fmt.Sprintf("notice %s %s %s %d %s", s.id, n.ID, n.Key, n.Token, n.Code))
	}
}

func (p *pair) request() lease.Request {
	rng := p.rng
	r := lease.Request{
		ID: fmt.Sprint("r", rng.IntN(60)), Keys: []string{fmt.Sprint("k", rng.IntN(4))}, Mode: lease.Mode(rng.IntN(3)),
		TTL: []time.Duration{time.Millisecond, 10 * time.Millisecond, 500 * time.Millisecond, time.Minute, lease.Forever, lease.MaxTTL}[rng.IntN(6)],
		Try: rng.IntN(6) == 0, Detach: rng.IntN(6) == 0,
	}
	for rng.IntN(3) == 0 && len(r.Keys) < 4 {
		if k := fmt.Sprint("k", rng.IntN(4)); !slices.Contains(r.Keys, k) {
			r.Keys = append(r.Keys, k)
		}
	}
	if r.Mode == lease.Counted {
		r.Limit = 1 + rng.IntN(3)
	}
	r.PreferReaders = r.Mode == lease.Shared && rng.IntN(4) == 0
	if !r.Try && rng.IntN(3) == 0 {
		r.Wait = []time.Duration{1, time.Millisecond, 20 * time.Millisecond, time.Second, lease.MaxWait}[rng.IntN(5)]
	}
	if rng.IntN(4) == 0 {
		r.Waited = []time.Duration{time.Millisecond, time.Second, lease.MaxWait}[rng.IntN(3)]
	}
	if rng.IntN(5) == 0 {
		r.LockDelay = []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Hour}[rng.IntN(3)]
	}
	if rng.IntN(5) == 0 {
		r.MaxHold = []time.Duration{1, 15 * time.Millisecond, time.Second, lease.MaxTTL}[rng.IntN(4)]
	}
	if rng.IntN(5) == 0 {
		r.Label = "label"
	}
	return r
}

// altered is a repeat, now and then with other content.
func (p *pair) altered(q lease.Request) lease.Request {
	q.Keys = slices.Clone(q.Keys)
	if p.rng.IntN(3) > 0 {
		return q
	}
	switch p.rng.IntN(6) {
	case 0:
		q.Label += "!"
	case 1:
		q.LockDelay = 7 * time.Millisecond
	case 2:
		q.MaxHold = 7 * time.Millisecond
	case 3:
		q.TTL = 7 * time.Millisecond
	case 4:
		q.Keys = append(q.Keys, fmt.Sprint("k", len(q.Keys)+10))
	case 5:
		q.Try, q.Wait = !q.Try, 0
	}
	return q
}

func (p *pair) acquire(s *modelSession, h *modelHandle, q lease.Request) {
	if s.broken {
		return // nobody is there to ask
	}
	p.where += fmt.Sprintf("acquire %s %+v", s.id, q)
	if err := q.Normalize(); err != nil {
		p.m.fault("normalize: %v", err)
		return
	}
	p.n++
	p.e.Acquire(h.s, h.epoch, &q, modelCaller{p, p.n})
	p.carry()
	p.m.acquire(s, q, p.n)
	p.asked = append(p.asked, modelAsked{s, q})
}

func (p *pair) command(s *modelSession, h *modelHandle) {
	rng := p.rng
	c := lease.Command{Verb: lease.Verb(rng.IntN(5)), TTL: []time.Duration{0, 0, 5 * time.Millisecond, time.Second, lease.Forever, -1}[rng.IntN(6)]}
	if len(p.m.reqs) > 0 && rng.IntN(8) > 0 {
		r := p.m.reqs[rng.IntN(len(p.m.reqs))]
		c.ID = r.q.ID
		switch {
		case rng.IntN(3) == 0 && len(r.holds) > 0 && c.Verb != lease.Cancel:
			c.ID, c.Token = "", r.holds[rng.IntN(len(r.holds))].token
		case rng.IntN(3) == 0 && c.Verb != lease.Cancel:
			c.Key = r.q.Keys[rng.IntN(len(r.q.Keys))]
		}
		if rng.IntN(3) > 0 && !r.s.ended && !r.s.broken {
			s, h = r.s, p.open[r.s]
		}
	} else {
		c.ID = []string{"", "r1", "r2"}[rng.IntN(3)]
	}
	p.where += fmt.Sprintf("%s by %s %+v", c.Verb, s.id, c)
	p.n++
	n := p.n
	p.e.Do(h.s, h.epoch, c, func(l lease.Lease, err error) {
		f := p.e.Out().Effects
		i := slices.IndexFunc(f, func(f Effect) bool { return f.Kind == EffectReply })
		p.said = append(p.said, sayDone(n, l, f[i].End, err))
	})
	p.carry()
	p.m.do(s, c, n)
}

func (p *pair) force() {
	f := lease.ForceRequest{Key: fmt.Sprint("k", p.rng.IntN(4))}
	if _, hs := p.m.holders(f.Key); len(hs) > 0 && p.rng.IntN(2) == 0 {
		f.Token = hs[p.rng.IntN(len(hs))].token
	}
	p.where += fmt.Sprintf("force %+v", f)
	got, err := p.e.Force(f)
	p.carry()
	held := p.m.force(f)
	switch {
	case len(held) == 0 && lease.CodeOf(err) != lease.ErrNotHeld, len(held) > 0 && err != nil, !slices.Equal(got.Holds, held):
		p.m.fault("force ended %v, %v; want %v", got, err, held)
	case len(held) > 0 && got.Token <= p.m.token:
		p.m.fault("force gave token %d after %d", got.Token, p.m.token)
	}
	p.m.token = max(p.m.token, got.Token)
}

func (p *pair) resume(s *modelSession) {
	// Mostly one that is cut off.
	for _, o := range p.m.sessions {
		if o.broken && !o.ended || o.ended && p.rng.IntN(20) == 0 {
			s = o
		}
	}
	p.where += "resume " + s.id
	es, epoch, leases, err := p.e.Resume(s.id, lease.SessionOptions{Notify: p.notify(s)})
	p.carry()
	held, code := p.m.resume(s)
	if lease.CodeOf(err) != code {
		p.m.fault("resume: %v, want %q", err, code)
		return
	}
	if err != nil {
		return
	}
	h := p.open[s]
	old := *h
	h.s, h.epoch = es, epoch
	var got []string
	for _, f := range leases {
		got = append(got, sayDone(0, f.Lease, f.End, nil))
	}
	slices.Sort(got)
	if !slices.Equal(got, held) {
		p.m.fault("resume gave %v, want %v", got, held)
	}
	p.void(old)
}

// void tries a connection that was taken over: nothing may come of it.
func (p *pair) void(old modelHandle) {
	var code lease.Code
	p.e.Do(old.s, old.epoch, lease.Command{Verb: lease.Ping}, func(_ lease.Lease, err error) { code = lease.CodeOf(err) })
	p.e.Suspend(old.s, old.epoch)
	if err := p.e.CloseSession(old.s, old.epoch); lease.CodeOf(err) != lease.ErrSessionLost {
		p.m.fault("a connection that was taken over could say goodbye: %v", err)
	}
	for _, f := range p.e.Out().Effects {
		if f.Kind == EffectReply {
			f.Reply(f.Lease, f.Err)
		}
	}
	p.e.Out().Reset()
	if code != lease.ErrSessionLost {
		p.m.fault("a connection that was taken over could ping: %q", code)
	}
}
