package rmap

import (
	"context"
	"log/slog"
	"time"
)

// maxNotes is how many records may wait for the logger. It bounds what a map of values that do not decode, or a logger
// that hangs, can take.
const maxNotes = 256

// note keeps a record for the logger. What happens to the copy happens under the mutex, and much of it in the goroutine
// that reads the store's connection for all maps: neither may wait for a logger, which writes somewhere and belongs to
// somebody else. The mutex is held.
func (m *Map[K, V]) note(level slog.Level, text string, args ...any) {
	if !m.log.Enabled(m.life, level) {
		return
	}
	c := &m.copy
	if len(c.notes) >= maxNotes {
		c.unsaid++
		return
	}
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.Add(args...)
	c.notes = append(c.notes, r)
	m.nudge()
}

// say hands the logger what was noted, in order. It is the keeper's alone.
func (m *Map[K, V]) say() {
	m.mu.Lock()
	notes, unsaid := m.copy.notes, m.copy.unsaid
	m.copy.notes, m.copy.unsaid = nil, 0
	m.mu.Unlock()
	for _, r := range notes {
		// There is nobody to tell that the log cannot be written.
		_ = m.log.Handler().Handle(context.Background(), r)
	}
	if unsaid > 0 {
		m.log.Warn("more happened than could be logged", "left out", unsaid)
	}
}
