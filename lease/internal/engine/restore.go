package engine

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Restoring rebuilds an engine from its records, before Start.
type Restoring struct {
	e      *Engine
	tokens map[uint64]*hold
	delays map[string]time.Duration
	// promised is the longest ttl that a grant may have had without being
	// synced.
	promised time.Duration
	// owed is a time of quiet that had begun and may not have ended.
	owed time.Duration
}

// Restore begins the rebuilding of e, which must be new.
func (e *Engine) Restore() *Restoring {
	return &Restoring{e: e, tokens: make(map[uint64]*hold), delays: make(map[string]time.Duration)}
}

// Apply applies one record. Records that repeat or end what is not there change
// nothing.
func (rs *Restoring) Apply(rec []byte) error {
	r, err := DecodeRecord(rec)
	if err != nil {
		return err
	}
	e := rs.e
	switch r.Kind {
	case recMark:
		e.mark = max(e.mark, r.Token)
		rs.promised = r.TTL
	case recQuiet:
		rs.owed = r.TTL
	case recSession:
		if e.sessions[r.ID] == nil {
			e.sessions[r.ID] = &Session{id: r.ID, party: r.Party, grace: r.TTL, journaled: true, broken: true}
		}
	case recSessionEnd:
		// Only marked: a snapshot may say so before the records of the session's
		// last grants and ends come.
		if s := e.sessions[r.ID]; s != nil {
			s.ended = true
		}
	case recGrant:
		return rs.grant(r.Grant)
	case recEnd:
		if h := rs.tokens[r.Token]; h != nil {
			rs.end(h)
		}
		if r.TTL > 0 { // also of a hold that ended before the snapshot came to it
			rs.delays[r.Key] = r.TTL
		}
	case recRenew:
		if h := rs.tokens[r.Token]; h != nil {
			h.req.ttl = r.TTL
			h.req.flags |= ttlChanged
		}
	case recDetach:
		if h := rs.tokens[r.Token]; h != nil {
			h.req.flags |= detached
		}
	case recDelay:
		rs.delays[r.Key] = r.TTL
		if r.TTL == 0 {
			delete(rs.delays, r.Key)
		}
	}
	return nil
}

func (rs *Restoring) grant(g *grantRecord) error {
	e := rs.e
	s := e.sessions[g.Session]
	if s == nil {
		return fmt.Errorf("journal: grant %v to a session that is not in the journal", g.Tokens)
	}
	for _, t := range g.Tokens {
		if t != 0 && rs.tokens[t] != nil {
			return nil // told already, by the snapshot
		}
	}
	r := &request{
		id: g.Request, sess: s, mode: g.Mode, limit: g.Limit, ttl: g.TTL, flags: g.Flags &^ (sessionEnded | namesake),
		holds: make([]hold, len(g.Keys)),
	}
	if g.Label != "" || g.MaxHold > 0 || g.LockDelay > 0 {
		r.extra = &extra{label: g.Label, maxHold: g.MaxHold, lockDelay: g.LockDelay}
	}
	for i, name := range g.Keys {
		h := &r.holds[i]
		*h = hold{key: &key{name: name}, req: r, token: g.Tokens[i], end: never}
		if h.token != 0 {
			r.live++
			rs.tokens[h.token] = h
			e.token = max(e.token, h.token)
		}
	}
	if r.live == 0 {
		return nil
	}
	s.link(r)
	e.ids.add(r)
	return nil
}

func (rs *Restoring) end(h *hold) {
	delete(rs.tokens, h.token)
	h.token = 0
	if h.req.live--; h.req.live == 0 {
		rs.e.forget(h.req, released)
	}
}

// endSession forgets a session. Its detached holds stay.
func (rs *Restoring) endSession(s *Session) {
	for r := s.first; r != nil; r = s.first {
		if r.flags&detached != 0 {
			s.unlink(r)
			r.flags |= sessionEnded
			continue
		}
		for i := range r.holds {
			if h := &r.holds[i]; h.live() {
				rs.end(h)
			}
		}
	}
	delete(rs.e.sessions, s.id)
}

// Start ends the rebuilding: every lease gets its full ttl from now, every
// session its grace, every lock-delay its whole length. After an unclean end of
// a lazy journal nothing is granted until the longest promise that may have been
// forgotten has passed.
func (rs *Restoring) Start(clean bool, floor lease.Token) {
	e := rs.e
	for _, s := range e.sessions {
		if s.ended {
			rs.endSession(s)
		}
	}
	e.token = max(e.token, e.mark, uint64(floor))
	e.mark, e.safe = e.token, e.token
	for _, token := range sortedTokens(rs.tokens) { // holders in the order of their grants
		h := rs.tokens[token]
		h.key = e.key(h.key.name)
		h.end = e.lifetime(h.req)
		h.req.live-- // hang counts it
		e.hang(h)
	}
	for r := range e.ids.all {
		if len(r.holds) > 1 {
			e.stats.ManyHolds++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(rs.delays)) {
		e.delay(e.key(name), rs.delays[name])
	}
	if !clean {
		rs.owed = max(rs.owed, rs.promised)
	}
	if rs.owed > 0 {
		e.quietUntil = rs.owed
		e.record(Record{Kind: recQuiet, TTL: rs.owed}, true)
	}
	e.outcomes = newOutcomes(e.keys.seed)
	for _, id := range slices.Sorted(maps.Keys(e.sessions)) {
		s := e.sessions[id]
		if s.grace == lease.NoGrace {
			e.endSession(s, lease.ErrSessionLost)
			continue
		}
		e.graceEnds.add(s)
	}
	e.stats = lease.Stats{Holds: e.stats.Holds, SharedHolds: e.stats.SharedHolds, ManyHolds: e.stats.ManyHolds}
	e.pass()
}

func sortedTokens(m map[uint64]*hold) []uint64 {
	tokens := make([]uint64, 0, len(m))
	for t := range m {
		tokens = append(tokens, t)
	}
	slices.Sort(tokens)
	return tokens
}
