package tcpserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// conn is one connection. Its reader alone touches what has no comment.
type conn struct {
	srv *Server
	nc  net.Conn
	out outbox // of all goroutines

	in      *wire.Reader
	req     wire.Request
	sess    lease.Session
	id      string      // of the session
	lost    atomic.Bool // the session has ended; set by the service's loop
	watches map[uint64]*watch
	handler Handler // of another dialect, or nil
}

// Why a reader stops, besides what the network and the frames say.
var (
	errGoodbye = errors.New("the client said goodbye")
	errPanic   = errors.New("a defect was met")
)

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{srv: s, nc: nc, in: wire.NewReader(nc, wire.MaxRequest)}
	c.out.init(nc)
	return c
}

// run serves the connection until it ends.
func (c *conn) run() {
	writer := make(chan struct{})
	go func() {
		defer close(writer)
		c.out.write()
	}()
	err := c.serve()
	c.end(err)
	c.out.close()
	<-writer
}

// serve reads until there is a reason to stop. A panic is one: what else is
// served goes on.
func (c *conn) serve() (err error) {
	defer func() {
		if v := recover(); v != nil {
			c.defect(v)
			err = fmt.Errorf("%w: %v", errPanic, v)
		}
	}()
	if err := c.greet(); err != nil {
		return err
	}
	for {
		line, err := c.in.Next()
		if err != nil {
			return err
		}
		received := time.Now()
		c.out.hold()
		for {
			if c.handler != nil {
				err = c.handler.Line(line)
			} else {
				err = c.handle(line, received)
			}
			if err != nil {
				return err
			}
			if !c.in.Ready() {
				break
			}
			if c.out.brim.Load() { // a burst of short questions may have long answers
				c.out.flush()
				c.out.hold()
			}
			if line, err = c.in.Next(); err != nil {
				return err
			}
		}
		c.out.flush()
	}
}

func (c *conn) defect(v any) {
	c.srv.log.Error("a defect ended a connection", "panic", v, "peer", c.nc.RemoteAddr(), "stack", string(debug.Stack()))
}

// greet exchanges hellos, or finds that the client speaks another dialect. Where
// there is one, a client may connect long before it says something: those of
// other protocols do.
func (c *conn) greet() error {
	if c.srv.opts.Dialect != nil {
		if err := c.in.Await(); err != nil {
			return err
		}
	}
	if err := c.nc.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	line, err := c.in.Next()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return &lease.Error{Code: lease.ErrProtocol, Reason: fmt.Sprintf("no hello within %v of connecting", helloTimeout)}
	}
	if err != nil {
		return err
	}
	if err := c.nc.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if _, err := wire.DecodeHello(line); err != nil {
		return c.other(line, err)
	}
	c.out.hold()
	c.out.addRaw(c.srv.greeting())
	c.out.flush()
	return nil
}

// end leaves the session and says what is to be said.
func (c *conn) end(err error) {
	for _, w := range c.watches {
		c.out.end(w)
		w.stop()
	}
	if errors.Is(err, io.EOF) {
		// The peer has said all, and may still read: answers on their way go out.
		c.out.drain()
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		select {
		case <-c.out.answered(false):
		case <-ctx.Done():
		}
		cancel()
	}
	c.leave(err)
	if c.handler != nil {
		c.endOther(err)
		c.nc.Close()
		return
	}
	switch {
	case errors.Is(err, wire.ErrTooLong):
		c.lastWords(frameTooLong())
	case errors.Is(err, errPanic):
		c.lastWords(lease.ErrInternal)
	case lease.CodeOf(err) == lease.ErrProtocol:
		c.complain(err)
		c.lastWords(err)
	default:
		c.out.drain()
	}
	c.nc.Close()
}

func frameTooLong() error {
	return &lease.Error{Code: lease.ErrProtocol, Reason: fmt.Sprintf("a frame is over %d bytes (MaxFrame)", wire.MaxRequest)}
}

func (c *conn) complain(err error) {
	c.srv.log.Debug("a client does not speak the protocol", "peer", c.nc.RemoteAddr(), "error", err)
}

// leave suspends the session, unless it was closed or another connection has it.
func (c *conn) leave(err error) {
	if c.sess == nil || !c.srv.disown(c.id, c) || errors.Is(err, errGoodbye) {
		return
	}
	defer func() {
		if v := recover(); v != nil {
			c.defect(v)
		}
	}()
	c.sess.Suspend()
}

// lastWords sends a failure that belongs to no request.
func (c *conn) lastWords(reason error) {
	r := wire.Failure(0, "", reason)
	c.out.add(&r)
	c.linger()
}

// linger sends what is left and gives the peer a moment to read it: closing a
// socket on unread input may destroy what is underway.
func (c *conn) linger() {
	if !c.out.drain() {
		return
	}
	half, ok := c.nc.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil || c.nc.SetReadDeadline(time.Now().Add(lingerTimeout)) != nil {
		return
	}
	io.Copy(io.Discard, io.LimitReader(c.nc, lease.MaxUnsent)) // whatever it sends, and however that ends
}
