package lmx

import "slices"

// monitor is what the readers and writers of a key wait for: Hoare's monitor with
// the state of Courtois' second problem, made of the questions that live-mutex
// clients put. It knows nothing of locks.
//
// Exclusion is the monitor's alone: a writer gets in when there is no writer and no
// reader, a reader when there is no writer. The lock that clients take around
// their questions is only the way to them, so a question that has to wait can give
// it up. Flag and counts belong to connections and go with them.
type monitor struct {
	writer    *Conn         // whose flag is up
	readers   map[*Conn]int // how many readers each connection has
	total     int           // of all
	questions []question    // that wait, in the order that they came

	// bars are locks that keep writers out for the readers of the read-preferring
	// client, and last is the connection of the last of these, which is about to
	// unlock them. Who is counted while there is a last one waits for the same lock.
	// Freed are bars whose last reader's connection ended before it did.
	bars  []*request
	freed []*request
	last  *Conn
}

// question is one that a client put and that waits for its answer.
type question struct {
	conn *Conn
	echo string // uuid of the frame
	key  string // as it came
	name string // the key itself
	ask  ask
}

// ask is what a question is about.
type ask uint8

const (
	mayRead   ask = iota // tell when there is no writer
	enterRead            // the same, and count a reader then
	addReader            // the reader was told that it may, and now counts
	mayWrite             // tell when there is nobody, and put the flag up
)

// put answers q now, or keeps it, and reports which. Writers go first: while one
// waits, no new reader is let in. One that was told that it may read before comes in
// nevertheless.
func (m *monitor) put(q question) bool {
	if m.open(q) {
		m.enter(q)
		return true
	}
	m.questions = append(m.questions, q)
	return false
}

func (m *monitor) open(q question) bool {
	switch q.ask {
	case mayWrite:
		return m.writer == nil && m.total == 0
	case addReader:
		return m.writer == nil
	}
	return m.writer == nil && !slices.ContainsFunc(m.questions, writes)
}

func writes(q question) bool { return q.ask == mayWrite }

func (m *monitor) enter(q question) {
	switch q.ask {
	case mayWrite:
		m.writer = q.conn
	case enterRead, addReader:
		m.count(q.conn)
	}
}

// count counts a reader.
func (m *monitor) count(c *Conn) {
	if m.readers == nil {
		m.readers = map[*Conn]int{}
	}
	m.readers[c]++
	m.total++
}

// discount counts a reader of c off, and reports whether it has one.
func (m *monitor) discount(c *Conn) bool {
	if m.readers[c] == 0 {
		return false
	}
	m.total--
	if m.readers[c]--; m.readers[c] == 0 {
		delete(m.readers, c)
	}
	return true
}

// drop forgets a bar.
func (m *monitor) drop(r *request) {
	m.bars = slices.DeleteFunc(m.bars, func(b *request) bool { return b == r })
	if len(m.bars) == 0 {
		m.last = nil
	}
}

// spare returns the bars that nobody needs any more, once.
func (m *monitor) spare() []*request {
	if m.total == 0 && m.last == nil {
		m.freed, m.bars = append(m.freed, m.bars...), nil
	}
	freed := m.freed
	m.freed = nil
	return freed
}

// lower takes the flag down, if it is c's.
func (m *monitor) lower(c *Conn) {
	if m.writer == c {
		m.writer = nil
	}
}

// leave forgets all that is c's.
func (m *monitor) leave(c *Conn) {
	m.lower(c)
	if m.last == c {
		m.last, m.freed, m.bars = nil, append(m.freed, m.bars...), nil
	}
	m.total -= m.readers[c]
	delete(m.readers, c)
	m.questions = slices.DeleteFunc(m.questions, func(q question) bool { return q.conn == c })
}

// wake returns the questions that can be answered now, in order: those of readers
// who were let in before, then the first writer, else all readers.
func (m *monitor) wake() []question {
	var out []question
	for _, turn := range [...]func(question) bool{
		func(q question) bool { return q.ask == addReader },
		writes,
		func(q question) bool { return q.ask == mayRead || q.ask == enterRead },
	} {
		for i := 0; i < len(m.questions); {
			q := m.questions[i]
			if !turn(q) || !m.open(q) {
				i++
				continue
			}
			m.questions = slices.Delete(m.questions, i, i+1)
			m.enter(q)
			out = append(out, q)
		}
	}
	return out
}

// has reports whether anything is c's.
func (m *monitor) has(c *Conn) bool {
	return m.writer == c || m.last == c || m.readers[c] > 0 || slices.ContainsFunc(m.questions, func(q question) bool { return q.conn == c })
}

// quiet reports whether there is nothing to keep.
func (m *monitor) quiet() bool {
	return m.writer == nil && m.total == 0 && len(m.questions) == 0 && len(m.bars) == 0
}
