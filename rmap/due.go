package rmap

import "container/heap"

// due orders the entries that have a deadline, the nearest first. Entries without one are not in it.
type due[K comparable] struct {
	order []*deadline[K]
	byKey map[K]*deadline[K]
}

type deadline[K comparable] struct {
	key K
	at  int64 // milliseconds of Unix time by the store's clock
	pos int   // in order
}

// set notes the deadline of a key; 0 is none.
func (d *due[K]) set(key K, at int64) {
	e := d.byKey[key]
	switch {
	case e == nil && at == 0:
	case e == nil:
		if d.byKey == nil {
			d.byKey = map[K]*deadline[K]{}
		}
		e = &deadline[K]{key: key, at: at}
		d.byKey[key] = e
		heap.Push((*dueHeap[K])(d), e)
	case at == 0:
		heap.Remove((*dueHeap[K])(d), e.pos)
		delete(d.byKey, key)
	default:
		e.at = at
		heap.Fix((*dueHeap[K])(d), e.pos)
	}
}

// first returns the nearest deadline, 0 for none.
func (d *due[K]) first() int64 {
	if len(d.order) == 0 {
		return 0
	}
	return d.order[0].at
}

// pop removes the key with the nearest deadline if that is not after now.
func (d *due[K]) pop(now int64) (key K, ok bool) {
	if len(d.order) == 0 || d.order[0].at > now {
		return key, false
	}
	e := heap.Pop((*dueHeap[K])(d)).(*deadline[K])
	delete(d.byKey, e.key)
	return e.key, true
}

// dueHeap is due as package heap wants to see it.
type dueHeap[K comparable] due[K]

func (h *dueHeap[K]) Len() int           { return len(h.order) }
func (h *dueHeap[K]) Less(i, j int) bool { return h.order[i].at < h.order[j].at }

func (h *dueHeap[K]) Swap(i, j int) {
	h.order[i], h.order[j] = h.order[j], h.order[i]
	h.order[i].pos, h.order[j].pos = i, j
}

func (h *dueHeap[K]) Push(x any) {
	e := x.(*deadline[K])
	e.pos = len(h.order)
	h.order = append(h.order, e)
}

func (h *dueHeap[K]) Pop() any {
	e := h.order[len(h.order)-1]
	h.order[len(h.order)-1] = nil
	h.order = h.order[:len(h.order)-1]
	return e
}
