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

// tell sends a report to everybody over one node, or over two when it is urgent; each time it is another's turn.
func (p *server) tell(r *core.Report) {
	text, wanted := r.String(), 1
	if r.Early() {
		wanted = 2
	}
	heard, err := core.ParseReport(text)
	if err != nil {
		p.w.err = err
		return
	}
	p.turn++
	nodes := p.o.nodes
	for i := range nodes {
		h := nodes[(p.turn+i)%len(nodes)]
		if h.node.out {
			continue
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
		if wanted--; wanted == 0 {
			return
		}
	}
}
