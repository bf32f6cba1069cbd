package held

// Here reports whether the goroutine is the one that it was. It costs half of [Who],
// and is always true where nothing is detected.
func (m Me) Here() bool { return m.id == id() }
