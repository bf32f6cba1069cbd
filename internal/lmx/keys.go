package lmx

import (
	"hash/maphash"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// request is a lock or an acquire-many while it waits and while it holds. After
// conn to role its fields are guarded by the server's mutex.
type request struct {
	conn *Conn
	id   string // of the hold
	uuid string // of the frame: the same, but for an acquire-many
	echo string // uuid as it came
	key  string // as it came; of a lock only
	many bool
	role string // rwStatus as it came

	readKey string // of the lock of a write key: the key whose readers it is for

	keys     []string // what it waits for or holds; of an acquire-many what is left of it
	tokens   []lease.Hold
	stage    stage
	detached bool
	acked    bool // the client has the grant
	ending   bool // its own connection releases all of it: the uuid is free for another request
	count    int  // readersCount that went with the grant
	twin     *request
	older    *request // neighbours in unacked
	newer    *request
	due      time.Time // when it is sent again
	one      [1]string // where keys points for a lock: one allocation less
}

// stage is how far a request is.
type stage uint8

const (
	asked  stage = iota // the service has it
	queued              // it waits
	held
	gone // its outcome does not matter any more
)

// key is what is remembered of a key while it is in use.
type key struct {
	max     int // the last one that a request gave, 0 for none
	asked   int // requests that the service has not answered yet
	waiting int
	holders []*request // in the order of their grants
	monitor *monitor   // nil for most
}

// use returns the record of a key, making it when needed.
func (s *Server) use(name string) *key {
	k := s.keys[name]
	if k == nil {
		k = &key{}
		s.keys[name] = k
	}
	return k
}

// tidy forgets what is not in use of a key: its max, its monitor, and then it.
func (s *Server) tidy(name string, k *key) {
	if k.monitor != nil && k.monitor.quiet() {
		k.monitor = nil
	}
	if k.asked+k.waiting+len(k.holders) > 0 {
		return
	}
	k.max = 0
	if k.monitor == nil {
		delete(s.keys, name)
	}
}

// readersOf is how many readers a key's monitor counts.
func (s *Server) readersOf(name string) int {
	if k := s.keys[name]; k != nil && k.monitor != nil {
		return k.monitor.total
	}
	return 0
}

// waitingFor is how many requests of this dialect wait for a key.
func (s *Server) waitingFor(name string) int {
	if k := s.keys[name]; k != nil {
		return k.waiting
	}
	return 0
}

// ask counts r in.
func (s *Server) ask(r *request) {
	for _, name := range r.keys {
		s.use(name).asked++
	}
	r.conn.reqs[r.uuid] = r
	r.conn.waiting++
}

// enqueue notes that r waits.
func (s *Server) enqueue(r *request) {
	r.stage = queued
	for _, name := range r.keys {
		k := s.keys[name]
		k.asked--
		k.waiting++
	}
}

// grant notes that r holds its keys.
func (s *Server) grant(r *request, holds []lease.Hold) {
	for _, name := range r.keys {
		s.unwait(r, s.keys[name])
		k := s.keys[name]
		k.holders = append(k.holders, r)
	}
	r.stage, r.tokens = held, holds
	r.conn.waiting--
	r.twin = s.ids[r.id]
	s.ids[r.id] = r
}

func (s *Server) unwait(r *request, k *key) {
	if r.stage == queued {
		k.waiting--
	} else {
		k.asked--
	}
}

// drop forgets a request that did not come to hold.
func (s *Server) drop(r *request) {
	for _, name := range r.keys {
		k := s.keys[name]
		s.unwait(r, k)
		s.tidy(name, k)
	}
	r.stage = gone
	r.conn.waiting--
	delete(r.conn.reqs, r.uuid)
}

// end notes that r holds a key no more, and remembers that it did. It reports
// whether r held it until now.
func (s *Server) end(r *request, name string) bool {
	i := slices.Index(r.keys, name)
	if r.stage != held || i < 0 {
		return false
	}
	s.unhold(r, name)
	s.ended.add(r.id, name)
	if len(r.keys) == 1 {
		r.keys = nil
		s.forget(r)
	} else {
		r.keys = slices.Concat(r.keys[:i], r.keys[i+1:]) // an answer may still be made of the old ones
	}
	return true
}

// endAll is end for all that r holds.
func (s *Server) endAll(r *request) {
	for len(r.keys) > 0 && s.end(r, r.keys[0]) {
	}
}

func (s *Server) unhold(r *request, name string) {
	k := s.keys[name]
	k.holders = slices.DeleteFunc(k.holders, func(h *request) bool { return h == r })
	s.tidy(name, k)
}

// forget takes a request that held out of the indexes.
func (s *Server) forget(r *request) {
	r.stage = gone
	s.unacked.remove(r)
	if r.conn.reqs[r.uuid] == r {
		delete(r.conn.reqs, r.uuid)
	}
	at := s.ids[r.id]
	if at == r {
		if r.twin == nil {
			delete(s.ids, r.id)
		} else {
			s.ids[r.id] = r.twin
		}
		return
	}
	for ; at != nil; at = at.twin {
		if at.twin == r {
			at.twin = r.twin
			return
		}
	}
}

// ends notes that c releases a key, or all, of r. What comes behind on the same
// connection finds the uuid free, though the service has not answered yet. From
// another connection there is no order that anybody could count on.
func (r *request) ends(c *Conn, name string) {
	r.ending = r.ending || r.conn == c && (name == "" || len(r.keys) == 1)
}

// holder finds the request that holds a key under an id; one of c comes first. An
// empty key means any.
func (s *Server) holder(c *Conn, id, name string) *request {
	var found *request
	for r := s.ids[id]; r != nil; r = r.twin {
		if name != "" && !slices.Contains(r.keys, name) {
			continue
		}
		if r.conn == c {
			return r
		}
		if found == nil {
			found = r
		}
	}
	return found
}

func (r *request) tokenOf(name string) lease.Token {
	for _, h := range r.tokens {
		if h.Key == name {
			return h.Token
		}
	}
	return 0
}

// maxEnded bounds how many ended holds are remembered for an unlock that comes
// late.
const maxEnded = 16_384

// ended remembers which holds have ended, the newest ones. It keeps a hash of each
// instead of its id and key: every unlock comes by here, and strings would cost
// more than all else that an unlock does. That two of so few hashes are equal is
// less likely than a fault of the machine, and nobody can bring it about without
// the seed.
type ended struct {
	hash  maphash.Hash
	known map[uint64]int // and where in ring
	ring  []uint64
	next  int
}

func (e *ended) of(id, name string) uint64 {
	e.hash.Reset()
	_ = e.hash.WriteByte(byte(len(id))) // where id ends and name begins
	_, _ = e.hash.WriteString(id)
	_, _ = e.hash.WriteString(name)
	return e.hash.Sum64()
}

func (e *ended) add(id, name string) {
	h := e.of(id, name)
	if e.known == nil {
		e.known = make(map[uint64]int)
	}
	if len(e.ring) < maxEnded {
		e.ring = append(e.ring, h)
	} else {
		if e.known[e.ring[e.next]] == e.next {
			delete(e.known, e.ring[e.next])
		}
		e.ring[e.next] = h
	}
	e.known[h] = e.next
	e.next = (e.next + 1) % maxEnded
}

// take reports whether the hold is known to have ended, and forgets it.
func (e *ended) take(id, name string) bool {
	h := e.of(id, name)
	_, ok := e.known[h]
	delete(e.known, h)
	return ok
}
