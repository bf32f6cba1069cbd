package leaselocal

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/internal/journal"
	"github.com/latchkey-go/latchkey/lease/internal/journal/crashfs"
)

// The simulation runs a durable service through several lives on a disk that
// fails or crashes during one of the journal's own calls, in virtual time, with
// clients that hold, renew, release, force, vanish, resume and repeat. The model
// knows what clients were told, and only that; it objects when
//
//   - a grant conflicts with a lease that its client may still believe in,
//   - a token is not above every token told before it for its key,
//   - a live lease that was acknowledged is not there after a restart, though
//     the policy promised it,
//   - a release, a loss or a goodbye that was acknowledged is undone.
//
// A failing seed prints itself.

// told is one hold as its client knows it.
type told struct {
	key       string
	token     lease.Token
	mode      lease.Mode
	limit     int
	ttl       time.Duration
	deadline  time.Time // zero: none
	given     bool      // its client asked for its end, or was told of it
	undone    bool      // its end was acknowledged: it must never be seen again
	forgotten bool
	detached  bool
	client    *simClient
	session   string
	id        string
}

type model struct {
	mu     sync.Mutex
	holds  []*told
	high   map[string]lease.Token
	faults []string
	policy Fsync

	// diskFailed: losses are told from here on, but may not be in the journal.
	diskFailed atomic.Bool
}

func (m *model) fault(format string, args ...any) {
	m.faults = append(m.faults, fmt.Sprintf(format, args...))
}

// believed reports whether a client may still act on h.
func (m *model) believed(h *told, now time.Time) bool {
	if h.given || !h.deadline.IsZero() && !now.Before(h.deadline) {
		return false
	}
	return h.detached || now.Before(h.client.until())
}

func (m *model) grant(c *simClient, r lease.Request, l lease.Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for _, g := range l.Holds {
		if slices.ContainsFunc(m.holds, func(h *told) bool { return h.token == g.Token && h.key == g.Key && h.id == r.ID }) {
			continue // a repeat of a grant that was told already
		}
		// Shared and counted grants may be told in another order than they were
		// made, when an answer is lost and asked for again.
		if g.Token <= m.high[g.Key] && r.Mode == lease.Exclusive || slices.ContainsFunc(m.holds, func(h *told) bool { return h.token == g.Token }) {
			m.fault("key %s: token %d after %d", g.Key, g.Token, m.high[g.Key])
		}
		m.high[g.Key] = max(m.high[g.Key], g.Token)
		n, limit := 1, 1
		if r.Mode == lease.Counted {
			limit = r.Limit
		}
		for _, h := range m.holds {
			if h.key != g.Key || !m.believed(h, now) {
				continue
			}
			if (h.mode == lease.Shared) != (r.Mode == lease.Shared) {
				m.fault("key %s: %s token %d granted beside %s token %d", g.Key, r.Mode, g.Token, h.mode, h.token)
			}
			if r.Mode != lease.Shared {
				n++
				limit = min(limit, max(h.limit, 1))
			}
		}
		if r.Mode != lease.Shared && n > limit {
			m.fault("key %s: token %d is holder %d of %d", g.Key, g.Token, n, limit)
		}
		m.holds = append(m.holds, &told{key: g.Key, token: g.Token, mode: r.Mode, limit: r.Limit, ttl: r.TTL,
			deadline: l.Deadline, detached: r.Detach, client: c, session: c.id, id: r.ID})
	}
}

// end marks holds as given up or undone.
func (m *model) end(undone bool, match func(*told) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, h := range m.holds {
		if match(h) {
			h.given = true
			h.undone = h.undone || undone
		}
	}
}

// restarted compares what came back with what was told.
func (m *model) restarted(l lease.Listing, lossless bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := map[lease.Token]bool{}
	for _, k := range l.Keys {
		for _, h := range k.Holders {
			there[h.Token] = true
		}
	}
	now := time.Now()
	for _, h := range m.holds {
		if h.undone && there[h.token] && !lossless {
			h.undone = false // the policy let the crash forget its end
		}
		if h.undone && there[h.token] {
			m.fault("key %s: token %d was over and is back", h.key, h.token)
		}
		promised := (lossless || h.ttl > time.Minute) && !h.forgotten
		if !lossless && !there[h.token] {
			h.forgotten = true // the policy let the crash forget it; it must still exclude
		}
		if promised && m.believed(h, now) && !there[h.token] {
			m.fault("key %s: live lease with token %d is gone", h.key, h.token)
		}
	}
}

