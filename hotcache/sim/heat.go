package sim

import (
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// watch ends the windows of a server and tells the others what it counted.
func (p *server) watch() {
	if p.dead || p.o.quiet {
		return
	}
	now := p.o.now()
	news := p.hot.Tick(now)
	p.w.res.hot(p.w.now, p.hot.Len())
	if news.Report != nil {
		p.tell(news.Report)
	}
	if news.Set != nil {
		p.o.saved = news.Set.String()
	}
	p.w.after(p.hot.Next()-now, p.watch)
}

// tell sends a report to everybody.
func (p *server) tell(r *core.Report) {
	text := r.String()
	heard, err := core.ParseReport(text)
	if err != nil {
		p.w.err = err
		return
	}
	p.turn++
	r.Over(p.turn, len(p.o.nodes), func(node int) bool {
		h := p.o.nodes[node]
		if h.node.out {
			return false
		}
		p.w.do(h.node, len(text), func() {
			for _, l := range h.links {
				l.send(len(text), func() {
					if l.p != p && l.p.hot != nil {
						l.p.hot.Hear(p.o.now(), heard)
					}
				})
			}
		})
		return true
	})
}
