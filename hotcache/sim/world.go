package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// A policy decides how servers use the nodes. It is driven by the world, and does what it does through it.
type policy interface {
	// read answers a read by world.answer or world.failed, now or later.
	read(r *read)
	// write makes the cache know of a committed write, and calls done when it does; true is for sure.
	write(server, key int, version uint64, done func(sure bool))
	// crash ends a server between the commit of a write and the rest; another one takes its place.
	crash(server, key int, version uint64)
	// cut keeps a server from hearing what nodes broadcast, or lets it again.
	cut(server int, off bool)
	// lost takes what a node had, unless it kept it.
	lost(node int, kept bool)
	// peek returns the oldest version that nodes would give for a key, without reading it.
	peek(key int) (version uint64, ok bool)
	// end is called when nothing more is read.
	end()
}

// A read is one that a server makes.
type read struct {
	server, key int
	began       time.Duration
	need        uint64 // the version of the last write that was finished when it began
}

// world is everything that a policy finds itself in.
type world struct {
	clock
	cfg     *Config
	random  *rand.Rand // of delays and losses
	keys    *keys
	rows    []row
	nodes   []*node
	policy  policy
	work    work
	trouble trouble
	res     *Result
	reads   int // begun
	waiting int // reads without an answer
	writing int // writes that are not finished
	over    bool
	last    time.Duration // when the last op was
	err     error
	perKey  []uint32
	latency histogram
	writes  histogram
}

// A row is one row of the database.
type row struct {
	version  uint64
	promised uint64          // by the last write that was finished
	since    []time.Duration // when the latest versions were committed, as far back as the replica may be behind
}

// Run makes a run. When the context ends it returns what there is until then, marked as interrupted. A trace that cannot
// be read ends it with a [TraceError].
func Run(ctx context.Context, cfg Config) (*Result, error) {
	cfg = cfg.clone()
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	var from io.ReadCloser
	if cfg.Trace != nil {
		var err error
		if from, err = cfg.Trace(); err != nil {
			return nil, fmt.Errorf("sim: the trace cannot be opened: %w", err)
		}
		defer from.Close()
	}
	w := newWorld(&cfg, from)
	w.run(ctx)
	if w.err != nil {
		return nil, w.err
	}
	w.finish()
	if t, ok := w.work.(*traced); ok {
		w.res.Remark = t.remark()
	}
	return w.res, nil
}

// newWorld returns a world at its beginning. The trace is nil when the work is drawn.
func newWorld(cfg *Config, trace io.Reader) *world {
	w := &world{cfg: cfg, random: rand.New(rand.NewPCG(cfg.Seed, 2)), res: newResult(cfg)}
	if trace != nil {
		w.keys = &keys{byKey: map[string]int{}}
		w.work = newTraced(cfg, trace, w.keys)
	} else {
		w.keys = newKeys(cfg.Keys)
		w.work = newDrawn(cfg)
	}
	for i := range cfg.Nodes {
		w.nodes = append(w.nodes, newNode(w, i))
	}
	if cfg.Policy == Ours {
		w.policy = newOurs(w)
	} else {
		w.policy = newSource(w)
	}
	w.plan()
	w.arrive()
	return w
}

// rest is how long a run goes on after the last read, so that what is under way comes to its end.
const rest = time.Minute

func (w *world) run(ctx context.Context) {
	total := w.cfg.Reads
	if w.cfg.Trace != nil {
		total = 0
	}
	for n := 0; w.err == nil; n++ {
		if n%8192 == 0 {
			if ctx.Err() != nil {
				w.res.Interrupted = true
				break
			}
			if w.cfg.Progress != nil {
				w.cfg.Progress(w.reads, total)
			}
		}
		if w.over && (w.waiting == 0 && w.writing == 0 && w.now > w.last+w.cfg.Trust+w.cfg.longestLag() || w.now > w.last+rest) {
			break
		}
		if !w.step() {
			break
		}
	}
	if w.cfg.Progress != nil {
		w.cfg.Progress(w.reads, total)
	}
}

