package tcpserve

import (
	"context"
	"errors"
	"io"
	"net"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Handler speaks another protocol on one connection. Its methods are called by
// the connection's reader, one at a time.
type Handler interface {
	// Line handles one line, the first one included, without its newline. It is
	// valid until Line returns. An error ends the connection.
	Line(line []byte) error

	// Farewell is the last frame of a connection that ends with an error of
	// protocol or a defect; nil for none.
	Farewell(err error) []byte

	// Drain waits until all that came is answered, but for what waits in a queue,
	// or until ctx ends. It is called before End when the client has said all and
	// may still read.
	Drain(ctx context.Context)

	// End says that nothing more comes from the client. It is the last call.
	End()
}

// Peer is a connection as its Handler sees it. Its methods may be called from
// any goroutine and do not wait for the client; frames that cannot be sent are
// dropped, since the connection has ended then.
type Peer struct{ conn *conn }

// Send sends a frame, with its newline, soon.
func (p *Peer) Send(frame []byte) { p.conn.out.addRaw(frame) }

// Bring sends a frame that a callback of a session brought, at the latest when
// the session has settled: Settle is to be the session's Settled.
func (p *Peer) Bring(frame []byte) { p.conn.out.broughtRaw(frame) }

// Settle sends what callbacks brought.
func (p *Peer) Settle() { p.conn.out.settled() }

// Finish closes the connection once all is sent.
func (p *Peer) Finish() { p.conn.out.finish() }

// Cut closes the connection at once, whatever is underway.
func (p *Peer) Cut() { p.conn.out.close() }

// RemoteAddr is where the client is.
func (p *Peer) RemoteAddr() net.Addr { return p.conn.nc.RemoteAddr() }

// other makes the connection one of the other dialect, if that is what the first
// line is and somebody speaks it.
func (c *conn) other(line []byte, err error) error {
	if c.srv.opts.Dialect == nil || !errors.Is(err, wire.ErrOtherDialect) {
		return err
	}
	c.handler = c.srv.opts.Dialect(&Peer{c})
	return c.handler.Line(line)
}

// endOther is end for a connection of another dialect.
func (c *conn) endOther(err error) {
	defer func() {
		if v := recover(); v != nil {
			c.defect(v)
		}
	}()
	if errors.Is(err, io.EOF) {
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		c.handler.Drain(ctx)
		cancel()
	}
	c.handler.End()
	switch {
	case errors.Is(err, wire.ErrTooLong):
		err = frameTooLong()
	case errors.Is(err, errPanic):
		err = lease.ErrInternal
	case lease.CodeOf(err) != lease.ErrProtocol:
		c.out.drain()
		return
	default:
		c.complain(err)
	}
	if last := c.handler.Farewell(err); last != nil {
		c.out.addRaw(last)
	}
	c.linger()
}
