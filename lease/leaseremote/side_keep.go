package leaseremote

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// keep runs the keeper of the other connection.
func (d *side) keep() {
	defer d.svc.kept.Done()
	k := keeper{owner: d, connect: d.svc.first, patience: d.svc.opts.DialTimeout, log: d.svc.log}
	k.run(d.ctx, nil)
}

// greet sends what is unanswered and the watches on a new connection. See owner.
func (d *side) greet(_ context.Context, l *link) error {
	d.lock.Lock()
	if d.closed {
		d.lock.Unlock()
		return errStopped
	}
	d.link, d.trouble = l, nil
	l.cork()
	asks := make([]*ask, 0, len(d.asks))
	for _, a := range d.asks {
		asks = append(asks, a)
	}
	slices.SortFunc(asks, func(a, b *ask) int { return cmp.Compare(a.req.N, b.req.N) })
	for _, a := range asks {
		d.sendLocked(a)
	}
	for _, w := range d.watches {
		req := wire.Watch(w.n, &w.query)
		d.sendLocked(&ask{req: req, repeat: true, watch: w})
	}
	if d.pinger == nil {
		d.pinger = time.AfterFunc(sidePing, d.ping)
	} else {
		d.pinger.Reset(sidePing)
	}
	d.lock.Unlock()
	l.uncork()
	return nil
}

// take takes one frame of the broker. See owner.
func (d *side) take(l *link, frame []byte) error {
	r := new(wire.Reply) // its parts go to the callers
	if err := wire.DecodeReply(frame, r); err != nil {
		return err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	switch {
	case d.link != l:
	case r.Kind == wire.Event:
		if w := d.watches[r.N]; w != nil {
			d.tellLocked(w, r.Happening())
		}
	case r.Kind == wire.Failed && r.N == 0:
		l.fail(r.Err()) // the last frame of the connection
	case r.Kind == wire.OK || r.Kind == wire.Failed:
		if a := d.asks[r.N]; a != nil {
			d.settleLocked(l, a, r)
		}
	}
	return nil
}

func (d *side) tellLocked(w *watch, e lease.Event) {
	d.ready = append(d.ready, func() {
		d.lock.Lock()
		stopped := w.stopped
		d.lock.Unlock()
		if !stopped {
			w.fn(e)
		}
	})
}

func (d *side) settleLocked(l *link, a *ask, r *wire.Reply) {
	ok := r.Kind == wire.OK
	w := a.watch
	switch {
	case a == d.probe:
		d.probe = nil
	case w != nil && ok:
		again := d.watches[a.req.N] == w
		w.n = a.req.N
		d.watches[w.n] = w
		if again {
			// Whatever happened between the two connections went unseen.
			d.tellLocked(w, lease.Event{Kind: lease.EventGap})
		}
	case w != nil && d.watches[a.req.N] == w:
		l.fail(r.Err()) // refused on the new connection: try on another
	}
	if ok {
		d.answerLocked(a, answer{reply: *r})
		return
	}
	d.answerLocked(a, answer{err: r.Err()})
}

// pause runs the callbacks of watches. See owner.
func (d *side) pause(*link) {
	d.lock.Lock()
	ready := d.ready
	d.ready = nil
	d.lock.Unlock()
	for _, tell := range ready {
		tell()
	}
}

// cut says that the connection broke, or that none could be made. See owner.
func (d *side) cut(l *link, err error) bool {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.trouble = err
	if l != nil {
		d.link, d.probe = nil, nil
		for n, a := range d.asks {
			switch {
			case a.sent && !a.repeat:
				d.answerLocked(a, answer{err: a.fail(lease.ErrUnknown,
					"the connection broke before the answer; it may have been carried out", err)})
			case a.answer == nil:
				delete(d.asks, n) // a ping, an unwatch, or a watch that is begun anew
			}
		}
	}
	if d.closed || len(d.asks) == 0 && len(d.watches) == 0 {
		d.kept = false
		return false
	}
	return true
}

// ping runs on the timer while there is a connection.
func (d *side) ping() {
	d.lock.Lock()
	l := d.link
	if l == nil || d.closed {
		d.lock.Unlock()
		return
	}
	flush := false
	switch {
	case d.probe != nil && time.Since(d.probed) >= sidePing:
		l.fail(errSilent)
	case d.probe == nil && len(d.watches) > 0:
		d.probe, d.probed = &ask{req: wire.Request{Do: wire.OpPing}, repeat: true}, time.Now()
		flush = d.sendLocked(d.probe)
	}
	d.pinger.Reset(sidePing)
	d.lock.Unlock()
	if flush {
		l.flush()
	}
}

// close ends the connection and everything on it.
func (d *side) close() {
	d.lock.Lock()
	d.closed = true
	for _, a := range d.asks {
		code := lease.ErrClosed
		if a.sent && !a.repeat {
			code = lease.ErrUnknown
		}
		d.answerLocked(a, answer{err: a.fail(code, "the service was closed", nil)})
	}
	for _, w := range d.watches {
		w.stopped = true
	}
	clear(d.watches)
	if d.pinger != nil {
		d.pinger.Stop()
	}
	d.lock.Unlock()
	d.stop() // which ends the keeper, and it the connection
}
