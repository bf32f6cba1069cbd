package tcpserve

import (
	"errors"
	"os"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// peekFor is how long a resume that would take a session away from a connection
// waits to hear that its own has ended. What the kernel knows is there at once.
const peekFor = time.Millisecond

// turn lets one resume of a session at a time through.
type turn struct {
	free  chan struct{} // capacity one: whoever fills it has the turn
	users int           // guarded by Server.mu
}

// takeTurn waits until no other connection resumes the session. Without that the
// service could give it to one connection and the server to another. It is bounded
// by callTimeout: that is how long a resume waits for the service.
func (s *Server) takeTurn(id string) (done func()) {
	s.mu.Lock()
	t := s.turns[id]
	if t == nil {
		t = &turn{free: make(chan struct{}, 1)}
		s.turns[id] = t
	}
	t.users++
	s.mu.Unlock()
	t.free <- struct{}{}
	return func() {
		<-t.free
		s.mu.Lock()
		defer s.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(s.turns, id)
		}
	}
}

// checkTakeover refuses a resume whose client has hung up already when another
// connection has the session. The client of a server that stood still gives an
// attempt up and makes another, and the older of the two may be read last.
func (c *conn) checkTakeover(id string) error {
	c.srv.mu.Lock()
	other := c.srv.sessions[id]
	c.srv.mu.Unlock()
	if other == nil || other == c || !c.hungUp() {
		return nil
	}
	return lease.Refuse("this connection has ended, and another one has the session")
}

// hungUp reports whether nothing more comes from the client.
func (c *conn) hungUp() bool {
	if c.nc.SetReadDeadline(time.Now().Add(peekFor)) != nil {
		return true
	}
	err := c.in.Peek()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		c.in.Retry()
		err = nil
	}
	return c.nc.SetReadDeadline(time.Time{}) != nil || err != nil
}