// simClient is one session through all lives.
type simClient struct {
	m     *model
	name  string
	sess  lease.Session
	id    string    // guarded by m.mu, as what follows
	alive time.Time // sending of the last answered sign of life
	open  map[string]lease.Request
	next  int
}

const simGrace = 3 * time.Second

func (c *simClient) until() time.Time { return c.alive.Add(simGrace) }

type simCall struct {
	c    *simClient
	r    lease.Request
	sent time.Time
}

func (x *simCall) Queued(lease.Queued) {}
func (x *simCall) Done(l lease.Lease, err error) {
	switch {
	case err == nil:
		x.c.answered(x.sent)
		x.c.m.grant(x.c, x.r, l)
	case !errors.Is(err, lease.ErrUnknown) && !errors.Is(err, lease.ErrUnavailable):
		x.c.m.mu.Lock()
		delete(x.c.open, x.r.ID)
		x.c.m.mu.Unlock()
	}
}

func (c *simClient) answered(sent time.Time) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if sent.After(c.alive) {
		c.alive = sent
	}
}

// connect resumes the session of an earlier life, or begins a new one.
func (c *simClient) connect(s *Service) {
	sent := time.Now()
	notify := func(n lease.Notice) {
		c.m.end(!c.m.diskFailed.Load(), func(h *told) bool {
			return h.client == c && (n.ID == "" && h.session == c.id && !h.detached || h.token == n.Token)
		})
	}
	sess, err := s.Open(context.Background(), lease.SessionOptions{Name: c.name, Grace: simGrace, Resume: c.id, Notify: notify})
	if err != nil && c.id != "" {
		if !errors.Is(err, lease.ErrSessionLost) {
			return
		}
		c.m.end(false, func(h *told) bool { return h.client == c && !h.detached })
		c.m.mu.Lock()
		clear(c.open)
		c.m.mu.Unlock()
		sess, err = s.Open(context.Background(), lease.SessionOptions{Name: c.name, Grace: simGrace, Notify: notify})
	}
	if err != nil {
		return
	}
	c.m.mu.Lock()
	c.sess, c.id = sess, sess.ID()
	c.m.mu.Unlock()
	c.answered(sent)
	c.m.mu.Lock()
	open := maps.Clone(c.open)
	c.m.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(open)) { // every request is asked again, granted or not
		sess.Acquire(open[id], &simCall{c, open[id], sent})
	}
}

func (c *simClient) step(rng *rand.Rand, s *Service) {
	if c.sess == nil {
		c.connect(s)
		return
	}
	switch rng.IntN(10) {
	case 0, 1, 2, 3:
		c.acquire(rng)
	case 4, 5:
		c.release()
	case 6:
		c.renew(rng)
	case 7:
		sent := time.Now()
		c.sess.Do(lease.Command{Verb: lease.Ping}, func(_ lease.Lease, err error) {
			if err == nil {
				c.answered(sent)
			}
		})
	case 8:
		c.lifecycle(rng, s)
	case 9:
		key := fmt.Sprint("k", rng.IntN(4))
		synctest.Wait()
		// A holder without a connection cannot be told: only its token stops it.
		c.m.end(false, func(h *told) bool { return h.key == key })
		f, err := s.Force(context.Background(), lease.ForceRequest{Key: key, By: c.name})
		if err == nil {
			c.m.end(true, func(h *told) bool {
				return slices.ContainsFunc(f.Holds, func(x lease.Hold) bool { return x.Token == h.token })
			})
		}
	}
}

func (c *simClient) acquire(rng *rand.Rand) {
	c.next++
	ttls := []time.Duration{200 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute}
	r := lease.Request{
		ID: fmt.Sprintf("%s-%d", c.name, c.next), Keys: []string{fmt.Sprint("k", rng.IntN(4))}, TTL: ttls[rng.IntN(len(ttls))],
		Mode: lease.Mode(rng.IntN(3)), Try: rng.IntN(3) == 0, Detach: rng.IntN(6) == 0,
	}
	if r.Mode == lease.Counted {
		r.Limit = 1 + rng.IntN(3)
	}
	if rng.IntN(4) == 0 {
		r.Keys = append(r.Keys, "both")
	}
	c.m.mu.Lock()
	c.open[r.ID] = r
	c.m.mu.Unlock()
	c.sess.Acquire(r, &simCall{c, r, time.Now()})
}

