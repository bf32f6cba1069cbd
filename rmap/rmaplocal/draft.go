package rmaplocal

import (
	"fmt"
	"math"
	"strconv"

	"github.com/latchkey-go/latchkey/rmap"
)

// A draft is a change in the making: what the map would be, over a book that is left alone until all has gone well.
type draft struct {
	book *book
	now  int64
	at   rmap.Revision // of the change, should it come to one

	over    map[string]*rmap.Entry // what replaces entries of the book; nil removes one
	cleared bool                   // only what is in over is there
	born    bool                   // the map begins with this change, or begins anew
	tomb    bool                   // the map ends with this change, or has ended before
	count   int                    // entries, those past their deadline that have not been removed included
	steps   []rmap.Step
	size    int // bytes in steps
}

func (b *book) draft(now int64) *draft {
	d := &draft{book: b, now: now, at: b.at, born: b.at.IsZero() || b.tomb, tomb: b.tomb, count: len(b.entries)}
	if b.at.IsZero() {
		d.at.Generation = nonce()
	}
	d.at.Number++
	d.at.Nonce = nonce()
	return d
}

// purge removes entries past their deadline, up to the limit of one write.
func (d *draft) purge() {
	for _, it := range d.book.due.passed(d.now, rmap.PurgeBatch) {
		d.remove(rmap.DoExpire, it.entry.Key)
	}
}

// stored returns the entry under a key, past its deadline or not.
func (d *draft) stored(key string) *rmap.Entry {
	if e, ok := d.over[key]; ok {
		return e
	}
	if it := d.book.entries[key]; it != nil && !d.cleared {
		return &it.entry
	}
	return nil
}

// entry returns the entry under a key, nil when there is none or it is past its deadline.
func (d *draft) entry(key string) *rmap.Entry {
	if e := d.stored(key); e != nil && !passed(e, d.now) {
		return e
	}
	return nil
}

func passed(e *rmap.Entry, now int64) bool { return e.Deadline != 0 && e.Deadline <= now }

// conflict returns the index of the first condition that does not hold, or -1.
func (d *draft) conflict(conditions []rmap.Condition) int {
	for i, c := range conditions {
		e := d.entry(c.Key)
		var holds bool
		switch c.Test {
		case rmap.IsAbsent:
			holds = e == nil
		case rmap.IsPresent:
			holds = e != nil
		case rmap.HasValue:
			holds = e != nil && e.Value == c.Value
		case rmap.HasNonce:
			holds = e != nil && e.Nonce == c.Nonce
		}
		if !holds {
			return i
		}
	}
	return -1
}

// apply does the operations of a write, one after the other, each on what the one before left.
func (d *draft) apply(w *rmap.Write, r *rmap.Result) error {
	before := d.count
	for i := range w.Ops {
		op := &w.Ops[i]
		// One that was beyond what a purge removes ends here, so that nobody can take it for what the operation did.
		if e := d.stored(op.Key); e != nil && passed(e, d.now) {
			d.remove(rmap.DoExpire, op.Key)
		}
		old := d.stored(op.Key)
		if w.WantOld {
			r.Old = append(r.Old, copied(old))
		}
		if err := d.do(op, old); err != nil {
			return fmt.Errorf("operation %d on key %s: %w", i+1, quoted(op.Key), err)
		}
		if d.size > rmap.MaxWrite {
			return fmt.Errorf("operation %d on key %s: %w: the change is over %d bytes (MaxWrite)", i+1, quoted(op.Key),
				rmap.ErrTooLarge, rmap.MaxWrite)
		}
	}
	// A map that is too large already can be changed, and made smaller.
	if w.MaxEntries > 0 && d.count > w.MaxEntries && d.count > before {
		return fmt.Errorf("%w: it would have %d entries, at most %d", rmap.ErrTooLarge, d.count, w.MaxEntries)
	}
	return nil
}

