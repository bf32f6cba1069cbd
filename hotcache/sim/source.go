package sim

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// source is a cache as it is written by hand: a ring with virtual nodes; a fill lock and a lease for each name, for which
// losers poll; delete on write, of the key and of all its copies; memory with a time to live and nothing else. Each
// server counts for itself, and what it counts above a share of its window is hot in the next one: it has copies under
// the names key#0, key#1 and so on, wherever the ring puts those, each filled from the database.
type source struct {
	w       *world
	ring    sourceRing
	nodes   []*sourceNode
	servers []*sourceServer
	tokens  uint64
}

type sourceNode struct {
	values *lru[uint64]
	leases map[string]uint64 // tokens of those who may fill
	locks  map[string]sourceLock
}

type sourceLock struct {
	token uint64
	until time.Duration
}

type sourceServer struct {
	counts *core.TopK
	reads  int
	hot    map[string]bool
	l1     *lru[uint64]
}

const (
	sourcePoll = 5 * time.Millisecond
	sourceLast = 5 * time.Second // of a fill lock
)

func newSource(w *world) *source {
	s := &source{w: w, ring: newSourceRing(w.cfg)}
	for range w.cfg.Nodes {
		s.nodes = append(s.nodes, s.newNode())
	}
	for range w.cfg.Servers {
		s.servers = append(s.servers, s.newServer())
	}
	return s
}

func (s *source) newNode() *sourceNode {
	return &sourceNode{newLRU[uint64](s.w.cfg.NodeEntries), map[string]uint64{}, map[string]sourceLock{}}
}

func (s *source) newServer() *sourceServer {
	return &sourceServer{core.NewTopK(s.w.cfg.Counters), 0, map[string]bool{}, newLRU[uint64](s.w.cfg.L1Entries)}
}

// sourceRing is consistent hashing with virtual nodes. Where they lie is a matter of luck, and so is how even the load is:
// each seed has a ring of its own.
type sourceRing struct {
	points []uint64
	owners []int
}

func newSourceRing(cfg *Config) sourceRing {
	type point struct {
		at    uint64
		owner int
	}
	var all []point
	for n := range cfg.Nodes {
		for v := range cfg.VNodes {
			all = append(all, point{hash(fmt.Sprintf("%d-node%d-%d", cfg.Seed, n, v)), n})
		}
	}
	slices.SortFunc(all, func(a, b point) int { return cmp.Compare(a.at, b.at) })
	var r sourceRing
	for _, p := range all {
		r.points, r.owners = append(r.points, p.at), append(r.owners, p.owner)
	}
	return r
}

func (r *sourceRing) owner(name string) int {
	i, _ := slices.BinarySearch(r.points, hash(name))
	return r.owners[i%len(r.owners)]
}

