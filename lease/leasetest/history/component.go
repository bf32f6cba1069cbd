package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/latchkey-go/latchkey/lease"
)

// component is a part of a history that can be judged alone: keys that no lease
// ties to others.
type component struct {
	keys []string
	ops  []porcupine.Operation
}

// components splits the steps by the keys that leases on many keys tie together.
func (b *builder) components() []*component {
	parent := make(map[string]string)
	var find func(k string) string
	find = func(k string) string {
		if p, ok := parent[k]; ok && p != k {
			parent[k] = find(p)
			return parent[k]
		}
		parent[k] = k
		return k
	}
	for _, hd := range b.order {
		keys := keysOf(hd.tokens)
		for _, k := range keys {
			parent[find(k)] = find(keys[0])
		}
	}
	for i := range b.steps {
		for _, k := range []string{b.steps[i].fenced, b.steps[i].free} {
			if k != "" {
				find(k) // it may have been forced only
			}
		}
	}
	of := make(map[string]*component)
	var all []*component
	for _, k := range keysOf(parent) {
		root := find(k)
		if of[root] == nil {
			of[root] = &component{}
			all = append(all, of[root])
		}
		of[root].keys = append(of[root].keys, k)
		of[k] = of[root]
	}
	for i := range b.steps {
		for _, c := range all {
			c.take(&b.steps[i])
		}
	}
	for _, c := range all {
		c.ticks()
	}
	return all
}

// ticks adds the moments from which holds may have ended unseen.
func (c *component) ticks() {
	at := make(map[Stamp]bool)
	for _, op := range c.ops {
		for _, s := range op.Input.(*input).grant {
			if s.may != 0 {
				at[s.may] = true
			}
		}
	}
	for t := range at {
		in := &input{step: &step{call: t, ret: t}, kill: -1, free: -1, turn: -1, tick: t}
		c.ops = append(c.ops, porcupine.Operation{Input: in, Call: int64(t), Return: int64(t)})
	}
}

// take adds the part of a step that is about the component's keys, if there is one.
func (c *component) take(s *step) {
	in := &input{step: s, kill: -1, free: -1, turn: -1, grant: c.seats(s.grant),
		there: c.seats(s.there), gone: c.seats(s.gone), must: c.seats(s.must), drop: c.seats(s.drop)}
	if s.kill != nil && in.drop != nil {
		in.kill = s.kill.n
	}
	if k, ok := c.key(s.free); ok {
		in.free = k
	}
	_, fenced := c.key(s.fenced)
	if in.grant == nil && in.there == nil && in.gone == nil && in.must == nil && in.drop == nil && in.free < 0 && !fenced {
		return
	}
	c.ops = append(c.ops, porcupine.Operation{Input: in, Call: int64(s.call), Return: int64(s.ret)})
}

func (c *component) key(name string) (int32, bool) {
	i, ok := slices.BinarySearch(c.keys, name)
	return int32(i), ok
}

func (c *component) seats(refs []ref) []seat {
	var out []seat
	for _, r := range refs {
		k, ok := c.key(r.key)
		if !ok {
			continue
		}
		s := seat{key: k, hold: r.hold.n, may: r.hold.may[r.key], shown: r.hold.shown[r.key]}
		switch r.hold.request.Mode {
		case lease.Exclusive:
			s.limit = 1
		case lease.Counted:
			s.limit = int32(r.hold.request.Limit)
		}
		out = append(out, s)
	}
	return out
}

// tokens returns what a step takes from the counter, by key.
func (s *step) tokens() map[string]lease.Token {
	if s.fenced != "" {
		return map[string]lease.Token{s.fenced: s.fence}
	}
	if len(s.grant) > 0 {
		return s.grant[0].hold.tokens
	}
	return nil
}

// turns puts the steps that take tokens in the order of the counter. A key's own
// tokens must follow the same order.
func (c *component) turns() error {
	var taking []*input
	for _, op := range c.ops {
		if in := op.Input.(*input); in.step.tokens() != nil {
			taking = append(taking, in)
		}
	}
	first := func(in *input) lease.Token { return slices.Min(slices.Collect(maps.Values(in.step.tokens()))) }
	slices.SortFunc(taking, func(a, b *input) int { return cmp.Compare(first(a), first(b)) })
	last := make(map[string]*input)
	for i, in := range taking {
		in.turn = int32(i)
		for k, t := range in.step.tokens() {
			if was := last[k]; was != nil && was.step.tokens()[k] >= t {
				return fmt.Errorf("key %q: no order of tokens: %v and %v", k, was, in)
			}
			last[k] = in
		}
	}
	return nil
}
