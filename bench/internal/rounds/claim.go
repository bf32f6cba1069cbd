package rounds

import "fmt"

// Claim is one figure set against what it should be.
type Claim struct {
	What    string
	Unit    string
	Got     float64
	Reach   float64 // what it must reach
	Aim     float64 // what it should reach; zero when there is only one bound
	Smaller bool    // the figure should be at most, not at least, these
}

// noise is the difference below which two figures count as equal here.
const noise = 0.15

// Reached reports whether the figure is where it must be.
func (c Claim) Reached() bool { return c.within(c.Reach) }

func (c Claim) within(bound float64) bool {
	if c.Smaller {
		return c.Got <= bound
	}
	return c.Got >= bound
}

// Verdict says in words how the figure stands to its targets, and where it
// misses the first, by how much.
func (c Claim) Verdict() string {
	switch {
	case c.Reached() && (c.Aim == 0 || c.within(c.Aim)):
		if c.Aim == 0 {
			return "reached"
		}
		return "reached, and what we aim at"
	case c.Reached():
		return "reached"
	case c.Reach == 0:
		return "missed"
	}
	by := (c.Got - c.Reach) / c.Reach
	if !c.Smaller {
		by = -by
	}
	if by < noise {
		return fmt.Sprintf("missed by %.0f %%, within what this machine can tell", by*100)
	}
	return fmt.Sprintf("missed by %.0f %%", by*100)
}
