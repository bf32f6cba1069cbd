package rmaplocal

import (
	"slices"

	"github.com/latchkey-go/latchkey/rmap"
)

// What the log of a map keeps at most. The bytes count for values that have been replaced since, which it alone keeps.
const (
	logChanges = 1024
	logBytes   = 4 << 20
)

// changes is the log of a map: the last changes of its generation, in order.
type changes struct {
	ring  []rmap.Change // grows up to logChanges, and then goes round
	first int           // where the oldest is
	n     int
	bytes int
}

func (c *changes) at(i int) *rmap.Change { return &c.ring[(c.first+i)%len(c.ring)] }

func (c *changes) add(ch rmap.Change) {
	size := weight(ch)
	for c.n > 0 && (c.n == logChanges || c.bytes+size > logBytes) {
		c.drop()
	}
	if size > logBytes {
		return // everything before it has been dropped, so that the log has no gap
	}
	if c.n == len(c.ring) {
		c.grow()
	}
	c.n++
	*c.at(c.n - 1) = ch
	c.bytes += size
}

// grow doubles the ring, so that a map that changes rarely does not pay for one that changes often.
func (c *changes) grow() {
	ring := make([]rmap.Change, max(8, min(2*len(c.ring), logChanges)))
	for i := range c.n {
		ring[i] = *c.at(i)
	}
	c.ring, c.first = ring, 0
}

func (c *changes) drop() {
	c.bytes -= weight(*c.at(0))
	*c.at(0) = rmap.Change{}
	c.first = (c.first + 1) % len(c.ring)
	c.n--
}

// since returns what followed r, or nothing when that is not known. The beginning of a generation has no nonce, and the
// first change names none as the one before it.
func (c *changes) since(r rmap.Revision) []rmap.Change {
	if c.n == 0 || r.Generation != c.at(0).Revision.Generation {
		return nil
	}
	oldest := c.at(0)
	if r.Number < oldest.Revision.Number-1 || r.Number >= c.at(c.n-1).Revision.Number {
		return nil
	}
	from := int(r.Number + 1 - oldest.Revision.Number)
	if c.at(from).Prev != r.Nonce {
		return nil
	}
	out := make([]rmap.Change, 0, c.n-from)
	for i := from; i < c.n; i++ {
		ch := *c.at(i)
		ch.Steps = slices.Clip(ch.Steps)
		out = append(out, ch)
	}
	return out
}

// weight is what a change holds on to, roughly: a step is a few words besides its key and value.
func weight(ch rmap.Change) int {
	n := 64
	for _, s := range ch.Steps {
		n += 64 + len(s.Entry.Key) + len(s.Entry.Value.Data)
	}
	return n
}
