//go:build linux

package crashtest

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leasetest/history"
)

// translator turns diaries into a history, so that the model of leases judges them too: whether one order of events
// explains what all processes saw.
type translator struct {
	h        history.History
	start    int64
	sessions map[string]int // by worker; a worker whose session is lost goes on in another, which the model need not know
	ops      map[string]int // index of the acquire, by request id
	granted  map[string]*entry
	drops    map[string]int // index of the release
	over     map[string]bool
}

func asHistory(entries []entry) history.History {
	t := &translator{h: history.History{Times: []time.Duration{0}, Broken: true}, sessions: make(map[string]int), ops: make(map[string]int),
		granted: make(map[string]*entry), drops: make(map[string]int), over: make(map[string]bool)}
	if len(entries) > 0 {
		t.start = entries[0].At
	}
	for i := range entries {
		t.add(&entries[i])
	}
	return t.h
}

func (t *translator) stamp(at int64) history.Stamp {
	t.h.Times = append(t.h.Times, time.Duration(at-t.start))
	return history.Stamp(len(t.h.Times) - 1)
}

// until is a promise in the terms of the model, where zero is for ever and not never.
func (t *translator) until(e *entry) time.Duration { return max(time.Duration(e.Until-t.start), 1) }

// op makes the start of an operation of a worker on a hold.
func (t *translator) op(kind history.Kind, e *entry) history.Op {
	n, known := t.sessions[e.Who]
	if !known {
		n = len(t.sessions) + 1
		t.sessions[e.Who] = n
	}
	return history.Op{Kind: kind, Session: n, Owner: n, ID: e.ID, Call: t.stamp(e.At)}
}

func (t *translator) put(o history.Op) int {
	t.h.Ops = append(t.h.Ops, o)
	return len(t.h.Ops) - 1
}

func (t *translator) add(e *entry) {
	switch e.What {
	case asked:
		o := t.op(history.Acquire, e)
		o.Request = e.Ask
		t.ops[e.ID] = t.put(o)
	case got:
		o := &t.h.Ops[t.ops[e.ID]]
		o.Return, o.Held, o.Until = t.stamp(e.At), e.Held, t.until(e)
		t.granted[e.ID] = e
	case failed:
		// A grant that came too late to be used was given back, or had ended when the request was sent again: as if
		// there had been no answer.
		if e.Code != lease.ErrExpired && e.Code != lease.ErrOver && e.Code != lease.ErrUnknown {
			o := &t.h.Ops[t.ops[e.ID]]
			o.Return, o.Code = t.stamp(e.At), e.Code
		}
	case still, renewed:
		t.seen(e)
	case drop:
		if t.granted[e.ID] != nil {
			t.over[e.ID] = true
			t.drops[e.ID] = t.put(t.op(history.Release, e))
		}
	case dropped:
		// Success says that it was held without a gap; a loss does not say what the release still found.
		if i, ok := t.drops[e.ID]; ok && e.Code == "" {
			t.h.Ops[i].Return, t.h.Ops[i].Held = t.stamp(e.At), t.granted[e.ID].Held
		}
	case lost:
		if t.granted[e.ID] != nil {
			o := t.op(history.Lost, e)
			o.Return, o.Held, o.Code, o.Token = o.Call, e.Held, e.Code, e.Held[0].Token
			t.put(o)
			t.over[e.ID] = true
		}
	}
}

// seen is a look at a hold that is there: a renewal that changes nothing, unless it did.
func (t *translator) seen(e *entry) {
	g := t.granted[e.ID]
	if g == nil || t.over[e.ID] || e.Code != "" || e.Until <= e.At {
		return
	}
	o := t.op(history.Renew, e)
	o.Return, o.Until, o.Held = t.stamp(e.At), t.until(e), g.Held
	t.put(o)
}
