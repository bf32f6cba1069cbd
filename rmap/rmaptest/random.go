package rmaptest

import (
	"fmt"
	"maps"
	"math"
	"strconv"
	"time"

	"pgregory.net/rapid"

	"github.com/latchkey-go/latchkey/rmap"
)

// models runs random writes on the store and on the model, and compares everything after each.
func models() []test {
	return []test{{"RandomWrites", randomWrites}}
}

// soonOver is a ttl that is over before the next write: the run waits for it, so that there is never a doubt on which
// side of a deadline a write was.
const soonOver = 2 * time.Millisecond

func randomWrites(e *env) {
	run := 0
	// e is not a *testing.T to rapid, which would ask that for the deadline of the process, on another clock than a bubble's.
	rapid.Check(e, func(t *rapid.T) {
		run++
		p := &parallel{env: e, t: t, w: e.follow(e.first, fmt.Sprint("random ", run))}
		defer p.w.close()
		for range 1 + die(t, 40, "writes") {
			p.step(drawWrite(t, &p.m))
		}
		e.compare(p.w)
		if wrong := p.w.problems(); len(wrong) > 0 {
			t.Fatalf("the follower: %s", wrong[0])
		}
	})
}

// parallel is one run: a map in the store beside the model.
type parallel struct {
	*env
	t *rapid.T
	w *witness
	m model
}

func (p *parallel) step(w rmap.Write) {
	before := p.headOf(p.w)
	if d := p.m.due(time.Minute, before.Now); d != 0 {
		p.until("the store's clock reaches a deadline", func() bool { before = p.headOf(p.w); return before.Now >= d })
	}
	r, err := p.first.Write(p.ctx, p.w.name, w)
	after := p.headOf(p.w)
	told := p.w.last()
	if err != nil {
		p.failed(w, err, before, after)
		return
	}
	now := before.Now
	if r.Changed {
		now = told.Now
	}
	o := p.m.write(w, now, told.Revision)
	if wrong := o.agree(r, err, told); wrong != "" {
		p.t.Fatalf("%s: %s\nin a map of %+v", text(w), wrong, p.m)
	}
	p.accept(o, after)
}

// failed checks a write that was refused: nothing was done, but for a purge at most.
func (p *parallel) failed(w rmap.Write, err error, before, after rmap.Head) {
	as := rmap.Revision{Generation: 1, Number: before.Revision.Number + 1, Nonce: 1}
	if wrong := p.m.write(w, before.Now, as).agree(rmap.Result{}, err, rmap.Change{}); wrong != "" {
		p.t.Fatalf("%s: %s\nin a map of %+v", text(w), wrong, p.m)
	}
	if after.Revision == before.Revision {
		return
	}
	o := p.m.purged(p.w.last().Now)
	if wrong := o.told(p.w.last()); wrong != "" {
		p.t.Fatalf("%s was refused, and made a change: %s", text(w), wrong)
	}
	o.next.slide(true, p.w.last().Now)
	p.accept(o, after)
}

// accept makes an outcome the state of the model, after a look at where the store says that it is.
func (p *parallel) accept(o outcome, h rmap.Head) {
	if len(o.steps) > 0 {
		o.next.at = p.w.last().Revision
	}
	p.m = o.next
	m := p.m
	if h.Revision != m.at || h.Cleared != m.cleared || h.Lifetime != m.life || h.Expires != m.expires && !m.tomb {
		p.t.Fatalf("the head is %+v, want revision %v, cleared %d, lifetime %+v, end %d", h, m.at, m.cleared, m.life, m.expires)
	}
	got := p.w.copyAt(rmap.Head{Revision: h.Revision}) // with what is past its deadline
	if !maps.Equal(got, m.entries) {
		p.t.Fatalf("the store has another content: %s", difference(m.entries, got))
	}
}

// die draws a number below n, all of them alike: ranges of rapid's prefer what is small, and so the first of a list.
func die(t *rapid.T, n int, what string) int {
	return rapid.Custom(func(t *rapid.T) int {
		bits := 0
		for range 8 {
			bits <<= 1
			if rapid.Bool().Draw(t, "bit") {
				bits++
			}
		}
		return bits
	}).Draw(t, what) % n
}

