package stm

// commit publishes what was set, if all that was read is still so.
func (r *run) commit() bool {
	if len(r.writes.entries) == 0 {
		return true // every read was checked when it was made
	}
	mine := r.word() | publishing
	if r.gated {
		r.lockKept(mine)
	} else if !r.lockAll(mine) {
		return false
	}
	stamp := tick()
	for i := range r.writes.entries {
		e := &r.writes.entries[i]
		e.core.publish(e.value, stamp)
	}
	r.unlock(len(r.writes.entries))
	for i := range r.writes.entries {
		r.writes.entries[i].core.wake()
	}
	return true
}

// lockAll locks what is to be published, and then makes sure that what was read is
// still so and that nobody is about to change it.
func (r *run) lockAll(mine uintptr) bool {
	for i := range r.writes.entries {
		if !r.writes.entries[i].core.tryLock(mine) {
			r.unlock(i)
			return false
		}
	}
	for i := range r.reads.entries {
		e := &r.reads.entries[i]
		// The lock first: who takes it after this look sees ours.
		if l := e.core.lock.Load(); l&publishing != 0 && l != mine || e.core.load() != e.value {
			r.unlock(len(r.writes.entries))
			return false
		}
	}
	return true
}

// lockKept locks what is to be published by a run behind the gate. What that has read
// is kept and has not changed; what it sets without having read is taken now.
func (r *run) lockKept(mine uintptr) {
	for i := range r.writes.entries {
		c := r.writes.entries[i].core
		if c.lock.Load() != r.word() {
			c.keep(r.word())
		}
	}
	for i := range r.writes.entries {
		r.writes.entries[i].core.lock.Store(mine)
	}
}

// unlock gives the first n written variables back.
func (r *run) unlock(n int) {
	for i := range r.writes.entries[:n] {
		r.writes.entries[i].core.lock.Store(0)
	}
}
