package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// holdID names a hold: a request of a session.
type holdID struct {
	owner int
	id    string
}

// hold is what the history tells of one request that was granted.
type hold struct {
	n        int32
	owner    int
	id       string
	name     string
	request  lease.Request
	tokens   map[string]lease.Token // by key
	called   Stamp                  // its acquire
	known    Stamp                  // the first answer that shows the grant
	until    time.Duration          // up to when it is promised; 0 when it does not end by itself
	may      map[string]Stamp       // from when a key may have ended without an answer
	shown    map[string]int32       // how many answers show a key held, after the grant
	definite map[string]bool        // keys whose end was answered
	lost     map[string]Stamp       // keys that the service told were over
	left     Stamp                  // its session was suspended
	detached Stamp                  // the first time that it may have been detached
}

// builder turns a history into steps for the model.
type builder struct {
	h      *History
	holds  map[holdID]*hold
	tokens map[lease.Token]*hold
	order  []*hold
	forced map[lease.Token]bool // tokens that a recorded force ended
	steps  []step
	errs   []error
}

func (b *builder) wrong(format string, args ...any) {
	b.errs = append(b.errs, fmt.Errorf(format, args...))
}

// build reads a history.
func build(h *History) *builder {
	b := &builder{h: h, holds: make(map[holdID]*hold), tokens: make(map[lease.Token]*hold),
		forced: make(map[lease.Token]bool)}
	for i := range h.Ops {
		b.grants(&h.Ops[i])
	}
	b.promises()
	for _, hd := range b.order {
		b.add(step{call: hd.called, ret: hd.known, grant: hd.refs()})
	}
	for i := range h.Ops {
		b.translate(&h.Ops[i])
	}
	b.spontaneous()
	return b
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// grants collects the evidence that requests were granted, with their tokens.
func (b *builder) grants(o *Op) {
	switch {
	case o.Kind == Lost && o.ID != "":
		b.evidence(holdID{o.Owner, o.ID}, o.Held, o.Return)
	case !o.settled() || o.failed() || o.Kind == Force:
	case o.Kind == Resume:
		for _, l := range o.Leases {
			b.evidence(holdID{o.Session, l.ID}, l.Holds, o.Return)
		}
	case o.ID != "":
		b.evidence(holdID{o.Owner, o.ID}, o.Held, o.Return)
	}
}

func (b *builder) evidence(id holdID, held []lease.Hold, at Stamp) {
	if len(held) == 0 {
		return
	}
	hd := b.holds[id]
	if hd == nil {
		hd = b.newHold(id)
		if hd == nil {
			b.wrong("session %d is said to hold %v as %q: it never asked, or was told that it has nothing", id.owner, held, id.id)
			return
		}
		b.holds[id] = hd
		b.order = append(b.order, hd)
		hd.known = at
	}
	hd.known = min(hd.known, at)
	for _, x := range held {
		if was, ok := hd.tokens[x.Key]; ok && was != x.Token {
			b.wrong("hold %s of %q has token %d and token %d", hd.name, x.Key, was, x.Token)
			continue
		}
		if other, ok := b.tokens[x.Token]; ok && (other != hd || other.tokens[x.Key] != x.Token) {
			b.wrong("token %d was given to %s and to %s", x.Token, other.name, hd.name)
			continue
		}
		if !slices.Contains(hd.request.Keys, x.Key) {
			b.wrong("hold %s was given %q, which it did not ask for", hd.name, x.Key)
			continue
		}
		hd.tokens[x.Key] = x.Token
		b.tokens[x.Token] = hd
	}
}

// newHold finds the request of a hold: the attempts that may have been granted.
func (b *builder) newHold(id holdID) *hold {
	var hd *hold
	for i := range b.h.Ops {
		o := &b.h.Ops[i]
		if o.Kind != Acquire || o.Owner != id.owner || o.ID != id.id || o.settled() && o.failed() {
			continue
		}
		if hd == nil {
			hd = &hold{n: int32(len(b.order)), owner: id.owner, id: id.id, name: fmt.Sprintf("%d/%s", id.owner, id.id), request: o.Request,
				tokens: make(map[string]lease.Token), called: o.Call,
				may: make(map[string]Stamp), shown: make(map[string]int32), definite: make(map[string]bool), lost: make(map[string]Stamp)}
		}
		hd.called = min(hd.called, o.Call)
	}
	return hd
}

// of finds the hold that a command is about.
func (b *builder) of(o *Op) *hold {
	if o.ID != "" {
		return b.holds[holdID{o.Owner, o.ID}]
	}
	if hd := b.tokens[o.Token]; hd != nil && o.Token != 0 && hd.owner == o.Session {
		return hd
	}
	return nil
}

// promises works out, in the order of the answers, up to when each hold was
// promised, and notes how holds ended.
func (b *builder) promises() {
	byReturn := make([]*Op, 0, len(b.h.Ops))
	for i := range b.h.Ops {
		byReturn = append(byReturn, &b.h.Ops[i])
	}
	slices.SortStableFunc(byReturn, func(a, c *Op) int { return cmp.Compare(a.end(), c.end()) })
	for _, o := range byReturn {
		hd := b.of(o)
		switch o.Kind {
		case Acquire, Renew, Detach:
			if hd != nil {
				b.promise(hd, o)
			}
			if o.Kind == Detach && hd != nil && hd.detached == 0 {
				hd.detached = o.Call
			}
		case Resume:
			for _, l := range o.Leases {
				if hd := b.holds[holdID{o.Session, l.ID}]; hd != nil && !l.Deadline.IsZero() && hd.until == 0 {
					hd.until = b.h.Times[hd.called] // no answer gave a deadline
				}
			}
		case Leave:
			for _, hd := range b.order {
				if hd.owner == o.Session && hd.left == 0 {
					hd.left = o.Call
				}
			}
		case Lost:
			if hd != nil {
				b.lost(hd, o)
			}
			if o.ID == "" {
				b.lostAll(o)
			}
		case Force:
			for _, x := range o.Held {
				b.forced[x.Token] = true
			}
		}
	}
}

// end orders operations by their answer; what was not answered comes when asked.
func (o *Op) end() Stamp {
	if o.Return == 0 {
		return o.Call
	}
	return o.Return
}

func (b *builder) promise(hd *hold, o *Op) {
	changes := o.Kind == Renew && o.TTL != 0
	switch {
	case o.Kind == Detach && len(o.Held) == 0: // it still waited
	case o.settled() && !o.failed():
		if changes || o.Kind == Acquire && o.Return == hd.known {
			hd.until = o.Until
		} else if o.Until == 0 || hd.until != 0 {
			hd.until = max(hd.until, o.Until)
		}
	case !o.settled() && changes && o.TTL != lease.Forever:
		if t := b.h.Times[o.Call] + o.TTL; hd.until == 0 || t < hd.until {
			hd.until = t
		}
	case !o.settled() && o.Kind == Acquire && hd.until == 0 && o.Request.TTL != lease.Forever:
		hd.until = b.h.Times[o.Call] + cmp.Or(o.Request.TTL, lease.DefaultTTL)
	}
}

func (b *builder) lost(hd *hold, o *Op) {
	for _, x := range o.Held {
		if _, twice := hd.lost[x.Key]; twice {
			b.wrong("the loss of %q by %s was told twice", x.Key, hd.name)
		}
		hd.lost[x.Key] = o.Return
	}
	if o.Code == lease.ErrExpired && (hd.until == 0 || b.h.Times[o.Return] < hd.until) {
		b.wrong("hold %s was ended %v after the start, and was promised until %v", hd.name, b.h.Times[o.Return], hd.until)
	}
}

// lostAll is the word that a session is over, with all that is not detached.
func (b *builder) lostAll(o *Op) {
	for _, hd := range b.order {
		if hd.owner != o.Session || hd.known > o.Return || hd.outlives(o.Return) {
			continue
		}
		for k := range hd.tokens {
			if hd.lost[k] == 0 {
				hd.lost[k] = o.Return
			}
		}
	}
}

// outlives reports whether a hold may outlive the end of its session.
func (hd *hold) outlives(end Stamp) bool {
	return hd.request.Detach || hd.detached != 0 && (end == 0 || hd.detached < end)
}

// mayEnd notes that keys of a hold may have ended since, unseen.
func (hd *hold) mayEnd(keys []string, since Stamp) {
	for _, k := range keys {
		if was := hd.may[k]; was == 0 || since < was {
			hd.may[k] = since
		}
	}
}

// spontaneous adds the ends that nobody asked for: a hold may end by itself once
// its promise is over, and must have when that was told.
func (b *builder) spontaneous() {
	for _, hd := range b.order {
		for _, key := range keysOf(hd.tokens) {
			told := hd.lost[key]
			if hd.definite[key] && told != 0 {
				b.wrong("%q of hold %s was both released and lost", key, hd.name)
			}
			if hd.definite[key] && told == 0 || b.forced[hd.tokens[key]] {
				delete(hd.may, key) // it was there until then
				continue
			}
			switch {
			case hd.until != 0:
				hd.mayEnd([]string{key}, b.h.from(hd.until))
			case hd.left != 0:
				hd.mayEnd([]string{key}, hd.left)
			case told != 0:
				hd.mayEnd([]string{key}, hd.called) // its session ended, or a force was not recorded
			}
			if told != 0 {
				b.add(step{call: min(hd.may[key], told), ret: told, drop: []ref{{hd, key}}})
			}
		}
	}
}
