package engine

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// The model is the contract written down once more, as plainly as possible: lists
// that are scanned from end to end, no index, no wheel, nothing kept twice. It
// decides who may be granted and what ends; only the choice among several waiters
// that may be granted at once, and the tokens, it takes from the engine, and
// checks that each was allowed at its turn and that none is left who could be
// granted.

type modelSession struct {
	id            string
	grace         time.Duration
	seen          time.Duration
	broken, ended bool
}

// due is when the session ends by itself, or never.
func (s *modelSession) due() time.Duration {
	switch {
	case s.grace > 0:
		return s.seen + s.grace
	case s.grace == 0 && s.broken:
		return s.seen + lease.DefaultGrace
	}
	return never
}

type modelHold struct {
	key        string
	token      lease.Token
	end, since time.Duration
}

type modelRequest struct {
	s          *modelSession
	q          lease.Request
	ttlChanged bool
	detached   bool
	waiting    bool
	callers    []int
	arrival    time.Duration
	seq        int
	until      time.Duration
	waited     time.Duration
	maxEnd     time.Duration
	holds      []*modelHold
}

func (r *modelRequest) shared() bool { return r.q.Mode == lease.Shared }

func (r *modelRequest) limit() int {
	if r.q.Mode == lease.Counted {
		return r.q.Limit
	}
	return 1
}

func (r *modelRequest) earlier(o *modelRequest) bool {
	return r.arrival < o.arrival || r.arrival == o.arrival && r.seq < o.seq
}

type model struct {
	defect   string // planted, to see that the comparison notices
	now      time.Duration
	quiet    time.Duration // nothing is granted before
	seq      int
	token    lease.Token
	sessions []*modelSession
	reqs     []*modelRequest // waiting or holding, oldest first
	outcomes map[string]lease.Code
	delays   map[string]time.Duration
	stats    lease.Stats

	said   []string            // what the engine should say in this step, in any order
	grants map[int]lease.Lease // what the engine granted in this step, by caller
	order  []int               // the callers of grants in the order of the engine's effects
	faults []string
}

func (m *model) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