func (c *simClient) release() {
	c.m.mu.Lock()
	var id string
	for _, h := range c.m.holds {
		if h.client == c && !h.given {
			id = h.id
			break
		}
	}
	delete(c.open, id)
	c.m.mu.Unlock()
	if id == "" {
		return
	}
	mine := func(h *told) bool { return h.id == id }
	c.m.end(false, mine)
	sent := time.Now()
	c.sess.Do(lease.Command{Verb: lease.Release, ID: id}, func(_ lease.Lease, err error) {
		if err == nil {
			c.answered(sent)
			c.m.end(true, mine)
		}
	})
}

func (c *simClient) renew(rng *rand.Rand) {
	c.m.mu.Lock()
	var held *told
	for _, h := range c.m.holds {
		if h.client == c && c.m.believed(h, time.Now()) && (held == nil || rng.IntN(2) == 0) {
			held = h
		}
	}
	c.m.mu.Unlock()
	if held == nil {
		return
	}
	ttl := []time.Duration{0, 0, 400 * time.Millisecond, 10 * time.Second}[rng.IntN(4)]
	if ttl != 0 {
		c.m.mu.Lock()
		for _, h := range c.m.holds {
			if h.id == held.id { // a shorter ttl counts from when it was asked for
				if d := time.Now().Add(ttl); d.Before(h.deadline) {
					h.deadline = d
				}
				h.ttl = min(h.ttl, ttl)
				r := c.open[h.id]
				r.TTL = ttl
				c.open[h.id] = r
			}
		}
		c.m.mu.Unlock()
	}
	sent := time.Now()
	c.sess.Do(lease.Command{Verb: lease.Renew, ID: held.id, TTL: ttl}, func(l lease.Lease, err error) {
		if err != nil {
			return
		}
		c.answered(sent)
		c.m.mu.Lock()
		defer c.m.mu.Unlock()
		for _, h := range c.m.holds {
			if h.id == held.id {
				h.deadline, h.ttl = l.Deadline, l.TTL
			}
		}
	})
}

// lifecycle is a goodbye, a cut, or a frozen while.
func (c *simClient) lifecycle(rng *rand.Rand, s *Service) {
	switch rng.IntN(3) {
	case 0:
		synctest.Wait() // who says goodbye does not act on a grant that crosses it
		id := c.id
		mine := func(h *told) bool { return h.session == id && !h.detached }
		c.m.end(false, mine)
		c.m.mu.Lock()
		clear(c.open)
		c.m.mu.Unlock()
		c.sess.Close(func(err error) {
			if err == nil {
				c.m.end(true, mine)
			}
		})
		c.m.mu.Lock()
		c.sess, c.id = nil, ""
		c.m.mu.Unlock()
	case 1:
		c.sess.Suspend()
		c.sess = nil
	case 2:
		c.connect(s) // takes itself over
	}
}

