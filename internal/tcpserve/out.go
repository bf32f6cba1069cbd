package tcpserve

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/trywrite"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Bounds on what waits to be written, below lease.MaxUnsent, at which a
// connection is cut off.
const (
	maxEvents  = lease.MaxUnsent / 4 // events are dropped beyond it
	maxBacklog = 256 << 10           // the reader waits beyond it
	keepBuffer = 64 << 10            // larger buffers are given back when empty
)

var errUnsent = errors.New("the client does not read what it is sent (MaxUnsent)")

// outbox is what a connection has to send, and what it still has to answer.
type outbox struct {
	nc   net.Conn
	try  *trywrite.Writer // nil where a write cannot be tried without waiting
	wake chan struct{}    // tells the writer to look
	brim atomic.Bool      // more is there than the reader may add to in one burst

	mu      sync.Mutex // guards what follows
	drained sync.Cond  // signalled when a write is done
	buf     []byte     // to be written
	spare   []byte     // the other buffer, for use while one is written
	flying  int        // bytes being written
	busy    bool       // somebody writes
	held    bool       // the reader handles a burst and will flush
	ending  bool       // close the connection when all is written
	err     error      // why nothing is written any more
	armed   time.Time  // when the write deadline was last moved
	gaps    []*watch   // watches whose events were dropped

	unanswered int
	waiting    int // of those, how many wait in a queue
	settlers   []settler
}

// settler waits until there is nothing to answer.
type settler struct {
	done chan struct{}
	all  bool // those that wait in a queue too
}

func (o *outbox) init(nc net.Conn) {
	o.nc = nc
	o.try = trywrite.New(nc)
	o.wake = make(chan struct{}, 1)
	o.drained.L = &o.mu
}

// add queues a frame.
func (o *outbox) add(r *wire.Reply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.append(r)
}

// append is add for a caller that holds the mutex.
func (o *outbox) append(r *wire.Reply) {
	if o.err == nil {
		o.buf = wire.AppendReply(o.buf, r)
		o.appended()
	}
}

// brought queues a frame that a callback of the session brought. The mutex is
// held, and settled follows.
func (o *outbox) brought(r *wire.Reply) {
	if o.try == nil {
		o.append(r)
	} else if o.err == nil {
		o.buf = wire.AppendReply(o.buf, r)
		o.bound()
	}
}

// broughtRaw is brought for a frame that is encoded already.
func (o *outbox) broughtRaw(frame []byte) {
	if o.try == nil {
		o.addRaw(frame)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.buf = append(o.buf, frame...)
		o.bound()
	}
}

// settled writes what callbacks brought, as far as that needs no waiting: it
// runs in the service's loop, or in the reader of another connection. To write
// here instead of waking the writer saves a switch on the way of every hand-over.
func (o *outbox) settled() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.try == nil || o.held || o.busy || o.err != nil || len(o.buf) == 0 {
		return // somebody else writes, or will
	}
	n := o.try.Write(o.buf)
	o.buf = append(o.buf[:0], o.buf[n:]...)
	if len(o.buf) > 0 {
		o.rouse()
	}
}

// addRaw queues frames that are encoded already.
func (o *outbox) addRaw(frames []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err == nil {
		o.buf = append(o.buf, frames...)
		o.appended()
	}
}

func (o *outbox) appended() {
	if o.bound() && !o.held && !o.busy {
		o.rouse()
	}
}

// bound ends a connection that has too much to be sent, and reports whether it
// goes on.
func (o *outbox) bound() bool {
	if len(o.buf)+o.flying > lease.MaxUnsent {
		o.fail(errUnsent)
		return false
	}
	if len(o.buf) > maxBacklog {
		o.brim.Store(true)
	}
	return true
}

func (o *outbox) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// fail ends the connection: its reader wakes with an error.
func (o *outbox) fail(err error) {
	if o.err == nil {
		o.err = err
		o.buf, o.gaps = nil, nil
		o.nc.Close()
	}
	o.drained.Broadcast()
	o.rouse()
}

// hold keeps frames back until the reader has handled a burst.
func (o *outbox) hold() {
	o.mu.Lock()
	o.held = true
	o.mu.Unlock()
}

