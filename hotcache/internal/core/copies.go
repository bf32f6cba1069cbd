package core

import "time"

const (
	// maxCopies is how many copies a Home keeps: hot keys are few.
	maxCopies = 1 << 12
	// copyShare is which part of a Home's bytes copies have at most, one in so many. What they take, items do not have.
	copyShare = 8
)

type keptCopy struct {
	copy  Copy
	since time.Duration // when its times were counted
}

func newCopies(rules Rules) lru[keptCopy] {
	return newLRU(maxCopies, rules.MaxBytes/copyShare, func(k keptCopy) int { return len(k.copy.Item.Data) })
}

// GetCopy returns the copy of a key whose home is another node, if it is still good.
func (h *Home) GetCopy(now time.Duration, key string) (Copy, bool) {
	k, ok := h.copies.get(key)
	if !ok {
		return Copy{}, false
	}
	c := k.copy
	if c.Times = c.Times.Minus(now - k.since); c.Times.Hard <= 0 {
		h.copies.remove(key)
		h.share()
		return Copy{}, false
	}
	return c, true
}

// PutCopy keeps a copy, unless it is late or has more bytes than all of them may have. They
// outlive the generation, since they are of other nodes.
func (h *Home) PutCopy(now time.Duration, key string, c Copy) {
	old, ok := h.copies.get(key)
	if ok && !c.Replaces(old.copy) {
		return
	}
	if most := h.copies.mostBytes; h.rules.MaxBytes > 0 && len(key)+len(c.Item.Data) > most {
		h.copies.remove(key) // readers would only find it too old
	} else {
		h.copies.put(key, keptCopy{c, now})
	}
	h.share()
}

// share gives to the items what the copies do not take.
func (h *Home) share() {
	if h.rules.MaxBytes > 0 {
		h.items.limit(h.rules.MaxBytes - h.copies.bytes)
	}
}
