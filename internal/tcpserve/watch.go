package tcpserve

import (
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// watch is one watch of a connection. The outbox's mutex guards it.
type watch struct {
	n       uint64
	stop    func()
	started bool   // the answer to the watch was sent
	early   []byte // events that came before it
	over    bool
	gap     bool // events were dropped since the last one that was sent
}

// event queues an event of w, or notes a gap when too much is queued.
func (o *outbox) event(w *watch, e *lease.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case w.over || w.gap || o.err != nil:
	case len(o.buf)+o.flying+len(w.early) > maxEvents:
		w.gap = true
		o.gaps = append(o.gaps, w)
	default:
		r := wire.Happened(w.n, e)
		if w.started {
			o.append(&r)
		} else {
			w.early = wire.AppendReply(w.early, &r)
		}
	}
}

// tellGaps tells the watches that missed events, once there is room again. The
// mutex is held.
func (o *outbox) tellGaps() {
	if len(o.gaps) == 0 || len(o.buf) > maxEvents/2 || o.err != nil {
		return
	}
	gaps := o.gaps
	o.gaps = nil
	for _, w := range gaps {
		switch {
		case w.over:
		case !w.started:
			o.gaps = append(o.gaps, w) // its answer comes first
		default:
			w.gap = false
			r := wire.Reply{Kind: wire.Event, N: w.n, Event: lease.EventGap}
			o.append(&r)
		}
	}
}

// start sends the answer to a watch, and then what happened meanwhile.
func (o *outbox) start(w *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := wire.Reply{Kind: wire.OK, N: w.n}
	o.append(&r)
	w.started = true
	if o.err == nil {
		o.buf = append(o.buf, w.early...)
		o.appended()
	}
	w.early = nil
	o.tellGaps()
}

// end makes sure that nothing more is sent for w.
func (o *outbox) end(w *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w.over = true
}
