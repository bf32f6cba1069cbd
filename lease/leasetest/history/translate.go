package history

import (
	"github.com/latchkey-go/latchkey/lease"
)

// ref is one key of one hold.
type ref struct {
	hold *hold
	key  string
}

// step is one operation of the model: what it needs and what it changes, at one
// moment between call and ret.
type step struct {
	call, ret Stamp

	grant  []ref       // begin; all of one hold
	there  []ref       // are held at that moment
	gone   []ref       // are not
	must   []ref       // end, and were held
	drop   []ref       // end, if they are held
	kill   *hold       // never begins any more
	free   string      // nobody else holds this key
	fence  lease.Token // is taken on the key fenced
	fenced string

	op *Op // where it comes from, for people; nil for what was worked out
}

func (b *builder) add(s step) { b.steps = append(b.steps, s) }

// translate turns what was done and answered into steps.
func (b *builder) translate(o *Op) {
	hd := b.of(o)
	s := step{call: o.Call, ret: o.Return, op: o}
	switch o.Kind {
	case Acquire:
		if hd != nil && o.settled() && !o.failed() && o.Return != hd.known {
			s.state(hd, o.Held) // a repeat
		}
	case Renew, Detach:
		b.looked(&s, hd, o)
	case Release:
		b.released(&s, hd, o)
	case Cancel:
		switch {
		case hd == nil: // never granted, as far as anybody saw
		case !o.settled():
			hd.mayEnd(keysOf(hd.tokens), o.Call)
		case !o.failed():
			s.drop, s.kill = hd.refs(), hd
		}
	case Force:
		b.force(&s, o)
	case Resume:
		b.resumed(&s, o)
	case Close:
		b.closed(&s, o)
	}
	b.add(s)
}

// refs returns every key of a hold.
func (hd *hold) refs() []ref {
	var out []ref
	for _, k := range keysOf(hd.tokens) {
		out = append(out, ref{hd, k})
	}
	return out
}

// state says which keys a hold had at that moment, and which it had not.
func (s *step) state(hd *hold, held []lease.Hold) {
	for _, r := range hd.refs() {
		if has(held, r.key) {
			s.there = append(s.there, r)
			hd.shown[r.key]++
		} else {
			s.gone = append(s.gone, r)
		}
	}
}

func has(held []lease.Hold, key string) bool {
	for _, x := range held {
		if x.Key == key {
			return true
		}
	}
	return false
}

// looked is a command that changes no holder.
func (b *builder) looked(s *step, hd *hold, o *Op) {
	switch {
	case hd == nil || !o.settled():
	case !o.failed():
		if o.Kind == Detach && len(o.Held) == 0 {
			return // it still waited
		}
		s.state(hd, o.Held)
	case o.Code == lease.ErrNotHeld:
		s.gone = hd.named(o)
	}
}

// named returns the keys that a command is about: one when it names a token.
func (hd *hold) named(o *Op) []ref {
	if o.ID == "" {
		for k, t := range hd.tokens {
			if t == o.Token {
				return []ref{{hd, k}}
			}
		}
	}
	return hd.refs()
}

func (b *builder) released(s *step, hd *hold, o *Op) {
	switch {
	case hd == nil:
	case !o.settled():
		for _, r := range hd.named(o) {
			hd.mayEnd([]string{r.key}, o.Call)
		}
	case !o.failed():
		for _, r := range hd.named(o) {
			if has(o.Held, r.key) {
				s.must = append(s.must, r)
				hd.definite[r.key] = true
			} else {
				s.gone = append(s.gone, r)
			}
		}
	case o.Code == lease.ErrNotHeld:
		s.gone = hd.named(o)
	}
}

func (b *builder) force(s *step, o *Op) {
	key := o.Request.Keys[0]
	switch {
	case !o.settled():
		for _, hd := range b.order {
			if t, ok := hd.tokens[key]; ok && (o.Token == 0 || o.Token == t) {
				hd.mayEnd([]string{key}, o.Call)
			}
		}
	case !o.failed():
		s.fence, s.fenced = o.Fence, key
		if o.Token == 0 {
			s.free = key
		}
		for _, x := range o.Held {
			if x.Token >= o.Fence {
				b.wrong("force of %q fences with %d, and ended token %d", key, o.Fence, x.Token)
			}
			if hd := b.tokens[x.Token]; hd != nil {
				s.must = append(s.must, ref{hd, key})
			}
		}
	case o.Code == lease.ErrNotHeld && o.Token == 0:
		s.free = key
	case o.Code == lease.ErrNotHeld:
		if hd := b.tokens[o.Token]; hd != nil && hd.tokens[key] == o.Token {
			s.gone = []ref{{hd, key}}
		}
	}
}

// resumed compares what a session says it holds with what it was granted.
func (b *builder) resumed(s *step, o *Op) {
	if !o.settled() || o.failed() && o.Code != lease.ErrSessionLost {
		return
	}
	listed := make(map[string][]lease.Hold)
	for _, l := range o.Leases {
		listed[l.ID] = l.Holds
	}
	for _, hd := range b.order {
		if hd.owner == o.Session && hd.known < o.Call && !(o.failed() && hd.outlives(o.Return)) {
			s.state(hd, listed[hd.id])
		}
	}
}

// closed is the goodbye: it ends what is not detached.
func (b *builder) closed(s *step, o *Op) {
	if o.settled() && o.failed() {
		return
	}
	for _, hd := range b.order {
		switch {
		case hd.owner != o.Session:
		case hd.outlives(o.Return) || hd.known > o.Call || !o.settled():
			hd.mayEnd(keysOf(hd.tokens), o.Call)
		default:
			s.drop = append(s.drop, hd.refs()...)
		}
	}
}