func (d *draft) do(op *rmap.Op, old *rmap.Entry) error {
	switch op.Do {
	case rmap.DoSet:
		d.set(op, old, op.Value)
	case rmap.DoDelete:
		if old != nil {
			d.remove(rmap.DoDelete, op.Key)
		}
	case rmap.DoAdd:
		return d.add(op, old)
	case rmap.DoAppend, rmap.DoAppendUnique, rmap.DoRemove:
		return d.list(op, old)
	case rmap.DoClear:
		if d.count > 0 {
			d.clear(rmap.DoClear)
		}
	case rmap.DoDestroy:
		if exists := !d.book.at.IsZero() || len(d.steps) > 0; exists && !d.tomb {
			d.clear(rmap.DoDestroy)
			d.tomb, d.born = true, true
		}
	}
	return nil // DoExpire has been done on the way
}

func (d *draft) set(op *rmap.Op, old *rmap.Entry, v rmap.Value) {
	e := &rmap.Entry{Key: op.Key, Value: v, Number: d.at.Number, Nonce: d.at.Nonce}
	switch {
	case old != nil && (op.KeepTTL || op.Do == rmap.DoRemove):
		e.Deadline = old.Deadline
	case op.TTL > 0:
		e.Deadline = d.now + rmap.Milliseconds(op.TTL)
	}
	if old == nil {
		d.count++
	}
	d.tomb = false
	d.put(op.Key, e)
	d.step(rmap.Step{Do: rmap.DoSet, Entry: *e})
}

func (d *draft) add(op *rmap.Op, old *rmap.Entry) error {
	var n int64
	if old != nil {
		var err error
		if n, err = strconv.ParseInt(old.Value.Data, 10, 64); old.Value.Kind != rmap.Integer || err != nil {
			return fmt.Errorf("%w: it is no integer", rmap.ErrKind)
		}
	}
	if op.Delta > 0 && n > math.MaxInt64-op.Delta || op.Delta < 0 && n < math.MinInt64-op.Delta {
		return rmap.ErrRange
	}
	d.set(op, old, rmap.Value{Kind: rmap.Integer, Data: strconv.FormatInt(n+op.Delta, 10)})
	return nil
}

func (d *draft) list(op *rmap.Op, old *rmap.Entry) error {
	var before []string
	if old != nil {
		var err error
		if before, err = rmap.DecodeList(old.Value.Data); old.Value.Kind != rmap.List || err != nil {
			return fmt.Errorf("%w: it is no list", rmap.ErrKind)
		}
	}
	after := rmap.ChangeList(op.Do, before, op.Items)
	if len(after) == len(before) {
		return nil // items are only ever added or removed, so they are as they were
	}
	if len(after) == 0 {
		d.remove(rmap.DoDelete, op.Key)
		return nil
	}
	data := rmap.EncodeList(after)
	if len(data) > rmap.MaxValue {
		return fmt.Errorf("%w: the list would have %d bytes, at most %d (MaxValue)", rmap.ErrTooLarge, len(data), rmap.MaxValue)
	}
	d.set(op, old, rmap.Value{Kind: rmap.List, Data: data})
	return nil
}

// remove takes out an entry that is there.
func (d *draft) remove(do rmap.Action, key string) {
	d.put(key, nil)
	d.count--
	d.step(rmap.Step{Do: do, Entry: rmap.Entry{Key: key}})
}

func (d *draft) clear(do rmap.Action) {
	d.over, d.cleared, d.count = nil, true, 0
	d.step(rmap.Step{Do: do})
}

func (d *draft) put(key string, e *rmap.Entry) {
	if d.over == nil {
		d.over = make(map[string]*rmap.Entry)
	}
	d.over[key] = e
}

func (d *draft) step(s rmap.Step) {
	d.steps = append(d.steps, s)
	if s.Do != rmap.DoExpire { // what a purge adds is no fault of the writer
		d.size += len(s.Entry.Key) + len(s.Entry.Value.Data)
	}
}
