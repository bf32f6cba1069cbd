package rmaptest

import (
	"cmp"
	"errors"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// A model is a map as the contract describes it, with no thought of speed: each write works on a copy of everything.
// It knows no time but what it is told, and no random names but those that the store gave.
type model struct {
	at      rmap.Revision
	tomb    bool
	cleared uint64
	life    rmap.Lifetime
	expires int64
	entries map[string]rmap.Entry
}

// An outcome is what a write must come to.
type outcome struct {
	err      error
	conflict int
	current  *rmap.Entry
	old      []*rmap.Entry
	steps    []rmap.Step
	next     model // what the map is after it, but for its revision when it is new
}

// write says what a write comes to at a time of the store's clock, if the change is to be named as: only its number
// and nonce are used, for entries.
func (m model) write(w rmap.Write, now int64, as rmap.Revision) outcome {
	if w.Lifetime != nil && !m.at.IsZero() && !m.tomb && *w.Lifetime != m.life {
		return outcome{err: rmap.ErrLifetime, next: m}
	}
	o := m.purged(now)
	count := len(o.next.entries)
	for i, c := range w.If {
		x, there := o.next.entries[c.Key]
		holds := map[rmap.Test]bool{rmap.IsAbsent: !there, rmap.IsPresent: there,
			rmap.HasValue: there && x.Value == c.Value, rmap.HasNonce: there && x.Nonce == c.Nonce}[c.Test]
		if !holds {
			o.conflict = i + 1
			if there {
				o.current = &x
			}
			o.next.slide(len(o.steps) > 0, now)
			return o
		}
	}
	born := m.at.IsZero() || m.tomb
	for _, op := range w.Ops {
		var old *rmap.Entry
		if x, there := o.next.entries[op.Key]; there {
			old = &x
		}
		if w.WantOld {
			o.old = append(o.old, old)
		}
		steps, err := o.next.do(op, old, now, as, len(o.steps) > 0)
		if err != nil {
			return outcome{err: err, next: m}
		}
		o.steps = append(o.steps, steps...)
		born = born || len(steps) > 0 && op.Do == rmap.DoDestroy
	}
	if w.MaxEntries > 0 && len(o.next.entries) > w.MaxEntries && len(o.next.entries) > count {
		return outcome{err: rmap.ErrTooLarge, next: m}
	}
	if born && len(o.steps) > 0 && !o.next.tomb {
		o.next.life, o.next.expires = rmap.Lifetime{}, 0
		if w.Lifetime != nil && w.Lifetime.TTL > 0 {
			o.next.life, o.next.expires = *w.Lifetime, now+w.Lifetime.TTL.Milliseconds()
		}
	} else {
		o.next.slide(len(o.steps) > 0, now)
	}
	return o
}

// purged is what an empty write comes to.
func (m model) purged(now int64) outcome {
	o := outcome{next: m}
	o.next.entries = make(map[string]rmap.Entry)
	maps.Copy(o.next.entries, m.entries)
	for _, key := range slices.Sorted(maps.Keys(m.entries)) {
		if x := m.entries[key]; x.Deadline != 0 && x.Deadline <= now {
			delete(o.next.entries, key)
			o.steps = append(o.steps, ended(key))
		}
	}
	return o
}

func (m *model) slide(changed bool, now int64) {
	if changed && m.life.Sliding {
		m.expires = now + m.life.TTL.Milliseconds()
	}
}

// do does one operation. begun tells whether the write has done something before.
func (m *model) do(op rmap.Op, old *rmap.Entry, now int64, as rmap.Revision, begun bool) ([]rmap.Step, error) {
	switch op.Do {
	case rmap.DoSet:
		return m.set(op, old, op.Value, now, as), nil
	case rmap.DoDelete:
		if old == nil {
			return nil, nil
		}
		delete(m.entries, op.Key)
		return []rmap.Step{gone(op.Key)}, nil
	case rmap.DoAdd:
		sum := big.NewInt(op.Delta)
		if old != nil {
			n, ok := new(big.Int).SetString(old.Value.Data, 10)
			if !ok || old.Value.Kind != rmap.Integer {
				return nil, rmap.ErrKind
			}
			sum.Add(sum, n)
		}
		if !sum.IsInt64() {
			return nil, rmap.ErrRange
		}
		return m.set(op, old, integer(sum.String()), now, as), nil
	case rmap.DoAppend, rmap.DoAppendUnique, rmap.DoRemove:
		return m.list(op, old, now, as)
	case rmap.DoClear, rmap.DoDestroy:
		if op.Do == rmap.DoClear && len(m.entries) == 0 || op.Do == rmap.DoDestroy && (m.tomb || m.at.IsZero() && !begun) {
			return nil, nil
		}
		m.entries, m.cleared = make(map[string]rmap.Entry), as.Number
		if op.Do == rmap.DoDestroy {
			m.tomb, m.life, m.expires = true, rmap.Lifetime{}, 0
		}
		return []rmap.Step{whole(op.Do)}, nil
	}
	return nil, nil // DoExpire: what is past its deadline has been purged
}

func (m *model) set(op rmap.Op, old *rmap.Entry, v rmap.Value, now int64, as rmap.Revision) []rmap.Step {
	x := rmap.Entry{Key: op.Key, Value: v, Number: as.Number, Nonce: as.Nonce}
	if op.TTL > 0 {
		x.Deadline = now + op.TTL.Milliseconds()
	}
	if old != nil && (op.KeepTTL || op.Do == rmap.DoRemove) {
		x.Deadline = old.Deadline
	}
	m.entries[op.Key], m.tomb = x, false
	return []rmap.Step{{Do: rmap.DoSet, Entry: x}}
}

func (m *model) list(op rmap.Op, old *rmap.Entry, now int64, as rmap.Revision) ([]rmap.Step, error) {
	var items []string
	if old != nil {
		var err error
		if items, err = rmap.DecodeList(old.Value.Data); err != nil || old.Value.Kind != rmap.List {
			return nil, rmap.ErrKind
		}
	}
	n := len(items)
	for _, item := range op.Items {
		switch {
		case op.Do == rmap.DoRemove:
			items = slices.DeleteFunc(items, func(s string) bool { return s == item })
		case op.Do == rmap.DoAppend || !slices.Contains(items, item):
			items = append(items, item)
		}
	}
	switch {
	case len(items) == n:
		return nil, nil
	case len(items) == 0:
		delete(m.entries, op.Key)
		return []rmap.Step{gone(op.Key)}, nil
	}
	return m.set(op, old, list(items...), now, as), nil
}

// agree compares what a write came to with what it must come to; told is the change, zero when there was none.
func (o outcome) agree(r rmap.Result, err error, told rmap.Change) string {
	if o.err != nil || err != nil {
		if !errors.Is(err, o.err) {
			return "the error is " + text(err) + ", want " + text(o.err)
		}
		return ""
	}
	switch {
	case r.Conflict != o.conflict:
		return "the conflict is " + text(r.Conflict) + ", want " + text(o.conflict)
	case !sameEntry(r.Current, o.current):
		return "the entry of the conflict is " + text(r.Current) + ", want " + text(o.current)
	case !slices.EqualFunc(r.Old, o.old, sameEntry):
		return "what was there before is " + entriesText(r.Old) + ", want " + entriesText(o.old)
	case r.Changed != (len(o.steps) > 0):
		return "that it changed is " + text(r.Changed) + ", want " + text(len(o.steps) > 0)
	case r.Changed:
		return o.told(told)
	}
	return ""
}

// told compares a change. In which order a purge goes is not said.
func (o outcome) told(c rmap.Change) string {
	if got, want := purgeSorted(c.Steps), purgeSorted(o.steps); !slices.Equal(got, want) {
		return "the steps are " + text(got) + ", want " + text(want)
	}
	if c.Expires != o.next.expires && !o.next.tomb {
		return "the end of the map is " + text(c.Expires) + ", want " + text(o.next.expires)
	}
	return ""
}

func purgeSorted(steps []rmap.Step) []rmap.Step {
	out := slices.Clone(steps)
	n := slices.IndexFunc(out, func(s rmap.Step) bool { return s.Do != rmap.DoExpire })
	if n < 0 {
		n = len(out)
	}
	slices.SortFunc(out[:n], func(a, b rmap.Step) int { return cmp.Compare(a.Entry.Key, b.Entry.Key) })
	return out
}

func sameEntry(a, b *rmap.Entry) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func entriesText(list []*rmap.Entry) string {
	var parts []string
	for _, x := range list {
		if x == nil {
			parts = append(parts, "none")
		} else {
			parts = append(parts, text(*x))
		}
	}
	return strings.Join(parts, ", ")
}

// due tells the last deadline among those that are to pass before the next write.
func (m model) due(within time.Duration, now int64) int64 {
	last := int64(0)
	for _, x := range m.entries {
		if x.Deadline != 0 && x.Deadline < now+within.Milliseconds() {
			last = max(last, x.Deadline)
		}
	}
	return last
}
