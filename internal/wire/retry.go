package wire

// Retry lets a Reader go on after its source gave an error that says nothing
// about what comes, such as a deadline that passed. What was read stays read.
func (r *Reader) Retry() { r.err = nil }