func (m *model) say(format string, args ...any) {
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

func (m *model) find(s *modelSession, id string) *modelRequest {
	for _, r := range m.reqs {
		if r.s == s && r.q.ID == id {
			return r
		}
	}
	return nil
}

// holders lists who holds a key, in the order of their grants.
func (m *model) holders(key string) (rs []*modelRequest, hs []*modelHold) {
	for _, r := range m.reqs {
		for _, h := range r.holds {
			if h.key == key {
				at := sort.Search(len(hs), func(i int) bool { return hs[i].token > h.token })
				rs, hs = slices.Insert(rs, at, r), slices.Insert(hs, at, h)
			}
		}
	}
	return rs, hs
}

// room is the rule of Mode.
func (m *model) room(r *modelRequest, key string) bool {
	if _, delayed := m.delays[key]; delayed {
		return false
	}
	n, limit := 1, r.limit()
	held, _ := m.holders(key)
	for _, h := range held {
		if h.shared() != r.shared() {
			return false
		}
		n++
		if m.defect != "a counted request looks at its own limit only" {
			limit = min(limit, h.limit())
		}
	}
	return r.shared() || n <= limit
}

// queueAhead reports whether an earlier request that conflicts waits on key.
func (m *model) queueAhead(r *modelRequest, key string) bool {
	if r.q.PreferReaders {
		return false
	}
	for _, o := range m.reqs {
		passedOver := len(o.callers) == 0 && m.defect != "a waiter without a connection is in the way"
		if !o.waiting || passedOver || o == r || !slices.Contains(o.q.Keys, key) || !o.earlier(r) {
			continue
		}
		if o.shared() && r.shared() || r.shared() && m.defect == "readers pass writers that wait" {
			continue
		}
		return true
	}
	return false
}

// inTheWay is the first key that keeps r from being granted.
func (m *model) inTheWay(r *modelRequest) (string, bool) {
	for _, k := range r.q.Keys {
		if !m.room(r, k) || m.queueAhead(r, k) {
			return k, true
		}
	}
	return "", m.quiet > 0
}

func (m *model) grant(r *modelRequest, l lease.Lease) {
	r.waiting = false
	if len(l.Holds) != len(r.q.Keys) {
		m.fault("%s was granted %d of %d keys", r.q.ID, len(l.Holds), len(r.q.Keys))
		return
	}
	end := m.lifetime(r)
	for i, k := range r.q.Keys {
		h := l.Holds[i]
		if h.Key != k || h.Token <= m.token {
			m.fault("%s was granted %v after token %d", r.q.ID, l.Holds, m.token)
		}
		m.token = h.Token
		r.holds = append(r.holds, &modelHold{key: k, token: h.Token, end: end, since: m.now})
		m.event(lease.EventGranted, r, k, h.Token, r.waited, "")
	}
	m.stats.Granted++
	for _, c := range r.callers {
		m.say("%s", sayDone(c, m.leaseOf(r), m.endOf(r), nil))
	}
}

func (m *model) lifetime(r *modelRequest) time.Duration {
	end := never
	if r.q.TTL != lease.Forever {
		end = m.now + r.q.TTL
	}
	if r.q.MaxHold > 0 {
		if r.maxEnd == 0 {
			r.maxEnd = m.now + r.q.MaxHold
		}
		if end == never || r.maxEnd < end {
			end = r.maxEnd
		}
	}
	return end
}

func (m *model) leaseOf(r *modelRequest) lease.Lease {
	l := lease.Lease{ID: r.q.ID, TTL: r.q.TTL, Detached: r.detached, Waited: r.waited}
	for _, h := range r.holds {
		l.Holds = append(l.Holds, lease.Hold{Key: h.key, Token: h.token})
	}
	return l
}

func (m *model) endOf(r *modelRequest) time.Duration {
	end := never
	for _, h := range r.holds {
		if h.end != never && (end == never || h.end < end) {
			end = h.end
		}
	}
	return end
}

// end ends one hold; what remains of its request stays.
func (m *model) end(r *modelRequest, h *modelHold, kind lease.EventKind, how lease.Code) {
	r.holds = slices.DeleteFunc(r.holds, func(x *modelHold) bool { return x == h })
	if m.defect == "losing one key of a request loses all" && how == lease.ErrExpired {
		r.holds = nil
	}
	delays := how != released && (how != lease.ErrForced || m.defect != "a force starts no lock-delay")
	if delays && r.q.LockDelay > 0 {
		m.delays[h.key] = max(m.delays[h.key], m.now+r.q.LockDelay)
	}
	m.event(kind, r, h.key, h.token, m.now-h.since, "")
	switch how {
	case released:
		m.stats.Released++
	case lease.ErrExpired:
		m.stats.Expired++
	case lease.ErrForced:
		m.stats.Forced++
	case lease.ErrSessionLost:
		m.stats.Ended++
	}
	if how != released && !r.s.ended && !r.s.broken {
		m.say("notice %s %s %s %d %s", r.s.id, r.q.ID, h.key, h.token, how)
	}
	if len(r.holds) == 0 {
		m.forget(r, how)
	}
}

func (m *model) forget(r *modelRequest, how lease.Code) {
	m.reqs = slices.DeleteFunc(m.reqs, func(x *modelRequest) bool { return x == r })
	if r.s.grace != lease.NoGrace {
		m.outcomes[r.s.id+"/"+r.q.ID] = how
	}
}

// leave ends a waiting request without a grant.
func (m *model) leave(r *modelRequest, code lease.Code) {
	for _, c := range r.callers {
		m.say("%s", sayDone(c, lease.Lease{}, never, code))
	}
	for _, k := range r.q.Keys {
		m.event(lease.EventDequeued, r, k, 0, m.now-r.arrival, code)
	}
	r.waiting = false
	m.forget(r, code)
}

func (m *model) endSession(s *modelSession, why lease.Code) {
	for _, r := range slices.Clone(m.reqs) {
		switch {
		case r.s != s:
		case r.waiting:
			m.leave(r, why)
		case r.detached && m.defect != "a detached hold ends with its session":
		default:
			kind, how := lease.EventEnded, lease.ErrSessionLost
			if why == lease.ErrClosed {
				kind, how = lease.EventReleased, released
			}
			for _, h := range slices.Clone(r.holds) {
				m.end(r, h, kind, how)
			}
		}
	}
	if why != lease.ErrClosed && !s.broken {
		m.say("notice %s   0 %s", s.id, lease.ErrSessionLost)
	}
	s.ended = true
}

// dueBy says whether something with this deadline has come: never before it, and
// with the first whole millisecond after it.
func (m *model) dueBy(at time.Duration) bool {
	return at != never && (at+time.Millisecond-1)/time.Millisecond <= m.now/time.Millisecond
}

// advance ends everything that is due.
func (m *model) advance(now time.Duration) {
	m.now = now
	for _, r := range slices.Clone(m.reqs) {
		for _, h := range slices.Clone(r.holds) {
			if m.dueBy(h.end) && slices.Contains(r.holds, h) {
				m.end(r, h, lease.EventExpired, lease.ErrExpired)
			}
		}
	}
	for _, s := range m.sessions {
		if !s.ended && m.dueBy(s.due()) {
			m.endSession(s, lease.ErrSessionLost)
		}
	}
	for k, until := range m.delays {
		if m.dueBy(until) {
			delete(m.delays, k)
		}
	}
	for _, r := range slices.Clone(m.reqs) {
		if r.waiting && m.dueBy(r.until) {
			m.leave(r, lease.ErrTimeout)
			m.stats.TimedOut++
		}
	}
	if m.quiet > 0 && now >= m.quiet {
		m.quiet = 0
	}
}

// settle follows the engine's grants of waiters and ends the step.
func (m *model) settle() {
	for _, c := range m.order {
		i := slices.IndexFunc(m.reqs, func(r *modelRequest) bool { return r.waiting && slices.Contains(r.callers, c) })
		if i < 0 {
			continue // one of several callers, or answered by the command
		}
		r := m.reqs[i]
		if where, blocked := m.inTheWay(r); blocked {
			m.fault("%s was granted though %q is in the way", r.q.ID, where)
		}
		r.waited = m.now - r.arrival
		m.grant(r, m.grants[c])
	}
	for _, r := range m.reqs {
		if _, blocked := m.inTheWay(r); r.waiting && len(r.callers) > 0 && !blocked {
			m.fault("%s waits though nothing is in the way", r.q.ID)
		}
	}
}

func (m *model) event(kind lease.EventKind, r *modelRequest, key string, token lease.Token, after time.Duration, code lease.Code) {
	m.say("%s", sayEvent(lease.Event{Kind: kind, Party: lease.Party{Session: r.s.id, Label: r.q.Label}, Key: key,
		Mode: r.q.Mode, Limit: r.q.Limit, Token: token, After: after, Code: code}))
}

// listing is what List should show.
func (m *model) listing() string {
	names := map[string]bool{}
	for k := range m.delays {
		names[k] = true
	}
	for _, r := range m.reqs {
		for _, h := range r.holds {
			names[h.key] = true
		}
		for _, k := range r.q.Keys {
			names[k] = names[k] || r.waiting
		}
	}
	var out strings.Builder
	for k, there := range names {
		if !there {
			delete(names, k)
		}
	}
	for _, k := range sortedKeys(names) {
		fmt.Fprintf(&out, "%s", k)
		if until := m.delays[k]; until > m.now {
			fmt.Fprintf(&out, " delay %v", until-m.now)
		}
		rs, hs := m.holders(k)
		for i, h := range hs {
			left := lease.Forever
			if h.end != never {
				left = max(h.end-m.now, 0)
			}
			fmt.Fprintf(&out, " held %s %q %d %d %d %v %v %v %v %v", rs[i].s.id, rs[i].q.Label, rs[i].q.Mode, rs[i].q.Limit, h.token,
				m.now-h.since, rs[i].q.TTL, left, rs[i].detached, rs[i].s.broken)
		}
		for _, r := range m.queue(k) {
			left := lease.Forever
			if r.until != never {
				left = max(r.until-m.now, 0)
			}
			fmt.Fprintf(&out, " waits %s %d %v %v %v", r.s.id, len(r.q.Keys), m.now-r.arrival, left, len(r.callers) == 0)
		}
		out.WriteString("\n")
	}
	return out.String()
}

func (m *model) queue(key string) []*modelRequest {
	var q []*modelRequest
	for _, r := range m.reqs {
		if r.waiting && slices.Contains(r.q.Keys, key) {
			q = append(q, r)
		}
	}
	sort.Slice(q, func(i, j int) bool { return q[i].earlier(q[j]) })
	return q
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
