package core

import (
	"time"

	"github.com/latchkey-go/latchkey/internal/feed"
)

// This file is about what a process hears from nodes: wakes, invalidations, heads, and that it hears nothing any more.

// Current tells whether memory may serve keys of a node now.
func (f *Front) Current(now time.Duration, node int) bool {
	return f.nodes[node].sight.Current(now, f.set.Trust)
}

// Holds tells whether an item that was read at a stamp may be put into memory.
func (f *Front) Holds(now time.Duration, node int, key string, at Stamp) bool {
	return f.Current(now, node) && f.nodes[node].sight.Holds(key, at)
}

// Sight returns what is known of a node's invalidations.
func (f *Front) Sight(node int) *Sight { return &f.nodes[node].sight }

// Woken is told that a load which others waited for has ended.
func (f *Front) Woken(now time.Duration, key string) []Action {
	f.wake(now, key)
	return f.flush()
}

// wake has those ask again who wait for a load of the key. It takes another way than answers of the home do, so one that
// says to wait may still be under way.
func (f *Front) wake(now time.Duration, key string) {
	for _, fl := range f.asking[key] {
		fl.stirred = true
	}
	waiting := f.asleep[key]
	delete(f.asleep, key)
	for _, fl := range waiting {
		fl.waits = false
		f.askHome(now, fl)
	}
}

// Invalidated is told of an invalidation that came in a node's feed.
func (f *Front) Invalidated(now time.Duration, node int, inv Invalidation) []Action {
	if f.nodes[node].sight.Hear(inv) {
		f.dropNode(node)
		return f.flush()
	}
	f.invalidated(now, inv)
	return f.flush()
}

// Invalidating is told of an invalidation that this process made, when the home has confirmed it: reads that begin
// after it has returned must not depend on the feed.
func (f *Front) Invalidating(now time.Duration, node int, inv Invalidation) []Action {
	if f.nodes[node].sight.Note(now, inv) {
		f.dropNode(node)
	}
	f.invalidated(now, inv)
	return f.flush()
}

func (f *Front) invalidated(now time.Duration, inv Invalidation) {
	if fl := f.open[inv.Key]; fl != nil {
		f.closeTo(fl)
	}
	f.do(Action{Do: DoDrop, Key: inv.Key})
	// Whoever waited for a load that the invalidation voided need not wait for the end of its lease.
	f.wake(now, inv.Key)
}

func (f *Front) dropNode(node int) {
	f.closeNode(node)
	f.do(Action{Do: DoDropNode, Node: node})
}

// closeNode keeps new reads out of all flights to a node.
func (f *Front) closeNode(node int) {
	for _, fl := range f.open {
		if fl.home == node {
			f.closeTo(fl)
		}
	}
}

// Met is told a node's head, read in the feed's order; asked is Sight(node).At() from before, sent when it was asked.
func (f *Front) Met(now time.Duration, node int, asked, head feed.Position, sent time.Duration) []Action {
	s := &f.nodes[node].sight
	blind := !s.proved
	f.vouch(node, sent)
	switch {
	case sent < f.nodes[node].lost: // asked for over a feed that broke since: what came behind it was heard, and forgotten
	case s.Meet(asked, head, sent):
		f.dropNode(node)
	case blind:
		f.closeNode(node) // what was invalidated since its flights began may not have been heard
	}
	return f.flush()
}

// Lost is told that a node's feed broke: what was invalidated from here on may not be heard.
func (f *Front) Lost(now time.Duration, node int) []Action {
	f.nodes[node].lost = now
	f.nodes[node].sight.Lose()
	f.dropNode(node)
	return f.flush()
}
