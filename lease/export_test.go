package lease

// Freeze stops the timer of a hold, as a process does that stands still: what is
// seen then is seen before any timer ran.
func (h *Held) Freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopLocked()
}
