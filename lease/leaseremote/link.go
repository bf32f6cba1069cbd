package leaseremote

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/trywrite"
	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// writeTimeout is how long a connection may refuse to take any byte before it
// counts as broken.
const writeTimeout = 10 * time.Second

// flushRounds is how often one caller writes what others appended meanwhile
// before it hands the work to a goroutine, so that its call returns.
const flushRounds = 4

// link is one connection to the broker. Frames are appended to it and written by
// whoever finds nobody writing, so that a lone caller writes its own frame and
// many callers share a write. No method waits for the network: what the kernel
// does not take at once is left to a goroutine.
type link struct {
	conn net.Conn
	in   *wire.Reader
	try  *trywrite.Writer // nil where a write cannot be tried without waiting

	lends  bool      // callers may read in place of the keeper
	readBy time.Time // the read deadline; of who reads

	mu      sync.Mutex // guards what follows
	out     []byte     // frames that nobody has begun to write
	spare   []byte     // the buffer that was out before
	writing bool       // somebody writes, or will; appending is enough
	corked  bool       // the reader delivers answers and flushes afterwards
	broken  error      // why the connection is of no use any more
	writers sync.WaitGroup
}

func newLink(conn net.Conn) *link {
	l := &link{conn: conn, in: wire.NewReader(conn, wire.MaxReply), try: trywrite.New(conn)}
	l.lends = l.try != nil
	return l
}

// append adds one frame, made by encode, and reports whether the caller has to
// call flush once it holds no lock. A frame over the limit is not added.
func (l *link) append(req *wire.Request) (flush bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := len(l.out)
	l.out = wire.AppendRequest(l.out, req)
	if size := len(l.out) - before; size > wire.MaxRequest {
		l.out = l.out[:before]
		return false, lease.Refuse("the request is %d bytes as a frame, at most %d are allowed (MaxFrame)",
			size, wire.MaxRequest)
	}
	if l.writing || l.corked || l.broken != nil {
		return false, nil
	}
	l.writing = true
	return true, nil
}

// unsent is the number of bytes that wait to be written.
func (l *link) unsent() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.out)
}

// next reads one frame. It is valid until the next call.
func (l *link) next() ([]byte, error) {
	line, err := l.in.Next()
	if err == wire.ErrTooLong {
		return nil, &lease.Error{Code: lease.ErrProtocol,
			Reason: fmt.Sprintf("the broker sent a frame of more than %d bytes", wire.MaxReply)}
	}
	return line, err
}

// cork makes append leave the writing to uncork.
func (l *link) cork() {
	l.mu.Lock()
	l.corked = true
	l.mu.Unlock()
}

// uncork writes what was appended since cork.
func (l *link) uncork() {
	l.mu.Lock()
	l.corked = false
	flush := len(l.out) > 0 && !l.writing && l.broken == nil
	if flush {
		l.writing = true
	}
	l.mu.Unlock()
	if flush {
		l.flush()
	}
}

// flush writes what is appended. The caller was told to by append, and with that
// owns l.writing.
func (l *link) flush() {
	for range flushRounds {
		frames, more := l.take()
		if !more {
			return
		}
		n := 0
		if l.try != nil {
			n = l.try.Write(frames)
		}
		if n < len(frames) {
			l.writeLater(frames, n)
			return
		}
		l.giveBack(frames)
	}
	l.writeLater(nil, 0)
}

// take hands out the frames to write, or gives up l.writing when there are none.
func (l *link) take() ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.out) == 0 || l.broken != nil {
		l.writing = false
		return nil, false
	}
	frames := l.out
	l.out, l.spare = l.spare, nil
	return frames, true
}

// giveBack keeps a buffer for reuse unless it grew large.
func (l *link) giveBack(frames []byte) {
	if cap(frames) > lease.MaxFrame {
		return
	}
	l.mu.Lock()
	if l.spare == nil {
		l.spare = frames[:0]
	}
	l.mu.Unlock()
}

// writeLater starts the goroutine that writes what could not be written without
// waiting, from frames[n:] on. It owns l.writing until nothing is left.
func (l *link) writeLater(frames []byte, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		l.writing = false
		return
	}
	l.writers.Add(1)
	go func() {
		defer l.writers.Done()
		for more := true; more; frames, more = l.take() {
			if n < len(frames) {
				l.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
				if _, err := l.conn.Write(frames[n:]); err != nil {
					l.fail(err)
				}
				l.conn.SetWriteDeadline(time.Time{})
			}
			n = 0
		}
	}()
}

// fail breaks the connection: whoever reads it is woken with an error.
func (l *link) fail(err error) {
	l.mu.Lock()
	if l.broken == nil {
		l.broken = err
	}
	l.mu.Unlock()
	l.conn.Close()
}

// close breaks the connection and waits until nobody writes. It returns the
// reason of the break, which is err if there was none before.
func (l *link) close(err error) error {
	l.fail(err)
	l.writers.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.broken
}