// drawWrite draws a write that has a fair chance to do something to what is there.
func drawWrite(t *rapid.T, m *model) rmap.Write {
	var w rmap.Write
	for range max(0, die(t, 4, "conditions")-1) {
		w.If = append(w.If, drawCondition(t, m))
	}
	for range die(t, 6, "operations") {
		w.Ops = append(w.Ops, drawOp(t))
	}
	switch die(t, 10, "lifetime") {
	case 0:
		w.Lifetime = &rmap.Lifetime{TTL: long, Sliding: rapid.Bool().Draw(t, "sliding")}
	case 1, 2, 3:
		l := m.life
		w.Lifetime = &l
	}
	if die(t, 4, "limited") == 0 {
		w.MaxEntries = max(1, len(m.entries)+die(t, 3, "entries"))
	}
	w.WantOld = rapid.Bool().Draw(t, "old")
	return w
}

func drawKey(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "=gen", "\x00", "p:a=b", "\xff "}).Draw(t, "key")
}

func drawCondition(t *rapid.T, m *model) rmap.Condition {
	key := drawKey(t)
	x, there := m.entries[key]
	switch die(t, 7, "test") {
	case 0:
		return rmap.Condition{Key: key, Test: rapid.SampledFrom([]rmap.Test{rmap.IsAbsent, rmap.IsPresent}).Draw(t, "presence")}
	case 1:
		return value(key, drawValue(t))
	case 2:
		return written(key, rapid.SampledFrom([]uint64{x.Nonce, m.at.Nonce}).Draw(t, "nonce"))
	case 3:
		return value(key, x.Value)
	case 4:
		other := map[rmap.Kind]rmap.Kind{rmap.Integer: rmap.Plain, rmap.List: rmap.Plain, rmap.Plain: rmap.List}
		return value(key, rmap.Value{Kind: other[x.Value.Kind], Data: x.Value.Data})
	}
	if there {
		return present(key)
	}
	return absent(key)
}

func drawValue(t *rapid.T) rmap.Value {
	switch die(t, 4, "kind") {
	case 0:
		n := rapid.SampledFrom([]int64{0, 1, -1, 1 << 53, math.MaxInt64, math.MinInt64, math.MaxInt64 - 1}).Draw(t, "integer")
		return integer(strconv.FormatInt(n, 10))
	case 1:
		return list(drawItems(t)...)
	}
	return plain(rapid.SampledFrom([]string{"", "v", "5", "\x00\xff", "1:a"}).Draw(t, "value"))
}

// drawItems draws at least one: whether an empty list can be made otherwise than by a set is not said.
func drawItems(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.SampledFrom([]string{"", "x", "y", "1:", "\x00"}), 1, 3).Draw(t, "items")
}

func drawOp(t *rapid.T) rmap.Op {
	op := rmap.Op{Key: drawKey(t), KeepTTL: rapid.Bool().Draw(t, "keep"),
		TTL: rapid.SampledFrom([]time.Duration{0, 0, 0, long, long, 2*long + time.Millisecond, soonOver}).Draw(t, "ttl")}
	switch n := die(t, 20, "action"); {
	case n < 6:
		op.Do, op.Value = rmap.DoSet, drawValue(t)
	case n < 9:
		op.Do = rmap.DoAdd
		op.Delta = rapid.SampledFrom([]int64{1, -1, 7, 1 << 53, -(1 << 53) - 1, math.MaxInt64, math.MinInt64}).Draw(t, "delta")
	case n < 15:
		op.Do = rapid.SampledFrom([]rmap.Action{rmap.DoAppend, rmap.DoAppendUnique, rmap.DoRemove}).Draw(t, "list")
		op.Items = drawItems(t)
	case n < 17:
		op = del(op.Key)
	case n == 17:
		op = expire(op.Key)
	case n == 18:
		op = reset()
	default:
		op = destroy()
	}
	return op
}