// simulate runs one seed and returns what the model objects to.
func simulate(t *testing.T, seed uint64, wrap func(journal.FS) journal.FS, between func(*crashfs.FS) *crashfs.FS) []string {
	rng := rand.New(rand.NewPCG(seed, 7))
	m := &model{high: map[string]lease.Token{}, policy: []Fsync{Always, Always, Interval, Never}[rng.IntN(4)]}
	var clients []*simClient
	for i := range 4 {
		clients = append(clients, &simClient{m: m, name: fmt.Sprint("c", i), open: map[string]lease.Request{}})
	}
	disk := crashfs.New(nil)
	lossless := true
	for range 4 {
		m.diskFailed.Store(false)
		clean := false
		if rng.IntN(4) > 0 {
			at := 1 + rng.IntN(400)
			end := crashfs.Action{Crash: true}
			if rng.IntN(4) == 0 {
				end = crashfs.Action{Err: errors.New("no space left on device")}
			}
			disk.SetPlan(func(c crashfs.Call) crashfs.Action {
				if c.N != at {
					return crashfs.Action{}
				}
				m.diskFailed.Store(true)
				return end
			})
		}
		s, err := Open(Options{Dir: "d", Fsync: m.policy, SyncEvery: 50 * time.Millisecond, fs: wrap(disk), segmentSize: 8 << 10})
		if err == nil {
			l, err := s.List(context.Background(), lease.Query{})
			if err != nil {
				t.Fatalf("seed %d: list after restart: %v", seed, err)
			}
			m.restarted(l, lossless)
			lossless = true
			live(rng, s, disk, clients)
			if rng.IntN(3) > 0 {
				disk.Crash()
			}
			clean = s.Close() == nil
		} else if errors.Is(err, journal.ErrCorrupt) {
			m.fault("a crash left what is taken for corruption: %v", err)
		}
		for _, c := range clients {
			c.sess = nil
		}
		mode := []crashfs.Mode{crashfs.Lose, crashfs.Tear, crashfs.Kill}[rng.IntN(3)]
		lossless = lossless && (m.policy == Always || mode == crashfs.Kill || clean)
		disk = between(disk.Reopen(mode, rng.Uint64(), nil))
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Millisecond)
		}
	}
	return m.faults
}

// live is one life of the service, until the disk crashes or enough was done.
func live(rng *rand.Rand, s *Service, disk *crashfs.FS, clients []*simClient) {
	for range 150 {
		if disk.Crashed() {
			return
		}
		for range rng.IntN(4) {
			clients[rng.IntN(len(clients))].step(rng, s)
		}
		synctest.Wait()
		switch rng.IntN(5) {
		case 0:
			time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
		case 1:
			time.Sleep(time.Duration(rng.IntN(1500)) * time.Millisecond)
		}
	}
	synctest.Wait()
}

func plain(fs journal.FS) journal.FS { return fs }
func same(d *crashfs.FS) *crashfs.FS { return d }
func seeds(few, many uint64) (from, to uint64) {
	if os.Getenv("LATCHKEY_SOAK") != "" {
		return 1000, 1000 + many
	}
	return 0, few
}

func TestSimulation(t *testing.T) {
	from, to := seeds(40, 20_000)
	for seed := from; seed < to && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			for _, f := range simulate(t, seed, plain, same) {
				t.Errorf("seed %d: %s", seed, f)
			}
		})
	}
}

// unsynced is a disk whose syncs do nothing.
type unsynced struct{ journal.FS }

type unsyncedFile struct{ journal.File }

func (unsyncedFile) Sync() error { return nil }

func (f unsynced) Create(path string) (journal.File, error) {
	x, err := f.FS.Create(path)
	return unsyncedFile{x}, err
}

func (f unsynced) Open(path string) (journal.File, error) {
	x, err := f.FS.Open(path)
	return unsyncedFile{x}, err
}

// The simulation counts only because it is seen to fail: on a disk that does not
// sync, on one that comes back empty, and on one that comes back as it was some
// lives ago.
func TestSimulationNotices(t *testing.T) {
	planted := map[string]struct {
		wrap    func(journal.FS) journal.FS
		between func() func(*crashfs.FS) *crashfs.FS
	}{
		"syncs do nothing": {func(fs journal.FS) journal.FS { return unsynced{fs} }, func() func(*crashfs.FS) *crashfs.FS { return same }},
		"the disk comes back empty": {plain, func() func(*crashfs.FS) *crashfs.FS {
			return func(*crashfs.FS) *crashfs.FS { return crashfs.New(nil) }
		}},
		"segments vanish": {plain, func() func(*crashfs.FS) *crashfs.FS {
			return func(d *crashfs.FS) *crashfs.FS {
				if names := d.Names("d"); len(names) > 2 {
					d.Delete(names[len(names)-1])
				}
				return d
			}
		}},
	}
	for name, p := range planted {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(60) {
				var faults []string
				synctest.Test(t, func(t *testing.T) {
					faults = simulate(t, seed, p.wrap, p.between())
				})
				if len(faults) > 0 {
					t.Logf("seed %d: %s", seed, faults[0])
					return
				}
			}
			t.Error("not noticed in 60 seeds")
		})
	}
}
