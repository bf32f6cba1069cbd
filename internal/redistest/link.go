package redistest

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	chunkSize = 32 << 10
	// maxChunks bounds what is held for one direction of a link.
	maxChunks = 256
	// turn is how long one write may hold up a change of what the relay does.
	turn = 20 * time.Millisecond
)

// A link is one connection through a relay: a reader and a writer for each direction.
type link struct {
	relay  *Relay
	client net.Conn
	end    chan struct{} // closed with the link

	mu     sync.Mutex // guards what follows
	server net.Conn
	closed bool
}

// A chunk is what one read brought, and when it is to be passed on.
type chunk struct {
	data []byte
	due  time.Time
}

func (l *link) run() {
	server, err := net.DialTimeout(l.relay.network, l.relay.target, patience)
	if err != nil {
		l.close()
		return
	}
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		server.Close()
		return
	}
	l.server = server
	l.mu.Unlock()
	l.pump(Requests, l.client, server, &l.relay.requests)
	l.pump(Replies, server, l.client, &l.relay.replies)
}

// pump moves bytes one way. The end of one direction is, when all before it has been
// passed on, that of the link.
func (l *link) pump(d Direction, from, to net.Conn, count *atomic.Int64) {
	queue := make(chan chunk, maxChunks)
	l.relay.running.Go(func() {
		defer close(queue)
		l.read(d, from, queue)
	})
	l.relay.running.Go(func() {
		defer l.close()
		for c := range queue {
			if !l.rest(time.Until(c.due)) || !l.write(d, to, c.data, count) {
				return
			}
		}
	})
}

func (l *link) read(d Direction, from net.Conn, queue chan<- chunk) {
	buf := make([]byte, chunkSize)
	for l.awaitThaw(d) {
		n, err := from.Read(buf)
		if n > 0 {
			l.relay.passing.RLock()
			delay := l.relay.delay
			l.relay.passing.RUnlock()
			select {
			case queue <- chunk{append([]byte(nil), buf[:n]...), time.Now().Add(delay)}:
			case <-l.end:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// write passes data on, in turns short enough that a change need not wait for a
// receiver that does not read. False says that it cannot.
func (l *link) write(d Direction, to net.Conn, data []byte, count *atomic.Int64) bool {
	r := l.relay
	for len(data) > 0 {
		if !l.awaitThaw(d) {
			return false
		}
		r.passing.RLock()
		if r.frozen&d != 0 {
			r.passing.RUnlock()
			continue
		}
		if r.dropped && d == Replies {
			r.passing.RUnlock()
			return true
		}
		err := to.SetWriteDeadline(time.Now().Add(turn))
		n := 0
		if err == nil {
			// Counted before, so that nobody has received what is not.
			count.Add(int64(len(data)))
			n, err = to.Write(data)
			count.Add(int64(n - len(data)))
		}
		r.passing.RUnlock()
		data = data[n:]
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return true
}

// awaitThaw waits until the direction is not frozen; false says that the link has
// ended.
func (l *link) awaitThaw(d Direction) bool {
	for {
		l.relay.passing.RLock()
		frozen, changed := l.relay.frozen&d != 0, l.relay.changed
		l.relay.passing.RUnlock()
		if !frozen {
			return true
		}
		select {
		case <-changed:
		case <-l.end:
			return false
		}
	}
}

// rest waits; false says that the link has ended before.
func (l *link) rest(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.end:
		return false
	}
}

func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	close(l.end)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
	l.relay.forget(l)
}
