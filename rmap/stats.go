package rmap

import "time"

// Stats count what happened to a copy since it was joined. Package rmapprom turns them into metrics.
type Stats struct {
	Entries    int    // entries in the copy now
	Broken     int    // entries among them whose value did not decode
	Changes    uint64 // changes applied
	Duplicates uint64 // changes ignored because they were held
	Strange    uint64 // changes that did not follow what is held: a gap, another generation, a stray message
	Unreadable uint64 // broadcasts that could not be read
	Undecoded  uint64 // keys and values that did not decode
	Losses     uint64 // times the subscription was lost
	Heads      uint64 // times the store was asked where the map stands
	CaughtUp   uint64 // times missed changes were got from the store's change log
	Replayed   uint64 // changes applied that way
	Reloads    [reloadCauses]uint64
	ReloadTime time.Duration // how long the last reload took
	Overflows  uint64        // times a subscriber was told to read again because it fell behind
	Dropped    uint64        // events that subscribers did not get because of that
	Writes     uint64        // writes that were applied
	Conflicts  uint64        // writes that were not, because a condition did not hold
	Failures   uint64        // writes that failed otherwise, of which
	Unknown    uint64        // so many had an unknown outcome
}

// Reloaded returns how often the map was read as a whole for a cause.
func (s Stats) Reloaded(c ReloadCause) uint64 {
	if c >= reloadCauses {
		return 0
	}
	return s.Reloads[c]
}

// Stats returns the counts so far.
func (m *Map[K, V]) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.copy.stats
	s.Entries, s.Broken = m.copy.tree.Len(), m.copy.broken
	return s
}
