package sim

import (
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// A link is the feed from a node to a server: what is sent arrives in order, or not at all.
type link struct {
	p    *server
	h    *home
	over bool // the server knows that it is broken
	down bool // the server is about to know
	off  bool // nothing arrives, and nobody says so
	last time.Duration
	lost uint64 // broadcasts that did not arrive, so far
	seen uint64 // of them, those of which the server noticed that something is missing
}

// send has a message arrive in its turn.
func (l *link) send(bytes int, fn func()) {
	w := l.p.w
	w.res.Bytes += uint64(bytes)
	l.last = max(l.last, w.now+w.way())
	w.after(l.last-w.now, func() {
		if !l.off && !l.over && !l.p.dead {
			fn()
		}
	})
}

// tell sends a broadcast about an invalidation, which may get lost.
func (l *link) tell(bytes int, fn func()) {
	if l.off || l.p.w.drops() {
		l.missed()
		return
	}
	l.send(bytes, fn)
}

// missed notes that a broadcast did not arrive. After the time in which the server must have noticed it is looked whether
// it did: it dropped what it had, or does not trust it.
func (l *link) missed() {
	w, p := l.p.w, l.p
	w.res.LostHeard++
	l.lost++
	number := l.lost
	w.after(w.cfg.Trust, func() {
		if l.seen >= number || p.dead || l.over || !p.front.Current(p.o.now(), l.h.node.index) {
			w.res.LostNoticed++
		}
	})
}

// noticed notes that the server knows that it missed something.
func (l *link) noticed() { l.seen = l.lost }

// follow subscribes, when that is possible.
func (l *link) follow() {
	if l.p.dead {
		return
	}
	if l.h.node.out {
		l.p.w.after(50*time.Millisecond, l.follow)
		return
	}
	l.leave()
	l.over = false
	l.h.links = append(l.h.links, l)
	l.beat()
}

// leave takes a link off its node's list.
func (l *link) leave() {
	l.h.links = slices.DeleteFunc(l.h.links, func(o *link) bool { return o == l })
}

// broken tells the server that the connection is gone, a moment later; it follows anew.
func (l *link) broken() {
	w := l.p.w
	if l.down || l.over {
		return
	}
	l.down = true
	w.after(w.way(), func() {
		l.down = false
		if l.p.dead {
			return
		}
		l.over = true
		l.p.do(l.p.front.Lost(l.p.o.now(), l.h.node.index))
		w.after(w.cfg.Trust/10, l.follow)
	})
}

// refollow has a server that heard nothing for a while make its connections anew.
func (p *server) refollow() {
	for _, l := range p.links {
		l.leave()
		l.broken()
	}
}

func (p *server) beating(l *link) {
	if p.dead || p.o.quiet && p.w.waiting == 0 && p.w.writing == 0 && p.w.now > p.w.last+2*p.w.cfg.Trust {
		return
	}
	l.beat()
	p.w.after(p.w.cfg.Trust/4, func() { p.beating(l) })
}

// beat asks the node where its feed is, to prove that everything was heard.
func (l *link) beat() {
	p, w, o := l.p, l.p.w, l.p.o
	if l.over || l.off {
		return
	}
	index := l.h.node.index
	asked, sent := p.front.Sight(index).At(), o.now()
	w.do(l.h.node, overhead, func() {
		if p.dead || l.over || l.off {
			return
		}
		l.h.join(p, o.now()+o.longestTrust())
		head := l.h.core.At()
		l.send(overhead, func() { p.do(p.front.Met(o.now(), index, asked, head, sent)) })
	})
}

// heard is told of an invalidation, and acknowledges it by way of the node.
func (p *server) heard(l *link, inv core.Invalidation, by *server) {
	p.do(p.front.Invalidated(p.o.now(), l.h.node.index, inv))
	if by == p {
		return
	}
	p.w.do(l.h.node, overhead, func() {
		to := by.links[l.h.node.index]
		if !to.over {
			to.send(overhead, func() { by.came(core.StampOf(inv.Position), p) })
		}
	})
}

func (p *server) awaited(at core.Stamp) *awaited {
	a := p.acks[at]
	if a == nil {
		a = &awaited{}
		p.acks[at] = a
	}
	return a
}

func (p *server) came(at core.Stamp, from *server) {
	a := p.awaited(at)
	a.from = append(a.from, from)
	a.check()
}

func (a *awaited) check() {
	if a.done == nil {
		return
	}
	a.want = slices.DeleteFunc(a.want, func(p *server) bool { return slices.Contains(a.from, p) })
	if len(a.want) == 0 {
		a.done()
	}
}

// await waits for the acknowledgements of all members, or for as long as anybody may trust his memory.
func (p *server) await(at core.Stamp, members []*server, done func()) {
	a, over := p.awaited(at), false
	a.want = members
	a.done = func() {
		if !over {
			over = true
			done()
		}
	}
	a.check()
	p.w.after(p.o.longestTrust(), func() {
		a.done()
		delete(p.acks, at)
	})
}
