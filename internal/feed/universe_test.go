package feed_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// universe is everything there can be with the given numbers, two generations and three nonces, besides zeros: among
// it rollbacks to the same number (H1), duplicates and older changes (S14), other generations (S13, S15), gaps (S7),
// nothing there, and what no honest store sends.
func universe(numbers ...uint64) *checker {
	k := &checker{cleared: append([]uint64{0}, numbers...)}
	for generation := range uint64(3) {
		for _, number := range numbers {
			for nonce := range uint64(4) {
				p := feed.Position{Generation: generation, Number: number, Nonce: nonce}
				k.positions = append(k.positions, p)
				for prev := range uint64(4) {
					k.changes = append(k.changes, feed.Change{Position: p, Prev: prev})
				}
			}
		}
	}
	return k
}

// honest tells whether a follower may be put at p: where a store can be, nothing there included, or before the first
// change of a life that it knows the beginning of.
func honest(p feed.Position) bool {
	if p.Number == 0 {
		return p.Nonce == 0
	}
	return p.Generation != 0 && p.Nonce != 0
}

// walk visits every cursor that Advance can make of c, itself included.
func (k *checker) walk(c *feed.Cursor, tr trail, visit func(*feed.Cursor, trail)) {
	visit(c, tr)
	for _, ch := range k.changes {
		if tr.judge(ch) == feed.Next {
			on := *c
			on.Advance(ch)
			k.walk(&on, append(tr[:len(tr):len(tr)], ch.Position), visit)
		}
	}
}

// lives visits every cursor that one Replace of c and any number of Advance can make.
func (k *checker) lives(c *feed.Cursor, visit func(*feed.Cursor, trail)) {
	for _, p := range k.positions {
		if honest(p) {
			on := *c
			on.Replace(p)
			k.walk(&on, trail{p}, visit)
		}
	}
}

// TestUniverse asks every cursor of a small universe everything, and holds the answers against the specification. A
// cursor depends on its last Replace and what came after, which the second Replace on top of each cursor proves.
func TestUniverse(t *testing.T) {
	k := universe(0, 1, 2, 3, 4)
	k.check(t, new(feed.Cursor), nil)
	visited := 0
	k.lives(new(feed.Cursor), func(c *feed.Cursor, tr trail) {
		visited++
		k.check(t, c, tr)
		for _, p := range k.positions {
			if honest(p) && p.Number%2 == 0 {
				again := *c
				again.Replace(p)
				k.checkVerdicts(t, &again, trail{p})
			}
		}
	})
	if visited < 300 {
		t.Errorf("only %d cursors were visited", visited)
	}
}

// TestLastNumbers does the same where numbers end: nothing follows the last one, least of all number 0.
func TestLastNumbers(t *testing.T) {
	k := universe(0, 1, math.MaxUint64-2, math.MaxUint64-1, math.MaxUint64)
	k.lives(new(feed.Cursor), func(c *feed.Cursor, tr trail) { k.check(t, c, tr) })
}

// TestRemembered goes past the end of what a cursor remembers, twice around, from several numbers, and asks on
// the way, most of all where it comes around, about positions near that end, with the right and with a wrong nonce.
func TestRemembered(t *testing.T) {
	for _, first := range []uint64{1, 2, feed.Remembered - 1, feed.Remembered, 1 << 63, math.MaxUint64 - 2*feed.Remembered - 3} {
		tr := trail{{Generation: 7, Number: first, Nonce: first*2 + 1}}
		var c feed.Cursor
		c.Replace(tr.at())
		for len(tr) < 2*feed.Remembered+3 {
			if n := len(tr) % feed.Remembered; n < 3 || n > feed.Remembered-3 || n%61 == 0 {
				askAround(t, &c, tr)
			}
			ch := feed.Change{Position: feed.Position{Generation: 7, Number: tr.at().Number + 1}, Prev: tr.at().Nonce}
			ch.Nonce = ch.Number*2 + 1
			if v := c.Judge(ch); v != feed.Next {
				t.Fatalf("at %v: Judge(%v) = %v", c.At(), ch, v)
			}
			c.Advance(ch)
			tr = append(tr, ch.Position)
		}
	}
}

func askAround(t *testing.T, c *feed.Cursor, tr trail) {
	t.Helper()
	var near checker
	for _, back := range []uint64{0, 1, 2, feed.Remembered - 2, feed.Remembered - 1, feed.Remembered, feed.Remembered + 1} {
		if number := tr.at().Number - back; number > 0 && number <= tr.at().Number {
			right := feed.Position{Generation: 7, Number: number, Nonce: number*2 + 1}
			wrong := feed.Position{Generation: 7, Number: number, Nonce: (number-feed.Remembered)*2 + 1}
			near.positions = append(near.positions, right, wrong)
			near.changes = append(near.changes, feed.Change{Position: right, Prev: right.Nonce - 2}, feed.Change{Position: wrong})
		}
	}
	near.check(t, c, tr)
}

// TestVerdictNames keeps logs readable.
func TestVerdictNames(t *testing.T) {
	want := []string{"no verdict", "next", "duplicate", "reload", "no verdict"}
	for v, name := range want {
		if got := feed.Verdict(v).String(); got != name {
			t.Errorf("Verdict(%d) = %q, want %q", v, got, name)
		}
	}
}

// FuzzCursor lets a hostile feed do what it likes to a follower that obeys the verdicts.
func FuzzCursor(f *testing.F) {
	f.Add([]byte{0, 1, 1, 1, 0, 1, 1, 2, 2, 1, 1, 1, 3, 2})
	f.Add([]byte{0, 1, 0xff, 3, 0, 1, 1, 0, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		var c feed.Cursor
		tr := trail{}
		for len(b) >= 5 && len(tr) < 3*feed.Remembered {
			op, ch := b[0], feed.Change{Position: position(b[1:4]), Prev: uint64(b[4] % 4)}
			b = b[5:]
			if op&0x80 != 0 && len(b) >= 8 {
				ch.Number = binary.BigEndian.Uint64(b)
				b = b[8:]
			}
			if op&1 == 0 && honest(ch.Position) {
				c.Replace(ch.Position)
				tr = trail{ch.Position}
			}
			for range uint64(op&0x7e) * 32 { // often enough to go around
				run := feed.Change{Position: tr.at(), Prev: tr.at().Nonce}
				run.Number++
				run.Nonce = run.Number%3 + 1
				if c.Judge(run) != feed.Next {
					break
				}
				c.Advance(run)
				tr = append(tr, run.Position)
			}
			one := checker{[]feed.Position{{}, ch.Position, tr.at()}, []feed.Change{ch}, []uint64{0, ch.Number}}
			one.check(t, &c, tr)
			if c.Judge(ch) == feed.Next {
				c.Advance(ch)
				tr = append(tr, ch.Position)
			}
		}
	})
}

// position makes something of three bytes that is near enough to others to meet them.
func position(b []byte) feed.Position {
	number := uint64(int64(int8(b[1]))) // small, or near the end of the numbers
	return feed.Position{Generation: uint64(b[0] % 3), Number: number, Nonce: uint64(b[2] % 4)}
}
