package leaseremote

// maxTold bounds how many losses a session remembers. It is needed for as long as
// a release that crossed the loss is on its way.
const maxTold = 1024

// told remembers of which leases a loss was told last. The session's mutex guards
// it.
type told struct {
	ids   map[string]bool
	order []string // a ring, the oldest at next once it is full
	next  int
}

func (t *told) add(id string) {
	if t.ids[id] {
		return
	}
	if t.ids == nil {
		t.ids = make(map[string]bool)
	}
	t.ids[id] = true
	if len(t.order) < maxTold {
		t.order = append(t.order, id)
		return
	}
	delete(t.ids, t.order[t.next])
	t.order[t.next] = id
	t.next = (t.next + 1) % maxTold
}

func (t *told) has(id string) bool { return t.ids[id] }
