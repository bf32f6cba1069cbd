package core

import "time"

// havoc has one more thing go wrong, and comes again.
func (w *world) havoc(end time.Duration) {
	if w.now >= end {
		return
	}
	w.after(w.upTo(150*time.Millisecond), func() { w.havoc(end) })
	place, n := w.r.IntN(len(w.live)), w.all[w.r.IntN(len(w.all))]
	p := w.live[place]
	switch x := w.r.IntN(100); {
	case x < 25:
		if c := p.conns[n.index]; c != nil {
			c.cut()
		}
	case x < 40 && !p.paused: // past the lease, or only past the trust
		w.count("pause")
		w.say("%s is paused", p.name)
		p.paused = true
		w.after(w.upTo([]time.Duration{50, 400, 1500}[w.r.IntN(3)]*time.Millisecond), p.resume)
	case x < 46:
		w.count("kill")
		w.say("%s is killed", p.name)
		p.kill()
		w.spawn(place)
	case x < 54:
		w.count("restart")
		w.say("node%d is restarted empty", n.index)
		n.begin()
	case x < 66 && !n.out:
		w.count("outage")
		n.out, n.hangs = true, w.chance(0.5)
		w.say("node%d is out, hangs: %v", n.index, n.hangs)
		w.after(w.upTo(time.Second), func() { n.out, n.hangs = false, false })
	case x < 74:
		w.lagNow = w.upTo(w.lag)
	case x < 80:
		w.failed = !w.failed
	case x < 90:
		w.count("evicted")
		n.home.items.remove(w.anyKey())
	case x < 95:
		w.count("lease lost")
		delete(n.home.leases, w.anyKey())
	default:
		clear(n.copies)
	}
}

// heal ends everything that goes wrong.
func (w *world) heal() {
	w.rough, w.failed, w.healed, w.lagNow = false, false, w.now, w.lag/2
	for _, n := range w.all {
		n.out, n.hangs = false, false
	}
	for _, p := range w.live {
		if p.paused {
			p.resume()
		}
	}
	w.say("nothing goes wrong from now on")
}
