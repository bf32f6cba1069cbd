package core

import "testing"

// TestLRU: the least recently used go, by number or by bytes, but never the last.
func TestLRU(t *testing.T) {
	weigh := func(v int) int { return v }
	l := newLRU(2, 0, weigh)
	l.put("a", 1)
	l.put("b", 1)
	l.get("a")
	l.put("c", 1)
	if _, ok := l.get("b"); ok || l.len() != 2 || l.evicted != 1 || l.bytes != 4 {
		t.Error(l.len(), l.evicted, l.bytes)
	}
	l = newLRU(0, 10, weigh)
	l.put("a", 4)
	l.put("b", 4)
	l.put("a", 3) // replaced, and the latest
	l.put("c", 4)
	if _, ok := l.get("b"); ok || l.bytes != 9 || l.evicted != 1 {
		t.Error(l.bytes, l.evicted)
	}
	l.put("d", 100)
	if v, ok := l.get("d"); !ok || v != 100 || l.len() != 1 {
		t.Error("what is too large alone is kept until the next")
	}
	l.remove("d")
	l.remove("d")
	if l.len() != 0 || l.bytes != 0 || l.order.Len() != 0 {
		t.Error(l.len(), l.bytes)
	}
}
