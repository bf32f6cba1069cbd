package rmap

// Waiting returns for how many proofs callers are noted.
func Waiting[K comparable, V any](m *Map[K, V]) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.copy.waiting)
}
