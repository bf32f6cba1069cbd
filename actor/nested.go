package actor

import (
	"strings"
	"sync/atomic"

	"github.com/latchkey-go/latchkey/internal/held"
)

// node is an owner in the graph of who waits for whom. An owner runs one message at a
// time, so it waits for at most one other.
//
// Edges are set before the graph is looked at, and all operations are in one total
// order. So of the owners of a circle that is there to stay, the one that was last to
// set its edge finds all the others and refuses. No lock over the whole graph is needed.
//
// An edge is taken back by who answers or makes room, not by who waited: that one may be
// woken much later, and meanwhile the other may well have a reason to wait for it.
type node struct {
	name  string
	waits atomic.Pointer[edge] // nil when this owner does not wait
}

// edge is one wait for another owner. Each wait has an edge of its own, so that two
// looks that see the same pointer see the same wait.
type edge struct {
	to   *node
	over <-chan struct{} // when closed, the wait is over; may be nil
}

// step is an edge as it was seen.
type step struct {
	at *node
	*edge
}

// await notes that the owner is going to wait for another one, until it proceeds. It
// refuses if that would wait for this one.
func (n *node) await(to *node, over <-chan struct{}, wanted string) error {
	n.waits.Store(&edge{to, over})
	circle := n.circle()
	if circle == nil {
		return nil
	}
	n.proceed()
	return &NestedError{Wanted: wanted + " " + to.name, Inside: held.Actor, Advice: advice(wanted, circle)}
}

// proceed takes the edge back.
func (n *node) proceed() { n.waits.Store(nil) }

// edge returns the wait that is not over.
func (n *node) edge() *edge {
	e := n.waits.Load()
	if e == nil || e.over == nil {
		return e
	}
	select {
	case <-e.over:
		return nil
	default:
		return e
	}
}

// circle returns the owners on the way from this one back to it, nil if there is no
// such way.
//
// The edges are read one after another and may not have been there together: one may
// end before the next begins, and then nobody is stuck. So what looks like a circle is
// looked at again: edges that are the same ones still were there all the time, and so
// all together in the moment between the two looks.
func (n *node) circle() []step {
	for {
		path := n.walk()
		if path == nil || same(path) {
			return path
		}
	}
}

// walk follows the edges once. It gives up where it meets a circle that this owner is
// not on: it is refused, or has been, by those who are. To notice that, it remembers one
// owner and goes on to another after twice as many steps (Brent, An Improved Monte Carlo
// Factorization Algorithm, 1980), so that a long way costs no more than its length.
func (n *node) walk() []step {
	var first [8]step
	path := first[:0]
	seen, next := n, 1
	for at := n; ; {
		e := at.edge()
		if e == nil {
			return nil
		}
		path = append(path, step{at, e})
		at = e.to
		if at == n {
			return path
		}
		if at == seen {
			return nil
		}
		if len(path) == next {
			seen, next = at, 2*next
		}
	}
}

func same(path []step) bool {
	for _, s := range path {
		if s.at.edge() != s.edge {
			return false
		}
	}
	return true
}

func advice(wanted string, circle []step) string {
	if len(circle) == 1 && wanted == toClose {
		return "the owner ends only after this message, which would wait for itself: do not wait, as in go o.Close(ctx)"
	}
	if len(circle) == 1 {
		return "it is the owner of this message, which would wait for itself: call the method directly"
	}
	var b strings.Builder
	for i, s := range circle[1:] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(s.at.name + " waits for " + circle[(i+2)%len(circle)].at.name)
	}
	if wanted == toClose {
		b.WriteString(": close it where nobody waits, as in go o.Close(ctx)")
	} else {
		b.WriteString(": let one of them use Send or TryTell and not wait")
	}
	return b.String()
}

// toClose is what Close wants.
const toClose = "to close"

// door checks what the goroutine is inside of. It returns the owner if that is a
// message, and refuses what may wait inside a lock, and everything inside a transaction.
func door(wanted string, to *node, waits bool) (*node, error) {
	top := held.Who().Top()
	switch {
	case top.Kind == 0:
		return nil, nil
	case top.Kind == held.Actor:
		return (*node)(top.Of), nil
	case top.Kind == held.Transaction:
		return nil, &NestedError{Wanted: wanted + " " + to.name, Inside: top.Kind,
			Advice: "the transaction may run more than once; do it in its Tx.AfterCommit"}
	case waits:
		return nil, &NestedError{Wanted: wanted + " " + to.name, Inside: top.Kind,
			Advice: "everybody who needs the lock would wait with it; do it before or after, or use TryTell, which never waits"}
	}
	return nil, nil
}
