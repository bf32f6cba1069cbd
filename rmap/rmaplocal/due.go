package rmaplocal

import (
	"cmp"
	"container/heap"
	"slices"
	"strings"

	"github.com/latchkey-go/latchkey/rmap"
)

// An item is an entry in a map. The entry is never changed, so that it can be read without a lock; place is guarded by
// the book's.
type item struct {
	entry rmap.Entry
	place int // in the heap of deadlines
}

// deadlines has the entries that end, the next to end first.
type deadlines []*item

func (h *deadlines) add(it *item) {
	if it.entry.Deadline != 0 {
		heap.Push((*byDeadline)(h), it)
	}
}

func (h *deadlines) remove(it *item) {
	if it.entry.Deadline != 0 {
		heap.Remove((*byDeadline)(h), it.place)
	}
}

// passed returns up to limit items that are past their deadline, by deadline and key. It looks at no more than twice
// as many: what lies below an item in the heap does not end before it.
func (h deadlines) passed(now int64, limit int) []*item {
	var out []*item
	look := []int{0}
	for len(look) > 0 && len(out) < limit {
		i := look[0]
		look = look[1:]
		if i < len(h) && passed(&h[i].entry, now) {
			out = append(out, h[i])
			look = append(look, 2*i+1, 2*i+2)
		}
	}
	slices.SortFunc(out, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.entry.Deadline, b.entry.Deadline), strings.Compare(a.entry.Key, b.entry.Key))
	})
	return out
}

// byDeadline is deadlines as package heap wants to see them.
type byDeadline []*item

func (h byDeadline) Len() int           { return len(h) }
func (h byDeadline) Less(i, j int) bool { return h[i].entry.Deadline < h[j].entry.Deadline }

func (h byDeadline) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

func (h *byDeadline) Push(x any) {
	it := x.(*item)
	it.place = len(*h)
	*h = append(*h, it)
}

func (h *byDeadline) Pop() any {
	last := len(*h) - 1
	it := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return it
}
