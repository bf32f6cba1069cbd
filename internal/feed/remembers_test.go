package feed

import "testing"

// What a cursor came through it remembers; what another store gave the same number, or is too long ago, it does not.
func TestRemembers(t *testing.T) {
	var c Cursor
	c.Replace(Position{1, 1, 101})
	at := c.At()
	for n := uint64(2); n <= Remembered+1; n++ {
		next := Change{Position{1, n, 100 + n}, at.Nonce}
		c.Advance(next)
		at = next.Position
	}
	for p, want := range map[Position]bool{
		at: true, {1, 2, 102}: true, {1, 2, 103}: false, {1, 1, 101}: false, {2, 2, 102}: false, {}: false,
		{1, Remembered + 2, 1}: false,
	} {
		if got := c.Remembers(p); got != want {
			t.Errorf("Remembers(%v) = %t, want %t", p, got, want)
		}
	}
}
