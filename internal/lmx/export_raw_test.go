package lmx

// Kept counts what a server keeps, for tests: keys, holds by id, and ended holds.
func (s *Server) Kept() (keys, ids, ended, unacked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := s.unacked.oldest; r != nil; r = r.newer {
		unacked++
	}
	return len(s.keys), len(s.ids), len(s.ended.known), unacked
}
