package actor

// String is the name of the owner. It never waits, and what is owned is not shown: only
// a message may look at that.
func (o *Object[T]) String() string { return o.c.label() }

// String is the name of the owner. It never waits; Copy asks for the entries.
func (m *Map[K, V]) String() string { return m.c.label() }

func (c *core[S]) label() string {
	if c == nil {
		return "an actor that was not made"
	}
	return c.name
}
