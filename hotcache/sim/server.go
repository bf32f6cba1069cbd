package sim

import (
	"fmt"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// A server is one process: the core's Front and Hot, its memory, and its links to the nodes.
type server struct {
	o       *ours
	w       *world
	place   int
	dead    bool
	front   *core.Front
	hot     *core.Hot // nil without copies
	memory  *lru[remembered]
	lives   []int // of what is in memory, by node
	reading map[core.ReadID]*read
	lastID  core.ReadID
	blocked map[string]bool // keys of which reads wait for a load
	links   []*link
	acks    map[core.Stamp]*awaited
	alarm   time.Duration // the tick that is due
	turn    int           // of the nodes that carry reports
}

type remembered struct {
	version uint64
	node    int
	life    int
}

// awaited are the acknowledgements of one invalidation.
type awaited struct {
	from []*server
	want []*server
	done func() // nil until it is known who is to be waited for
}

// spawn puts a new process in a place.
func (o *ours) spawn(place int) {
	w, cfg := o.w, o.w.cfg
	o.born++
	p := &server{
		o: o, w: w, place: place, lives: make([]int, cfg.Nodes), reading: map[core.ReadID]*read{}, blocked: map[string]bool{},
		acks: map[core.Stamp]*awaited{}, alarm: -1, turn: o.born, memory: newLRU[remembered](cfg.L1Entries),
	}
	set := core.DefaultSettings()
	set.Rules, set.Trust, set.Memory, set.Home = o.rules, cfg.Trust, cfg.L1, o.ring.Owner
	if cfg.Replicate {
		p.hot = core.NewHot(o.now(), core.HotSettings{
			Me: fmt.Sprintf("p%06d", o.born), Ring: o.ring, Copies: cfg.Copies, Share: cfg.HotShare, Window: cfg.Window,
			Counters: cfg.Counters,
		}, o.source(4))
		if r, err := core.ParseReport(o.saved); err == nil {
			p.hot.Adopt(r)
		}
		set.Hot = p.hot
		w.after(p.hot.Next()-o.now(), p.watch)
	}
	p.front = core.NewFront(cfg.Nodes, set, o.source(5))
	o.servers[place] = p
	for _, h := range o.nodes {
		l := &link{p: p, h: h, over: true}
		p.links = append(p.links, l)
		l.follow()
		w.after(time.Duration(w.random.Int64N(int64(cfg.Trust/4))), func() { p.beating(l) })
	}
}

// die ends a process. Its reads get no answer.
func (p *server) die() {
	p.dead = true
	for _, l := range p.links {
		l.leave()
	}
	for id := core.ReadID(0); id <= p.lastID && len(p.reading) > 0; id++ { // in order
		if r := p.reading[id]; r != nil {
			delete(p.reading, id)
			p.w.failed(r)
		}
	}
}

// read is a Get.
func (p *server) read(r *read) {
	now, name := p.o.now(), p.w.keys.names[r.key]
	if p.hot != nil {
		p.hot.Count(name, 1)
	}
	if p.w.cfg.L1 {
		m, ok := p.memory.get(now, name)
		if ok && m.life == p.lives[m.node] && now < p.front.Sight(m.node).Until(p.w.cfg.Trust) {
			p.w.answer(r, m.version, fromMemory, false)
			return
		}
	}
	p.lastID++
	p.reading[p.lastID] = r
	p.do(p.front.Read(now, p.lastID, name, 0))
}

// do does what the core asks for: first what concerns memory, in the order of the core's events.
func (p *server) do(actions []core.Action) {
	for i := range actions {
		switch a := &actions[i]; a.Do {
		case core.DoDrop:
			p.memory.drop(a.Key)
		case core.DoDropNode:
			p.lives[a.Node]++
			p.links[a.Node].noticed()
		}
	}
	p.arm()
	for i := range actions {
		switch a := &actions[i]; a.Do {
		case core.DoDrop, core.DoDropNode:
		case core.DoServe:
			p.serve(a)
		case core.DoKeep:
			if now := p.o.now(); p.front.Holds(now, a.Node, a.Key, a.Stamp) {
				ends := now + min(a.Times.Soft, p.w.cfg.L1TTL)
				p.memory.put(a.Key, remembered{uint64(a.Item.Version), a.Node, p.lives[a.Node]}, ends)
			}
		case core.DoLoad:
			p.load(a)
		default:
			p.ask(a)
		}
	}
}

// arm has the core's next deadline kept.
func (p *server) arm() {
	at, ok := p.front.Next()
	if !ok || p.alarm == at {
		return
	}
	p.alarm = at
	p.w.after(at-p.o.now(), func() {
		if p.alarm == at && !p.dead {
			p.alarm = -1
			p.do(p.front.Tick(p.o.now()))
		}
	})
}

func (p *server) serve(a *core.Action) {
	blocked := p.blocked[a.Key] || a.Outcome == core.FromLoad
	delete(p.blocked, a.Key)
	from := fromLoad
	switch a.Outcome {
	case core.FromHome, core.Stale, core.StaleOnError:
		from = fromNode
	case core.FromCopy:
		from = fromCopy
	}
	for _, id := range a.Reads {
		r := p.reading[id]
		delete(p.reading, id)
		if a.Err != nil {
			p.w.failed(r)
		} else {
			p.w.answer(r, uint64(a.Item.Version), from, blocked)
		}
	}
}

// load runs the loader.
func (p *server) load(a *core.Action) {
	w, began, op := p.w, p.w.now, a.Op
	w.load(w.id(a.Key), a.Min != 0, func(version uint64) {
		if p.dead {
			return
		}
		ttl := w.cfg.TTL
		soft := core.Spread(ttl*3/4, func(d time.Duration) time.Duration { return time.Duration(w.random.Int64N(int64(d))) })
		times := core.Times{Soft: soft, Hard: ttl, Keep: ttl}
		item := core.Item{Version: core.Version(version), Data: p.o.data}
		p.do(p.front.Loaded(p.o.now(), op, item, times.Minus(w.now-began), nil))
	})
}

// ask asks a node for what the core wants.
func (p *server) ask(a *core.Action) {
	o, h, key := p.o, p.o.nodes[a.Node], a.Key
	c := call{bytes: keyBytes(key), reads: a.Do == core.DoAsk || a.Do == core.DoCopy, fail: func(error) {}}
	switch a.Do {
	case core.DoAsk:
		p.answer(&c, func() (func(error), int) {
			x := h.core.Ask(o.now(), a.Ask)
			return func(err error) {
				p.blocked[key] = p.blocked[key] || x.State == core.Busy
				p.do(p.front.Answered(o.now(), a.Op, x, err))
			}, p.sizeOf(x.Item)
		}, func(err error) { p.do(p.front.Answered(o.now(), a.Op, core.Answer{}, err)) })
	case core.DoCopy:
		p.answer(&c, func() (func(error), int) {
			x, size := o.getCopy(h, key), 0
			if x != nil {
				size = p.sizeOf(&x.Item)
			}
			return func(err error) { p.do(p.front.Copied(o.now(), a.Op, a.Node, x, err)) }, size
		}, func(err error) { p.do(p.front.Copied(o.now(), a.Op, a.Node, nil, err)) })
	case core.DoFill:
		c.bytes += p.sizeOf(&a.Fill.Item)
		p.answer(&c, func() (func(error), int) {
			x, wake := h.core.Fill(o.now(), a.Fill)
			if x.Refusal != core.Stored {
				p.w.res.RefusedFills++
			}
			o.wake(h, key, wake)
			return func(err error) { p.do(p.front.Filled(o.now(), a.Op, x, err)) }, 0
		}, func(err error) { p.do(p.front.Filled(o.now(), a.Op, core.Filled{}, err)) })
	case core.DoRenew:
		p.answer(&c, func() (func(error), int) {
			held := h.core.Renew(o.now(), key, a.Token)
			return func(err error) { p.do(p.front.Renewed(o.now(), a.Op, held, err)) }, 0
		}, func(err error) { p.do(p.front.Renewed(o.now(), a.Op, false, err)) })
	case core.DoPutCopy:
		p.w.do(h.node, c.bytes+p.sizeOf(&a.Copy.Item), func() { o.putCopy(h, key, a.Copy) })
		return
	case core.DoFail:
		p.w.do(h.node, c.bytes, func() { o.wake(h, key, h.core.Fail(o.now(), key, a.Token, a.Why, a.Pause)) })
		return
	}
	p.w.ask(h.node, c)
}

// answer completes a call whose outcome a process that is dead by then does not hear.
func (p *server) answer(c *call, do func() (func(error), int), fail func(error)) {
	c.do = func() (func(), int) {
		reply, bytes := do()
		return func() {
			if !p.dead {
				reply(nil)
			}
		}, bytes + overhead
	}
	c.fail = func(err error) {
		if !p.dead {
			fail(err)
		}
	}
}

func (p *server) sizeOf(item *core.Item) int {
	if item == nil {
		return 0
	}
	return len(item.Data)
}
