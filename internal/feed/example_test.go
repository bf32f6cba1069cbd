package feed_test

import (
	"fmt"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// A follower reads everything, follows one change, and then hears of one that was made after the store had been set
// back: it has the next number, and does not follow.
func Example() {
	var c feed.Cursor
	c.Replace(feed.Position{Generation: 0xa, Number: 7, Nonce: 70})

	next := feed.Change{Position: feed.Position{Generation: 0xa, Number: 8, Nonce: 80}, Prev: 70}
	fmt.Println(c.Judge(next))
	c.Advance(next)
	fmt.Println(c.Judge(next))

	other := feed.Change{Position: feed.Position{Generation: 0xa, Number: 9, Nonce: 91}, Prev: 81}
	fmt.Println(c.Judge(other))
	head := other.Position
	fmt.Println(c.Meet(c.At(), head) == feed.Apart, c.IsReset(head, 0))
	// Output:
	// next
	// duplicate
	// reload
	// true false
}
