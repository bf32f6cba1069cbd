package core

import (
	"strconv"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

func invalidation(g, n uint64, key string) Invalidation {
	return Invalidation{Key: key, Change: feed.Change{Position: feed.Position{Generation: g, Number: n, Nonce: g*1000 + n}, Prev: g*1000 + n - 1}}
}

func position(g, n uint64) feed.Position { return invalidation(g, n, "").Position }

// TestSight: what is held, by what was heard.
func TestSight(t *testing.T) {
	const d = 250 * time.Millisecond
	var s Sight
	if s.Current(0, d) || s.Until(d) != 0 || s.Holds("k", Stamp{1, 5}) {
		t.Error("nothing is known, and something is trusted")
	}
	s.Note(0, invalidation(1, 5, "k"))
	if s.Meet(feed.Position{}, position(1, 5), 100) {
		t.Error("something was lost of nothing")
	}
	if !s.Current(100+d-1, d) || s.Current(100+d, d) || s.Until(d) != 100+d {
		t.Error("a proof is good for its time from when it was asked for")
	}
	for _, c := range []struct {
		at   Stamp
		want bool
	}{{Stamp{1, 5}, true}, {Stamp{1, 4}, false}, {Stamp{2, 5}, false}, {Stamp{1, 9}, true}} {
		if got := s.Holds("k", c.at); got != c.want {
			t.Errorf("holds %v: %v", c.at, got)
		}
	}
	for _, which := range []string{"the next", "the same again"} {
		if s.Hear(invalidation(1, 6, "k")) {
			t.Errorf("%s is taken for a loss", which)
		}
	}
	if s.Holds("k", Stamp{1, 5}) || !s.Holds("k", Stamp{1, 6}) || !s.Holds("other", Stamp{1, 5}) {
		t.Error("an invalidation is about what was read before, of its key")
	}
	if s.Note(150, invalidation(1, 8, "k")); s.Holds("k", Stamp{1, 7}) || !s.Holds("k", Stamp{1, 8}) {
		t.Error("own invalidations count before they are heard")
	}
	if s.Meet(position(1, 6), position(1, 6), 50); s.Until(d) != 100+d {
		t.Error("a proof was shortened by one that was asked for earlier")
	}
	if !s.Meet(position(1, 6), position(1, 9), 200) || !s.Current(200, d) || s.Holds("other", Stamp{1, 8}) {
		t.Error("a head that is further: something was missed")
	}
	if !s.Hear(invalidation(1, 11, "k")) || s.Current(200, d) {
		t.Error("a gap was not noticed")
	}
}

// TestSightOutrun: a head so far behind that it is not known any more proves nothing, and loses nothing.
func TestSightOutrun(t *testing.T) {
	var s Sight
	s.Meet(feed.Position{}, position(1, 0), 1)
	for n := range uint64(feed.Remembered) {
		s.Hear(invalidation(1, n+1, "k"))
	}
	if s.Meet(position(1, 0), position(1, 0), 2) || s.proof != 1 {
		t.Error("it proves something")
	}
}

// TestSightForgets: of what was read so long ago that it is not known what was invalidated since, nothing is held.
func TestSightForgets(t *testing.T) {
	var s Sight
	s.Meet(feed.Position{}, position(1, 0), 1)
	for n := range uint64(2*remembered + 10) {
		s.Hear(invalidation(1, n+1, strconv.FormatUint(n+1, 10)))
		if len(s.present)+len(s.former) > 2*remembered {
			t.Fatal("it remembers more than it must")
		}
	}
	if s.forgotten != remembered || s.Holds("x", Stamp{1, remembered - 1}) || !s.Holds("x", Stamp{1, remembered}) {
		t.Errorf("forgotten up to %d", s.forgotten)
	}
	if s.Holds(strconv.Itoa(remembered+1), Stamp{1, remembered}) || s.Holds(strconv.Itoa(2*remembered+5), Stamp{1, remembered}) {
		t.Error("what is in the halves was invalidated")
	}
}
