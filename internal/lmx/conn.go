package lmx

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// Conn is one connection. Its reader calls Line, Drain, Farewell and End, one at a
// time, and alone touches what has no comment.
type Conn struct {
	srv     *Server
	peer    Peer
	in      frame
	version string // as the client told it
	legacy  bool   // it is 0.2.25 or older
	over    bool   // what comes is not read any more: another version, or the end

	sending sync.Mutex // guards scratch
	scratch []byte

	// The server's mutex guards the rest.
	sess       lease.Session       // set once
	left       bool                // it has ended, and its session with it
	reqs       map[string]*request // by the uuid of their frames
	waiting    int                 // of those, how many are not granted yet; and questions that wait
	acks       bool                // the client acknowledges grants
	subscribed bool                // it wants to be told of evictions
	monitors   map[string]struct{} // keys in whose monitors it has a part
	firsts     []string            // keys that it has the first reader of, and not locked the write key of
}

// Line handles one frame. What is no JSON object is skipped.
func (c *Conn) Line(line []byte) error {
	f := &c.in
	if !f.parse(line) {
		return nil
	}
	if c.over {
		if string(f.kind) == `"version-mismatch-confirmed"` {
			c.peer.Finish()
		}
		return nil
	}
	switch string(f.kind) { // not a string of its own: that would cost an allocation
	case `"lock"`:
		c.lock(f)
	case `"lock-received"`:
		c.received(f)
	case `"lock-received-rejected"`:
		c.rejected(f)
	case `"lock-client-timeout"`, `"lock-client-error"`:
		c.gaveUp(f)
	case `"unlock"`:
		c.unlock(f)
	case `"acquire-many"`:
		c.acquireMany(f)
	case `"release-many"`:
		c.releaseMany(f)
	case `"register-write-flag-check"`, `"register-write-flag-and-readers-check"`, `"increment-readers"`,
		`"decrement-readers"`, `"set-write-flag-false-and-broadcast"`:
		c.monitor(f, string(f.kind))
	case `"renew"`:
		c.renew(f)
	case `"subscribe-evictions"`:
		c.subscribe(f)
	default:
		c.rest(f, string(f.kind))
	}
	return nil
}

// rest handles what is rare.
func (c *Conn) rest(f *frame, kind string) {
	switch {
	case kind == `"version"`:
		c.hello(f)
	case kind == `"version-mismatch-confirmed"`:
		c.peer.Finish()
	case kind == `"simulate-version-mismatch"`:
		c.mismatch("0.0.1")
	case kind == `"end-connection-from-broker-for-testing-purposes"`:
		c.peer.Finish()
	case kind == `"destroy-connection-from-broker-for-testing-purposes"`:
		c.peer.Cut()
	case kind == `"ls"`:
		c.ls(f)
	case kind == `"lock-info-request"`:
		c.info(f)
	case kind == `"ping"`:
		c.ping(f)
	case kind == `"system-stats-request"`:
		c.stats(f)
	case f.inspect != nil:
		c.inspect(f)
	default:
		c.send(&reply{echo: string(f.uuid), key: string(f.key), queue: -1, readers: -1,
			err: "the broker knows no frame of type " + clip(kind)})
	}
}

func clip(s string) string {
	if s == "" {
		return "none"
	}
	return lease.QuoteKey(strings.Trim(s, `"`))
}

// Farewell is the last frame of a connection that the broker ends.
func (c *Conn) Farewell(err error) []byte {
	return (&reply{err: reason(err), queue: -1, readers: -1}).append(nil)
}

// hello reads the client's version. One that fits is not answered. Only the npm
// clients say their pid with it, and those acknowledge grants: what the first of
// them is must not wait for one that did.
func (c *Conn) hello(f *frame) {
	v, _ := f.version.Text()
	if !compatible(v) {
		c.mismatch(v)
		return
	}
	c.legacy = patch(v) <= 25
	c.version = strings.ToValidUTF8(strings.Clone(v[:min(len(v), 64)]), "")
	if f.pid != nil {
		c.srv.mu.Lock()
		c.acks = true
		c.srv.mu.Unlock()
	}
}

// compatible compares versions as live-mutex does: the major version, and the
// first digit of the minor one.
func compatible(v string) bool {
	major, rest, _ := strings.Cut(v, ".")
	wantMajor, want, _ := strings.Cut(brokerVersion, ".")
	return major == wantMajor && rest != "" && rest[0] == want[0]
}

// patch is the third number of a version, or a high one when there is none.
func patch(v string) int {
	parts := strings.SplitN(v, ".", 3)
	if len(parts) == 3 && parts[1] == "2" {
		digits := parts[2]
		if i := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			digits = digits[:i]
		}
		if n, err := strconv.Atoi(digits); err == nil {
			return n
		}
	}
	return 1 << 30
}

// mismatch tells a client that its version does not fit, releases what it has, and
// closes the connection when it has confirmed, or does not.
func (c *Conn) mismatch(version string) {
	b := append(c.scratchless(), `{"type":"version-mismatch","versions":{`...)
	b = wire.AppendText(wire.AppendName(b, "clientVersion"), version)
	b = text(b, "brokerVersion", brokerVersion)
	c.peer.Send(append(b, "}}\n"...))
	c.leave()
	time.AfterFunc(mismatchTime, c.peer.Finish)
}

