package feed_test

import (
	"slices"
	"testing"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A trail is what a cursor should know, written down plainly: the positions that the follower held since it last read
// everything, oldest first. It is the specification that the tests hold the cursor against, and shares no idea with
// it: no ring, no arithmetic on numbers but "one more".
type trail []feed.Position

func (t trail) at() feed.Position {
	if len(t) == 0 {
		return feed.Position{}
	}
	return t[len(t)-1]
}

// known is the part of the trail that a cursor remembers.
func (t trail) known() trail { return t[max(0, len(t)-feed.Remembered):] }

func (t trail) judge(ch feed.Change) feed.Verdict {
	at := t.at()
	switch {
	case ch.Generation == 0 || ch.Nonce == 0 || ch.Generation != at.Generation:
		return feed.Reload
	case ch.Number > at.Number && ch.Number-at.Number == 1 && ch.Prev == at.Nonce:
		return feed.Next
	case slices.Contains(t.known(), ch.Position):
		return feed.Duplicate
	}
	return feed.Reload
}

// older tells whether p may have been held before what is remembered.
func (t trail) older(p feed.Position) bool {
	k := t.known()
	return p.Generation != 0 && len(k) > 0 && p.Generation == k[0].Generation && p.Number < k[0].Number
}

func (t trail) meet(asked, head feed.Position) feed.Meeting {
	stood, found := slices.Index(t.known(), asked), slices.Index(t.known(), head)
	switch {
	case head == t.at():
		return feed.Current
	case head.Generation == 0:
		return feed.Apart
	case found >= 0 && found < stood:
		return feed.Apart // the store went back while the follower stood further on
	case found >= 0:
		return feed.Current
	case t.older(head) && stood < 0:
		return feed.Ahead
	}
	return feed.Apart
}

func (t trail) covers(p feed.Position) bool {
	return p == t.at() || p.Generation != 0 && (slices.Contains(t.known(), p) || t.older(p))
}

func (t trail) isReset(to feed.Position, cleared uint64) bool {
	at := t.at()
	switch {
	case at == feed.Position{}:
		return false
	case to.Generation != at.Generation: // another life, or none
		return true
	case to.Number < at.Number, to.Number == at.Number && to != at: // went back
		return true
	}
	return cleared > at.Number
}

// checker compares a cursor with its trail on everything that can be asked.
type checker struct {
	positions []feed.Position
	changes   []feed.Change
	cleared   []uint64
}

func (k *checker) check(t *testing.T, c *feed.Cursor, tr trail) {
	t.Helper()
	k.checkVerdicts(t, c, tr)
	for _, p := range k.positions {
		if got, want := c.Covers(p), tr.covers(p); got != want {
			t.Fatalf("after %v: Covers(%v) = %v, want %v", tr, p, got, want)
		}
		for _, asked := range k.positions {
			if got, want := c.Meet(asked, p), tr.meet(asked, p); got != want {
				t.Fatalf("after %v: Meet(%v, %v) = %d, want %d", tr, asked, p, got, want)
			}
		}
		for _, n := range k.cleared {
			if got, want := c.IsReset(p, n), tr.isReset(p, n); got != want {
				t.Fatalf("after %v: IsReset(%v, %d) = %v, want %v", tr, p, n, got, want)
			}
		}
	}
}

// checkVerdicts does the part of check that is cheap enough for every pair of lives, and more: a question must not
// change the cursor.
func (k *checker) checkVerdicts(t *testing.T, c *feed.Cursor, tr trail) {
	t.Helper()
	if c.At() != tr.at() {
		t.Fatalf("after %v: At() = %v", tr, c.At())
	}
	for _, ch := range k.changes {
		if got, want := c.Judge(ch), tr.judge(ch); got != want {
			t.Fatalf("after %v: Judge(%v) = %v, want %v", tr, ch, got, want)
		}
	}
	for _, p := range k.positions {
		if got, want := c.Meet(tr.at(), p), tr.meet(tr.at(), p); got != want {
			t.Fatalf("after %v: Meet(%v, %v) = %d, want %d", tr, tr.at(), p, got, want)
		}
	}
	if c.At() != tr.at() {
		t.Fatalf("after %v: a question moved the cursor to %v", tr, c.At())
	}
}