// hash is FNV-1a, with the last step of SplitMix64 to spread it.
func hash(text string) uint64 {
	f := fnv.New64a()
	f.Write([]byte(text))
	x := f.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// count counts a read, and closes the window when it was the last.
func (s *source) count(v *sourceServer, key string) {
	v.counts.Add(key, 1)
	v.reads++
	if v.reads < s.w.cfg.windowReads() {
		return
	}
	clear(v.hot)
	for _, c := range v.counts.Top(s.w.cfg.Counters).Keys {
		if float64(c.Count) > s.w.cfg.HotShare*float64(v.reads) {
			v.hot[c.Key] = true
		}
	}
	s.w.res.hot(s.w.now, len(v.hot))
	v.counts.Reset()
	v.reads = 0
}

func copyName(key string, i int) string { return fmt.Sprintf("%s#%d", key, i) }

func (s *source) read(r *read) {
	v, key := s.servers[r.server], s.w.keys.names[r.key]
	s.count(v, key)
	if s.w.cfg.L1 {
		if version, ok := v.l1.get(s.w.now, key); ok {
			s.w.answer(r, version, fromMemory, false)
			return
		}
	}
	name := key
	if s.w.cfg.Replicate && v.hot[key] {
		name = copyName(key, s.w.random.IntN(s.w.cfg.Copies))
	}
	s.look(r, name, s.ring.owner(name), false)
}

// look reads a name at its node, and loads it if it is not there. It comes back until the one who loads it is done.
func (s *source) look(r *read, name string, at int, again bool) {
	w, n := s.w, s.nodes[at]
	from := fromNode
	if name != w.keys.names[r.key] {
		from = fromCopy
	}
	w.ask(w.nodes[at], call{bytes: keyBytes(name), reads: !again, do: func() (func(), int) {
		if version, ok := n.values.get(w.now, name); ok {
			return func() { s.serve(r, version, from, again) }, w.cfg.ValueBytes + overhead
		}
		if lock, ok := n.locks[name]; ok && lock.until > w.now {
			return func() { w.after(sourcePoll, func() { s.look(r, name, at, true) }) }, overhead
		}
		s.tokens++
		token := s.tokens
		n.locks[name] = sourceLock{token, w.now + sourceLast}
		n.leases[name] = token
		return func() { s.fill(r, name, at, token) }, overhead
	}, fail: func(error) { w.failed(r) }})
}

func (s *source) serve(r *read, version uint64, from origin, blocked bool) {
	if s.w.cfg.L1 {
		s.servers[r.server].l1.put(s.w.keys.names[r.key], version, s.w.now+s.w.cfg.L1TTL)
	}
	s.w.answer(r, version, from, blocked)
}

func (s *source) fill(r *read, name string, at int, token uint64) {
	w, n := s.w, s.nodes[at]
	w.load(r.key, false, func(version uint64) {
		w.ask(w.nodes[at], call{bytes: keyBytes(name) + w.cfg.ValueBytes, do: func() (func(), int) {
			if n.locks[name].token == token {
				delete(n.locks, name)
			}
			if n.leases[name] == token {
				delete(n.leases, name)
				n.values.put(name, version, w.now+w.cfg.TTL)
			} else {
				w.res.RefusedFills++
			}
			return func() { s.serve(r, version, fromLoad, true) }, overhead
		}, fail: func(error) { w.failed(r) }})
	})
}

// names returns the name of a key and those of its copies.
func (s *source) names(key int) []string {
	name := s.w.keys.names[key]
	names := []string{name}
	if s.w.cfg.Replicate {
		for i := range s.w.cfg.Copies {
			names = append(names, copyName(name, i))
		}
	}
	return names
}

// write deletes the key and every copy that it may have.
func (s *source) write(_, key int, _ uint64, done func(sure bool)) {
	w, names := s.w, s.names(key)
	left, sure := len(names), true
	ended := func(ok bool) {
		left--
		sure = sure && ok
		if left == 0 {
			done(sure)
		}
	}
	for _, name := range names {
		w.res.Invalidations++
		if w.drops() {
			w.after(timeout, func() { ended(false) })
			continue
		}
		n := s.nodes[s.ring.owner(name)]
		w.ask(w.nodes[s.ring.owner(name)], call{bytes: keyBytes(name), do: func() (func(), int) {
			n.values.drop(name)
			delete(n.leases, name)
			return func() { ended(true) }, overhead
		}, fail: func(error) { ended(false) }})
	}
}

// crash has another server begin, which knows nothing. Nobody deletes what was written.
func (s *source) crash(server, _ int, _ uint64) { s.servers[server] = s.newServer() }

// cut changes nothing: there is nothing to hear.
func (s *source) cut(int, bool) {}

func (s *source) lost(node int, kept bool) {
	if !kept {
		n := s.nodes[node]
		*n = *s.newNode()
	}
}

// peek looks at the copies too: the oldest is what somebody may get.
func (s *source) peek(key int) (version uint64, found bool) {
	for _, name := range s.names(key) {
		v, ok := s.nodes[s.ring.owner(name)].values.get(s.w.now, name)
		if ok && (!found || v < version) {
			version, found = v, true
		}
	}
	return version, found
}

func (s *source) end() {}
