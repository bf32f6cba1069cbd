package sim

// HTML returns the report as a page that stands alone.
func (r Report) HTML() []byte { return []byte(r.Text()) }
