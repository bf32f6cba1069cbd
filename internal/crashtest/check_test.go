//go:build linux

package crashtest

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/latchkey-go/latchkey/lease"
)

// span is a time in which a holder believed that it held.
type span struct{ from, to int64 }

// view is one granted request as its holder saw it.
type view struct {
	who, id  string
	ask      lease.Request
	asked    int64
	got      int64
	tokens   map[string]lease.Token
	promised []span // from when it was known, up to when the holder may act
	over     int64  // it stopped, or was told of a loss; never is math.MaxInt64
	released int64  // and the release was confirmed
}

func (v *view) String() string { return fmt.Sprintf("%s %s %v", v.id, v.ask.Mode, v.tokens) }

// until is the latest promise known at a time, 0 for none.
func (v *view) until(at int64) int64 {
	u := int64(0)
	for _, p := range v.promised {
		if p.from <= at {
			u = max(u, p.to)
		}
	}
	return u
}

// beliefs are the times in which the holder acted on the hold, in order and apart from each other.
func (v *view) beliefs() []span {
	var out []span
	for _, p := range v.promised {
		p.to = min(p.to, v.over)
		if p.from >= p.to {
			continue
		}
		if n := len(out); n > 0 && p.from <= out[n-1].to {
			out[n-1].to = max(out[n-1].to, p.to)
			continue
		}
		out = append(out, p)
	}
	return out
}

// checker judges the entries of all diaries of one broker, over all its lives.
type checker struct {
	entries []entry
	views   map[string]*view // by request id; they are unique
	order   []*view          // as they were granted
	wrong   []string

	// How much there was to judge.
	listed  int // holds that had to be in a listing, and were looked for
	spanned int // holds that lived through the death of the broker, and were released after it
	expired int // losses that were told after the promise
}

// check returns what is wrong, nothing when all is well.
func check(entries []entry) *checker {
	c := &checker{entries: entries, views: make(map[string]*view)}
	c.build()
	c.rising()
	c.exclusion()
	for i := range entries {
		if entries[i].What == listed {
			c.present(&entries[i])
		}
	}
	c.span()
	return c
}