// arrive has the next op happen when it is time.
func (w *world) arrive() {
	o, ok, err := w.work.next()
	if err != nil {
		w.err = err
		return
	}
	if !ok {
		w.over, w.last = true, w.now
		w.policy.end()
		return
	}
	w.after(o.at-w.now, func() {
		if o.write {
			w.write(o)
		} else {
			w.read(o)
		}
		w.arrive()
	})
}

func (w *world) row(key int) *row {
	for len(w.rows) <= key {
		w.rows = append(w.rows, row{version: 1, promised: 1})
	}
	return &w.rows[key]
}

func (w *world) read(o op) {
	w.reads++
	w.waiting++
	for len(w.perKey) <= o.key {
		w.perKey = append(w.perKey, 0)
	}
	w.perKey[o.key]++
	w.policy.read(&read{server: o.server, key: o.key, began: w.now, need: w.row(o.key).promised})
}

// answer ends a read.
func (w *world) answer(r *read, version uint64, from origin, blocked bool) {
	took := w.settle(r)
	b := w.res.bucket(w.now)
	switch from {
	case fromMemory:
		w.res.L1Hits++
		b.L1Hits++
	case fromCopy:
		w.res.CopyHits++
		fallthrough
	case fromNode:
		w.res.NodeHits++
		b.NodeHits++
	}
	if blocked {
		w.res.Blocked += Millis(took)
		w.res.BlockedReads++
	}
	row := w.row(r.key)
	if version < r.need {
		w.res.StaleReads++
		b.StaleReads++
	}
	if version < row.version {
		w.res.OldReads++
		b.OldReads++
	}
}

// failed ends a read without an answer.
func (w *world) failed(r *read) {
	w.settle(r)
	w.res.FailedReads++
	w.res.bucket(w.now).FailedReads++
}

func (w *world) settle(r *read) time.Duration {
	took := w.now - r.began
	w.waiting--
	w.res.Reads++
	w.res.bucket(w.now).Reads++
	w.latency.add(took)
	return took
}

// write commits, and has the cache know.
func (w *world) write(o op) {
	w.res.Writes++
	row := w.row(o.key)
	row.version++
	if lag := w.cfg.longestLag(); lag > 0 {
		for len(row.since) > 1 && row.since[1] <= w.now-lag {
			row.since = row.since[1:]
		}
		row.since = append(row.since, w.now)
	}
	version, began := row.version, w.now
	if w.crashes() {
		w.res.Crashes++
		w.policy.crash(o.server, o.key, version)
		return
	}
	w.writing++
	w.policy.write(o.server, o.key, version, func(sure bool) {
		w.writing--
		w.writes.add(w.now - began)
		if !sure {
			w.res.UnsureWrites++
			return
		}
		r := w.row(o.key)
		r.promised = max(r.promised, version)
	})
}

// load reads a row: from the replica, or from the primary if it must be. then is told which version it was.
func (w *world) load(key int, primary bool, then func(version uint64)) {
	w.res.DBReads++
	w.res.bucket(w.now).DBReads++
	took := w.spread(w.cfg.Load)
	w.after(took/2, func() {
		row := w.row(key)
		version := row.version
		if !primary {
			for i := len(row.since) - 1; i >= 0 && row.since[i] > w.now-w.trouble.lag; i-- {
				version--
			}
		}
		w.after(took-took/2, func() { then(version) })
	})
}

// spread is a time that is d on average, and rarely much longer.
func (w *world) spread(d time.Duration) time.Duration {
	return time.Duration((0.5 + 0.5*w.random.ExpFloat64()) * float64(d))
}

// way is how long a message takes.
func (w *world) way() time.Duration { return w.spread(w.cfg.Network) }

// finish adds up.
func (w *world) finish() {
	r := w.res
	r.Seconds = max(w.now, 0).Seconds()
	if w.over {
		r.Seconds = w.last.Seconds()
	}
	r.Unanswered = uint64(w.waiting)
	for i, n := range w.nodes {
		r.NodeLoad[i], r.NodeCommands[i] = n.asked, n.done
		r.NodeBusy[i] = n.busy.Seconds() / max(r.Seconds, 1e-9) / float64(w.cfg.Capacity)
	}
	for key := range w.rows {
		if version, ok := w.policy.peek(key); ok && version < w.rows[key].version {
			r.LeftStale++
		}
	}
	r.addUp(w)
}
