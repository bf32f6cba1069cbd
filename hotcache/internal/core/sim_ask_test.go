package core

import (
	"encoding/binary"
	"time"
)

// ask asks a node for what the core wants.
func (p *simProc) ask(a *Action) {
	w, n := p.w, p.w.all[a.Node]
	none := func(error) {}
	switch a.Do {
	case DoAsk:
		p.call(n, func() func() {
			answer := n.home.Ask(n.now(), a.Ask)
			w.say("%s asks node%d for %s (least %d): state %d token %d min %d", p.name, n.index, a.Key, a.Ask.Min, answer.State, answer.Token, answer.Min)
			return func() { p.do(p.front.Answered(p.now(), a.Op, answer, nil)) }
		}, func(err error) { p.do(p.front.Answered(p.now(), a.Op, Answer{}, err)) })
	case DoCopy:
		p.call(n, func() func() {
			c := n.getCopy(a.Key)
			return func() { p.do(p.front.Copied(p.now(), a.Op, a.Node, c, nil)) }
		}, func(err error) { p.do(p.front.Copied(p.now(), a.Op, a.Node, nil, err)) })
	case DoPutCopy:
		p.call(n, func() func() {
			n.putCopy(a.Key, a.Copy)
			return func() {}
		}, none)
	case DoFill:
		p.call(n, func() func() {
			r, wake := n.home.Fill(n.now(), a.Fill)
			w.say("%s fills %s version %d at node%d: refusal %d", p.name, a.Key, a.Fill.Item.Version, n.index, r.Refusal)
			w.count([...]string{"stored", "lost lease", "outdated"}[r.Refusal])
			n.wake(a.Key, wake)
			return func() { p.do(p.front.Filled(p.now(), a.Op, r, nil)) }
		}, func(err error) { p.do(p.front.Filled(p.now(), a.Op, Filled{}, err)) })
	case DoRenew:
		p.call(n, func() func() {
			held := n.home.Renew(n.now(), a.Key, a.Token)
			w.count("renewed")
			return func() { p.do(p.front.Renewed(p.now(), a.Op, held, nil)) }
		}, func(err error) { p.do(p.front.Renewed(p.now(), a.Op, false, err)) })
	case DoFail:
		p.call(n, func() func() {
			n.wake(a.Key, n.home.Fail(n.now(), a.Key, a.Token, a.Why, a.Pause))
			return func() {}
		}, none)
	default:
		w.fail("%s is asked to do %d", p.name, a.Do)
	}
}

// load runs the loader.
func (p *simProc) load(a *Action) {
	w, began := p.w, p.w.now
	w.loads[a.Key]++
	w.say("%s loads %s (least %d)", p.name, a.Key, a.Min)
	before, took := w.upTo(w.plan.load/2), w.upTo(w.plan.load)
	if w.chaos && w.rough && w.chance(0.05) {
		before, took = w.upTo(loadLimit/2), w.upTo(loadLimit/2) // reads early or late, and is slow
	}
	if !w.chaos {
		before, took = w.plan.load/2, w.plan.load/2
	}
	if w.failed || w.chaos && w.rough && w.chance(0.03) {
		p.post(before, func() { p.do(p.front.Loaded(p.now(), a.Op, Item{}, Times{}, errDatabase)) })
		return
	}
	w.after(before, func() {
		lag := time.Duration(0)
		if a.Min == 0 || w.versions == deaf {
			lag = w.lagNow
		}
		version, absent := w.seen(a.Key, lag)
		w.say("a load of %s for %s reads version %d", a.Key, p.name, version)
		item := Item{Absent: absent, Data: binary.BigEndian.AppendUint64(nil, version)}
		if w.versions != unversioned {
			item.Version = Version(version)
		}
		p.post(took, func() {
			times := Times{Soft: w.soft, Hard: w.hard, Keep: w.hard + w.stale}
			if absent {
				times.Soft, times.Hard, times.Keep = w.soft/2, w.hard/2, w.hard/2+w.stale
			}
			p.do(p.front.Loaded(p.now(), a.Op, item, times.Minus(w.now-began), nil))
		})
	})
}