func (c *checker) fault(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// build makes the views, and finds what was lost before its time.
func (c *checker) build() {
	asks := make(map[string]*entry)
	owner := make(map[lease.Token]string)
	for i := range c.entries {
		e := &c.entries[i]
		v := c.views[e.ID]
		switch e.What {
		case trouble:
			c.fault("trouble: %s: %s", e.Who, e.Text)
		case asked:
			asks[e.ID] = e
		case got:
			ask := asks[e.ID]
			if ask == nil {
				c.fault("order: %s was granted before it was asked for", e.ID)
				continue
			}
			v = &view{who: e.Who, id: e.ID, ask: ask.Ask, asked: ask.At, got: e.At, tokens: make(map[string]lease.Token), over: math.MaxInt64}
			for _, h := range e.Held {
				if other, used := owner[h.Token]; used {
					c.fault("twice: token %d of %q was given to %s and to %s", h.Token, h.Key, other, e.ID)
				}
				owner[h.Token] = e.ID
				v.tokens[h.Key] = h.Token
			}
			if len(v.tokens) != len(v.ask.Keys) {
				c.fault("partly: %s was granted %v of %q", e.ID, e.Held, v.ask.Keys)
			}
			c.views[e.ID] = v
			c.order = append(c.order, v)
			fallthrough
		case still, renewed:
			if v != nil && v.over == math.MaxInt64 && e.Until > e.At {
				v.promised = append(v.promised, span{e.At, e.Until})
			}
			if e.What == renewed && e.Code == lease.ErrNotHeld {
				c.early(v, e)
			}
		case drop:
			if v != nil {
				v.over = min(v.over, e.At)
			}
		case dropped:
			c.dropped(v, e)
		case lost:
			c.lost(v, e)
		}
	}
}

// early is for an answer that says that a hold is over.
func (c *checker) early(v *view, e *entry) {
	if v == nil {
		return
	}
	if u := v.until(e.At); e.At < u {
		c.fault("lost: %v was promised for %v more when it was %s with %q", v, nanos(u-e.At), e.What, e.Code)
	}
}

// dropped is the answer to a release. The promise is that of the time when it was asked for.
func (c *checker) dropped(v *view, e *entry) {
	if v == nil {
		return
	}
	switch e.Code {
	case "":
		v.released = e.At
	case lease.ErrNotHeld, lease.ErrOver, lease.ErrExpired, lease.ErrForced, lease.ErrSessionLost:
		c.early(v, e)
	}
}

// lost is a notice: of one hold, or of a whole session.
func (c *checker) lost(v *view, e *entry) {
	if e.ID != "" {
		if v == nil || v.over < e.At {
			return // its release was on the way
		}
		c.early(v, e)
		v.over = e.At
		c.expired++
		return
	}
	for _, v := range c.order {
		if v.who == e.Who && v.over > e.At && !v.ask.Detach {
			c.early(v, e)
			v.over = e.At
			c.expired++
		}
	}
}

// rising checks that what was granted before another request was made has lower tokens than that gets, on any keys:
// there is one counter.
func (c *checker) rising() {
	byAsk := slices.Clone(c.order)
	slices.SortStableFunc(byAsk, func(a, b *view) int { return cmp.Compare(a.asked, b.asked) })
	highest, i := lease.Token(0), 0
	var owner *view
	for _, v := range byAsk {
		for ; i < len(c.order) && c.order[i].got < v.asked; i++ {
			for _, t := range c.order[i].tokens {
				if t > highest {
					highest, owner = t, c.order[i]
				}
			}
		}
		for key, t := range v.tokens {
			if t <= highest {
				c.fault("lowered: %s was asked for after %v was granted, and got token %d of %q", v.id, owner, t, key)
			}
		}
	}
}

// exclusion checks at each moment at which a holder begins to act that all who act then may do so together, and that
// holds which exclude one another act in the order of their tokens.
func (c *checker) exclusion() {
	byKey := make(map[string][]*view)
	for _, v := range c.order {
		for key := range v.tokens {
			byKey[key] = append(byKey[key], v)
		}
	}
	type moment struct {
		at    int64
		begin bool
		v     *view
	}
	for key, views := range byKey {
		var all []moment
		for _, v := range views {
			for _, s := range v.beliefs() {
				all = append(all, moment{s.from, true, v}, moment{s.to, false, v})
			}
		}
		slices.SortStableFunc(all, func(a, b moment) int {
			if a.at == b.at && a.begin != b.begin {
				return map[bool]int{true: 1, false: -1}[a.begin]
			}
			return cmp.Compare(a.at, b.at)
		})
		var acting []*view
		for _, m := range all {
			if !m.begin {
				acting = slices.DeleteFunc(acting, func(v *view) bool { return v == m.v })
				continue
			}
			acting = append(acting, m.v)
			if !mayCoexist(acting) {
				c.fault("together: %q is held by %v at once", key, acting)
			}
		}
		c.inOrder(key, views)
	}
}

// mayCoexist is the one rule of modes.
func mayCoexist(all []*view) bool {
	shared, limit := 0, math.MaxInt
	for _, v := range all {
		switch v.ask.Mode {
		case lease.Shared:
			shared++
		case lease.Counted:
			limit = min(limit, v.ask.Limit)
		default:
			limit = 1
		}
	}
	if shared > 0 {
		return shared == len(all)
	}
	return len(all) <= limit
}

// inOrder: of two holds of which one is exclusive, the one that is acted on first has the lower token.
func (c *checker) inOrder(key string, views []*view) {
	var acted []*view
	for _, v := range views {
		if len(v.beliefs()) > 0 {
			acted = append(acted, v)
		}
	}
	slices.SortStableFunc(acted, func(a, b *view) int { return cmp.Compare(a.beliefs()[0].from, b.beliefs()[0].from) })
	var any, exclusive *view // with the highest token so far
	for _, v := range acted {
		before := exclusive
		if v.ask.Mode == lease.Exclusive {
			before = any
		}
		if before != nil && before.tokens[key] > v.tokens[key] {
			c.fault("lowered: %q was held by %v after %v", key, v, before)
		}
		if any == nil || v.tokens[key] > any.tokens[key] {
			any = v
		}
		if v.ask.Mode == lease.Exclusive && (exclusive == nil || v.tokens[key] > exclusive.tokens[key]) {
			exclusive = v
		}
	}
}

// present looks for every hold that its holder had a promise for, over the whole time of the question, in what the
// broker answered.
func (c *checker) present(e *entry) {
	there := make(map[lease.Hold]bool)
	for _, h := range e.Held {
		there[h] = true
	}
	for _, v := range c.order {
		if v.got >= e.From || v.over <= e.At || v.until(e.From) <= e.At {
			continue
		}
		c.listed++
		for key, t := range v.tokens {
			if !there[lease.Hold{Key: key, Token: t}] {
				c.fault("missing: %v is promised for %v more, and %q is not listed", v, nanos(v.until(e.From)-e.At), key)
			}
		}
	}
}

// span counts what lived through a death of the broker.
func (c *checker) span() {
	for i := range c.entries {
		for _, v := range c.order {
			if at := c.entries[i].At; c.entries[i].What == killed && v.got < at && at < v.released {
				c.spanned++
			}
		}
	}
}