// scratchless is a new buffer for the frames that are rare.
func (c *Conn) scratchless() []byte { return make([]byte, 0, 256) }

// Drain waits until all that came is answered, or placed in a queue: the service
// does what it is asked in order.
func (c *Conn) Drain(ctx context.Context) {
	if !c.over && c.sess != nil {
		c.settle(ctx)
	}
}

// settle waits until the service has answered or queued all that the session asked:
// answers come in order.
func (c *Conn) settle(ctx context.Context) {
	done := make(chan struct{})
	c.sess.Do(lease.Command{Verb: lease.Ping}, func(lease.Lease, error) { close(done) })
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// End says that the connection has ended.
func (c *Conn) End() {
	c.leave()
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	c.srv.clients--
	if c.sess != nil {
		c.srv.opened--
	}
}

// leave takes with it what belongs to the connection: holds, but for those that
// outlive it, requests, and its part in monitors.
func (c *Conn) leave() {
	if c.over {
		return
	}
	c.over = true
	s := c.srv
	s.mu.Lock()
	c.left = true
	e := s.leaveMonitors(c)
	var barred []*request
	for _, r := range c.reqs {
		switch {
		case r.stage != held:
			s.drop(r)
		case s.outlives(r):
			barred = append(barred, r)
		case r.detached:
			for _, name := range r.keys {
				s.unhold(r, name)
			}
			s.forget(r)
		default:
			s.endAll(r)
			s.unbar(r)
		}
	}
	s.mu.Unlock()
	for _, r := range barred {
		c.sess.Do(lease.Command{Verb: lease.Detach, ID: r.id}, nil)
	}
	c.carryOut(e)
	if c.sess != nil {
		c.sess.Suspend()
	}
}

// session opens the connection's session when it is first needed, since only
// then it is known which process it is.
func (c *Conn) session(f *frame) (lease.Session, error) {
	if c.sess != nil {
		return c.sess, nil
	}
	o := lease.SessionOptions{Name: "live-mutex client", Grace: lease.NoGrace, Notify: c.lost, Settled: c.peer.Settle}
	if c.version != "" {
		o.Name += " " + c.version
	}
	if pid, err := f.pid.Positive("pid", ""); err == nil && pid < 1<<31 {
		o.PID = int(pid)
	}
	if host, _, err := net.SplitHostPort(c.peer.RemoteAddr().String()); err == nil {
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			o.Host = host
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	sess, err := c.srv.svc.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	c.sess = sess
	c.srv.opened++
	return sess, nil
}

// command has the service do something to r, which may be nil. The session that
// holds it does that, since a command from elsewhere looks like a loss to it. When
// that one has ended, our own does: r may have outlived it.
func (c *Conn) command(own lease.Session, r *request, cmd lease.Command, done func(lease.Lease, error)) {
	if r == nil || r.conn == c {
		own.Do(cmd, done)
		return
	}
	r.conn.sess.Do(cmd, func(l lease.Lease, err error) {
		if lease.CodeOf(err) == lease.ErrSessionLost {
			own.Do(cmd, done)
			return
		}
		done(l, err)
	})
}

// room refuses a key more in whose monitor the connection would have a part, when
// it has one in too many.
func (c *Conn) room(name string) error {
	c.srv.mu.Lock()
	defer c.srv.mu.Unlock()
	if _, ok := c.monitors[name]; !ok && len(c.monitors) >= lease.MaxInFlight {
		return lease.Refuse("this connection reads or writes %d keys, no more are taken (MaxInFlight)", len(c.monitors))
	}
	return nil
}

// lost is told of the losses of the session's holds.
func (c *Conn) lost(n lease.Notice) {
	if n.ID == "" {
		return // the session ended, which only the connection itself brings about
	}
	s := c.srv
	s.mu.Lock()
	var r *request
	for r = s.ids[n.ID]; r != nil && r.conn != c; r = r.twin {
	}
	if r == nil || !s.end(r, n.Key) {
		s.mu.Unlock()
		return
	}
	s.unbar(r)
	subscribed, echo := c.subscribed, r.echo
	if r.many {
		if r.stage == gone {
			s.ended.add(r.id, "") // for a release-many that comes late
		}
		echo = string(wire.AppendText(nil, r.id))
	}
	s.mu.Unlock()
	why := string(n.Code)
	if n.Code == lease.ErrNotHeld {
		why = "released" // by its id, through another door of the broker
	}
	if subscribed {
		c.bring(&reply{kind: "lock-evicted", echo: echo, key: string(wire.AppendText(nil, n.Key)),
			token: n.Token, queue: -1, readers: -1, why: why})
	}
}

// isOver reports whether a release that was answered so leaves nothing held: done, or
// nothing there to release.
func isOver(err error) bool {
	code := lease.CodeOf(err)
	return code == "" || code == lease.ErrNotHeld || code == lease.ErrSessionLost
}

// silent reports errors that are not answered: the service is about to end, and
// with it the connection, which tells the client all.
func silent(err error) bool {
	return errors.Is(err, lease.ErrClosed) || errors.Is(err, lease.ErrSessionLost)
}
