package core

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A Sight is what a process knows of one node's invalidations: how far it has heard them, which keys the latest were
// about, and until when it can prove that it has heard all. It decides what may be served from the process's memory:
// from its own copies of items, and from copies on other nodes, of which this node is the home.
type Sight struct {
	cursor feed.Cursor
	known  bool // the cursor stands somewhere
	// The latest invalidations by key, in two halves of which the older is dropped as a whole. Of numbers up to
	// forgotten it is not known any more which keys they were about.
	present, former map[string]uint64
	formerMax       uint64
	forgotten       uint64
	proof           time.Duration // when the last proof was asked for
	proved          bool
	// The last invalidation that this process made itself, and when it learned of it. They outlive a loss: see behind.
	own   Stamp
	ownAt time.Duration
}

// remembered is how many invalidations each half keeps. Items that were read longer ago than these reach are read
// again, which is right at any size and only costs a read.
const remembered = 1 << 15

// At returns the position that has been heard, to be noted before a head is asked for.
func (s *Sight) At() feed.Position { return s.cursor.At() }

// Hear takes an invalidation from the feed. It tells whether everything of this node must be dropped, because
// something before it was missed.
//
// Even when nothing is known it is noted: a head that was read before it may still be on its way to Meet, and what is
// held from then on must not be older than what was heard.
func (s *Sight) Hear(inv Invalidation) (lost bool) {
	if s.known {
		switch s.cursor.Judge(inv.Change) {
		case feed.Next:
			s.cursor.Advance(inv.Change)
			s.note(inv.Key, inv.Number)
			return false
		case feed.Duplicate:
			return false
		}
	}
	lost = s.known
	s.stand(feed.Position{Generation: inv.Generation, Number: inv.Number - 1, Nonce: inv.Prev})
	s.cursor.Advance(inv.Change)
	s.note(inv.Key, inv.Number)
	return lost
}

// stand begins anew at a position, with nothing proved.
func (s *Sight) stand(at feed.Position) {
	s.Lose()
	s.cursor.Replace(at)
	s.known, s.forgotten = true, at.Number
}

// Note takes an invalidation that this process made itself, before the feed brings it. It tells whether everything of
// this node must be dropped, because the node began another generation, of which the feed has not told yet.
func (s *Sight) Note(now time.Duration, inv Invalidation) (lost bool) {
	at := StampOf(inv.Position)
	if at.Generation != s.own.Generation || at.Number > s.own.Number {
		s.own = at
	}
	s.ownAt = now
	switch {
	case !s.known:
	case inv.Generation == s.cursor.At().Generation:
		s.note(inv.Key, inv.Number)
	default:
		s.Lose()
		return true
	}
	return false
}

func (s *Sight) note(key string, number uint64) {
	if s.present == nil {
		s.present = map[string]uint64{}
	}
	s.present[key] = max(number, s.present[key])
	if len(s.present) >= remembered {
		s.forgotten = max(s.forgotten, s.formerMax)
		s.former, s.formerMax, s.present = s.present, number, nil
	}
}

// Lose forgets what was heard: nothing of this node may be served from memory until a head was met.
func (s *Sight) Lose() {
	*s = Sight{own: s.own, ownAt: s.ownAt}
}

// behind tells whether a head was, or may have been, read before an invalidation that this process made. While nothing
// is proved such a one was not noted for good, its caller may know that it is done, and the feed has not told of it yet:
// with that head what was read before it would pass for good.
func (s *Sight) behind(head feed.Position, sent time.Duration) bool {
	return sent <= s.ownAt && s.own.Generation != 0 && (head.Generation != s.own.Generation || head.Number < s.own.Number)
}

// Meet takes a head of the node, read in the feed's order: everything that was broadcast before has been heard. asked
// is where the sight stood when it was asked for, and sent when that was. It tells whether everything of this node must
// be dropped, because the head shows that something was missed.
func (s *Sight) Meet(asked, head feed.Position, sent time.Duration) (lost bool) {
	if s.known {
		switch s.cursor.Meet(asked, head) {
		case feed.Current:
			if !s.proved && s.behind(head, sent) {
				return false
			}
			s.proof, s.proved = max(s.proof, sent), true
			return false
		case feed.Ahead:
			return false // nothing is known to be missing, and nothing is proved; the next head will tell
		}
		if at := s.cursor.At(); at.Generation != asked.Generation && at.Generation != head.Generation {
			return false // the node began a generation after it gave this head, and the feed was quicker to tell
		}
	}
	lost = s.known
	if s.behind(head, sent) {
		s.Lose()
		return lost
	}
	s.stand(head)
	s.proof, s.proved = sent, true
	return lost
}

// Current tells whether everything invalidated up to d ago has been heard.
func (s *Sight) Current(now, d time.Duration) bool { return s.proved && now < s.proof+d }

// Until returns until when that is so; zero if it is not known.
func (s *Sight) Until(d time.Duration) time.Duration {
	if !s.proved {
		return 0
	}
	return s.proof + d
}

// Holds tells whether an item that was read at a stamp has not been invalidated since, as far as has been heard.
func (s *Sight) Holds(key string, at Stamp) bool {
	if !s.known || at.Generation != s.cursor.At().Generation || at.Number < s.forgotten {
		return false
	}
	return s.present[key] <= at.Number && s.former[key] <= at.Number
}

// LongestTrust is how long, by another clock, a process may trust its memory that does so for d by its own: clocks run
// at slightly different rates. A node counts a process among its members for that long, and a writer waits for that long.
func LongestTrust(d time.Duration) time.Duration { return d + d/50 }