// flush writes what the reader's burst brought about. More that comes while it
// writes is left to the writer, so that the reader can read on. A client that
// sends more than it reads is held up here.
func (o *outbox) flush() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	o.brim.Store(false)
	if !o.busy {
		o.writeOnce()
	}
	if (len(o.buf) > 0 || o.ending) && !o.busy {
		o.rouse()
	}
	for len(o.buf) > maxBacklog && o.err == nil {
		o.drained.Wait()
	}
}

// writeOnce writes what is there. The mutex is held, but not while it writes.
func (o *outbox) writeOnce() {
	if len(o.buf) == 0 || o.err != nil {
		return
	}
	out := o.buf
	o.buf, o.spare = o.spare[:0], nil
	o.flying, o.busy = len(out), true
	rearmNow := time.Now()
	if rearmNow.Sub(o.armed) < rearm {
		rearmNow = time.Time{}
	} else {
		o.armed = rearmNow
	}
	o.mu.Unlock()
	var err error
	if !rearmNow.IsZero() {
		err = o.nc.SetWriteDeadline(rearmNow.Add(writeTimeout))
	}
	if err == nil {
		_, err = o.nc.Write(out)
	}
	o.mu.Lock()
	o.flying, o.busy = 0, false
	if cap(out) <= keepBuffer {
		o.spare = out[:0]
	}
	if err != nil {
		o.fail(err)
	}
	o.tellGaps()
	o.drained.Broadcast()
}

// write is the writer: it sends what nobody else does until the connection ends.
func (o *outbox) write() {
	for range o.wake {
		o.mu.Lock()
		for !o.busy && !o.held && len(o.buf) > 0 && o.err == nil {
			o.writeOnce()
		}
		if o.ending && !o.busy && !o.held && len(o.buf) == 0 && o.err == nil {
			o.hangUp()
		}
		over := o.err != nil
		o.mu.Unlock()
		if over {
			return
		}
	}
}

// hangUp says that nothing more comes. The reader goes on for a moment, so that
// what was sent is not destroyed by input that nobody reads.
func (o *outbox) hangUp() {
	half, ok := o.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || o.nc.SetReadDeadline(time.Now().Add(lingerTimeout)) != nil {
		o.fail(net.ErrClosed)
		return
	}
	o.err = net.ErrClosed
}

// finish closes the connection once all is written.
func (o *outbox) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	o.rouse()
}

// drain writes all that is there, for a reader that reads no more, and reports
// whether it could.
func (o *outbox) drain() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	for o.err == nil && (o.busy || len(o.buf) > 0) {
		if o.busy {
			o.drained.Wait()
		} else {
			o.writeOnce()
		}
	}
	return o.err == nil
}

// close ends the writer and drops what comes later.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail(net.ErrClosed)
	for _, s := range o.settlers {
		close(s.done)
	}
	o.settlers = nil
}

// begin counts a request in, or refuses it. What does not wait has as much room
// again, so that a client with too many waiting requests can still live.
func (o *outbox) begin(waits bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unanswered >= 2*lease.MaxInFlight || waits && o.unanswered >= lease.MaxInFlight {
		return lease.Refuse("%d requests of this connection are unanswered, no more are taken (MaxInFlight)", o.unanswered)
	}
	o.unanswered++
	return nil
}

// answer queues the answer to a request that was counted in.
func (o *outbox) answer(r *wire.Reply, waited bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.brought(r)
	o.unanswered--
	if waited {
		o.waiting--
	}
	if len(o.settlers) > 0 {
		o.settle()
	}
}

// queued queues the frame that a request waits.
func (o *outbox) queued(r *wire.Reply) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.brought(r)
	o.waiting++
	if len(o.settlers) > 0 {
		o.settle()
	}
}

// answered returns a channel that is closed when every request is answered, but
// those that wait in a queue unless all is set; or when the connection ends.
func (o *outbox) answered(all bool) <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := settler{done: make(chan struct{}), all: all}
	o.settlers = append(o.settlers, s)
	if o.err != nil {
		o.unanswered, o.waiting = 0, 0
	}
	o.settle()
	return s.done
}

func (o *outbox) settle() {
	kept := o.settlers[:0]
	for _, s := range o.settlers {
		if o.unanswered == 0 || !s.all && o.unanswered == o.waiting {
			close(s.done)
		} else {
			kept = append(kept, s)
		}
	}
	o.settlers = kept
}
