package sim

import (
	"errors"
	"time"
)

var (
	errTimeout = errors.New("no answer in time")
	errRefused = errors.New("connection refused")
)

// timeout is how long a server waits for a node.
const timeout = time.Second

// A node does one thing after the other, or as many at a time as its capacity. What it keeps is the policy's.
type node struct {
	w     *world
	index int
	free  []time.Duration // when each of its hands is free
	life  int
	out   bool
	hangs bool // while it is out it does not even refuse
	asked uint64
	done  uint64
	busy  time.Duration
}

func newNode(w *world, index int) *node {
	return &node{w: w, index: index, free: make([]time.Duration, w.cfg.Capacity)}
}

// lose makes a node unreachable; if it hangs it keeps what it has.
func (n *node) lose(hangs bool) {
	n.out, n.hangs = true, hangs
	n.life++
	clear(n.free)
}

// take puts a command in the queue and returns when it is done. A queue that is longer than anybody waits takes none.
func (n *node) take() (at time.Duration, ok bool) {
	hand := 0
	for i, free := range n.free {
		if free < n.free[hand] {
			hand = i
		}
	}
	begin := max(n.w.now, n.free[hand])
	if begin > n.w.now+timeout {
		return 0, false
	}
	d := n.w.spread(n.w.cfg.Service)
	n.free[hand] = begin + d
	n.busy += d
	n.done++
	return begin + d, true
}

// do has a node do something that nobody waits for.
func (w *world) do(n *node, bytes int, fn func()) {
	w.res.Bytes += uint64(bytes)
	w.after(w.way(), func() {
		if n.out {
			return
		}
		life := n.life
		if at, ok := n.take(); ok {
			w.after(at-w.now, func() {
				if n.life == life {
					fn()
				}
			})
		}
	})
}

// A call is what a server asks of a node.
type call struct {
	bytes int
	reads bool // it is the question of a read
	// do is done at the node; what it returns is done at the server, when so many bytes have come back.
	do func() (reply func(), bytes int)
	// fail is done at the server when no answer came. It is not known then whether the call was done.
	fail func(error)
}

// ask calls a node.
func (w *world) ask(n *node, c call) {
	began := w.now
	w.res.Bytes += uint64(c.bytes)
	late := func() { w.after(began+timeout-w.now, func() { c.fail(errTimeout) }) }
	refuse := func() { w.after(w.way(), func() { c.fail(errRefused) }) }
	w.after(w.way(), func() {
		switch {
		case n.out && n.hangs:
			late()
			return
		case n.out:
			refuse()
			return
		}
		if c.reads {
			n.asked++
			w.res.bucket(w.now).NodeLoad[n.index]++
		}
		at, ok := n.take()
		if !ok {
			late()
			return
		}
		life := n.life
		w.after(at-w.now, func() {
			if n.life != life {
				if n.hangs {
					late()
				} else {
					refuse()
				}
				return
			}
			reply, bytes := c.do()
			w.res.Bytes += uint64(bytes)
			if way := w.way(); w.now+way <= began+timeout {
				w.after(way, reply)
			} else {
				late()
			}
		})
	})
}
