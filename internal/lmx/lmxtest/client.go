package lmxtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"time"
)

// T is what a test is told through: a testing.TB, of which it has Helper, Errorf,
// Fatalf and Cleanup, or something that only notes what was found.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// maxLine bounds one line of a broker.
const maxLine = 4 << 20

// Frame is a frame as an object. Numbers that were read are json.Number, so that
// no digit of a token is lost.
type Frame map[string]any

// String is the frame as JSON, with its fields in order.
func (f Frame) String() string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]any(f)); err != nil {
		return fmt.Sprintf("%#v", map[string]any(f))
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Text is a field that is a string, or a number as it was written; empty
// otherwise.
func (f Frame) Text(name string) string {
	switch v := f[name].(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	}
	return ""
}

// Int is a field that is an integer; -1 otherwise.
func (f Frame) Int(name string) int64 {
	if n, ok := f[name].(json.Number); ok {
		if i, err := n.Int64(); err == nil {
			return i
		}
	}
	return -1
}

// True reports whether a field is true.
func (f Frame) True(name string) bool { return f[name] == true }

// False reports whether a field is there and false.
func (f Frame) False(name string) bool { return f[name] == false }

// Has reports whether a field is there.
func (f Frame) Has(name string) bool { _, ok := f[name]; return ok }

// Texts is a field that is a list of strings.
func (f Frame) Texts(name string) []string {
	list, _ := f[name].([]any)
	out := make([]string, 0, len(list))
	for _, v := range list {
		s, _ := v.(string)
		out = append(out, s)
	}
	return out
}

// Tokens is a field that maps keys to tokens.
func (f Frame) Tokens(name string) map[string]int64 {
	m, _ := f[name].(map[string]any)
	out := make(map[string]int64, len(m))
	for k := range m {
		out[k] = Frame(m).Int(k)
	}
	return out
}

// With is a copy of the frame with the fields of more added or replaced.
func (f Frame) With(more Frame) Frame {
	out := make(Frame, len(f)+len(more))
	for _, m := range []Frame{f, more} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// Without is a copy of the frame that lacks a field.
func (f Frame) Without(name string) Frame {
	out := f.With(nil)
	delete(out, name)
	return out
}

// Client is one connection. Frames that nobody asked for yet are kept in the order
// in which they came.
type Client struct {
	t        T
	nc       net.Conn
	patience time.Duration
	incoming chan Frame
	done     chan struct{} // closed when the test is over
	early    []Frame
	bad      string // a line that is not an object; read after incoming is closed
}

// NewClient wraps a connection, which is closed when the test ends. Patience is
// how long an answer may take.
func NewClient(t T, nc net.Conn, patience time.Duration) *Client {
	c := &Client{t: t, nc: nc, patience: patience, incoming: make(chan Frame, 256), done: make(chan struct{})}
	t.Cleanup(func() {
		nc.Close()
		close(c.done)
		for range c.incoming {
			continue
		}
	})
	go c.read()
	return c
}

// read hands over frames until the connection ends.
func (c *Client) read() {
	defer close(c.incoming)
	in := bufio.NewReaderSize(c.nc, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil && (err != io.EOF || len(line) == 0) || len(line) > maxLine {
			return
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.UseNumber()
		var f Frame
		if derr := d.Decode(&f); derr != nil || f == nil {
			c.bad = string(line)
			return
		}
		select {
		case c.incoming <- f:
		case <-c.done:
			return
		}
	}
}

// Raw writes bytes as they are, in one write.
func (c *Client) Raw(text string) {
	c.t.Helper()
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		c.t.Fatalf("set a deadline: %v", err)
	}
	if _, err := io.WriteString(c.nc, text); err != nil {
		c.t.Fatalf("write %.200q: %v", text, err)
	}
}

// Push writes bytes to a broker that may close the connection meanwhile.
func (c *Client) Push(text string) {
	c.t.Helper()
	if err := c.nc.SetWriteDeadline(time.Now().Add(c.patience)); err != nil {
		return // closed: what it said will be read
	}
	_, _ = io.WriteString(c.nc, text)
}

// Send writes frames, all in one write.
func (c *Client) Send(frames ...Frame) {
	c.t.Helper()
	var b strings.Builder
	for _, f := range frames {
		b.WriteString(f.String())
		b.WriteByte('\n')
	}
	c.Raw(b.String())
}

// Version says hello as a client of this version does.
func (c *Client) Version(v string) *Client {
	c.t.Helper()
	c.Send(Frame{"type": "version", "value": v})
	return c
}

// Next is the next frame of all.
func (c *Client) Next() Frame {
	c.t.Helper()
	return c.find("any frame", func(Frame) bool { return true })
}

// Expect is the next frame with this uuid. Frames with others stay for later.
func (c *Client) Expect(uuid string) Frame {
	c.t.Helper()
	return c.find("a frame with uuid "+uuid, func(f Frame) bool { return f.Text("uuid") == uuid })
}

// Poll is a frame with this uuid, if one has come.
func (c *Client) Poll(uuid string) (Frame, bool) {
	c.t.Helper()
	for more := true; more; {
		select {
		case f, ok := <-c.incoming:
			if more = ok; ok {
				c.early = append(c.early, f)
			}
		default:
			more = false
		}
	}
	i := slices.IndexFunc(c.early, func(f Frame) bool { return f.Text("uuid") == uuid })
	if i < 0 {
		return nil, false
	}
	return c.find("", func(f Frame) bool { return f.Text("uuid") == uuid }), true
}

// ExpectType is the next frame of this type.
func (c *Client) ExpectType(kind string) Frame {
	c.t.Helper()
	return c.find("a frame of type "+kind, func(f Frame) bool { return f["type"] == kind })
}

func (c *Client) find(what string, is func(Frame) bool) Frame {
	c.t.Helper()
	if i := slices.IndexFunc(c.early, is); i >= 0 {
		f := c.early[i]
		c.early = slices.Delete(c.early, i, i+1)
		return f
	}
	limit := time.NewTimer(c.patience)
	defer limit.Stop()
	for {
		select {
		case f, ok := <-c.incoming:
			switch {
			case !ok && c.bad != "":
				c.t.Fatalf("waiting for %s: the broker sent %.200q", what, c.bad)
			case !ok:
				c.t.Fatalf("waiting for %s: the connection was closed; unread %v", what, c.early)
			case is(f):
				return f
			}
			c.early = append(c.early, f)
		case <-limit.C:
			c.t.Fatalf("nothing came within %v: want %s; unread %v", c.patience, what, c.early)
		}
	}
}

// Quiet checks that nothing has come and that nothing is unread.
func (c *Client) Quiet() {
	c.t.Helper()
	select {
	case f, ok := <-c.incoming:
		if !ok {
			c.t.Fatalf("the connection was closed, want it quiet")
		}
		c.t.Fatalf("got %v, want nothing", f)
	default:
	}
	if len(c.early) > 0 {
		c.t.Fatalf("unread %v, want nothing", c.early)
	}
}

// Drop forgets what came and was not read, and whatever comes until there is a
// pause.
func (c *Client) Drop() {
	c.t.Helper()
	c.early = nil
	for {
		pause := time.NewTimer(100 * time.Millisecond)
		select {
		case _, ok := <-c.incoming:
			pause.Stop()
			if !ok {
				c.t.Fatalf("the connection was closed")
			}
		case <-pause.C:
			return
		}
	}
}

// Ended checks that the broker closes the connection within a time, after no frame
// more than those that were read.
func (c *Client) Ended(within time.Duration) {
	c.t.Helper()
	if len(c.early) > 0 {
		c.t.Fatalf("unread %v, want the end", c.early)
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case f, ok := <-c.incoming:
		if ok {
			c.t.Fatalf("got %v, want the end of the connection", f)
		}
		if c.bad != "" {
			c.t.Fatalf("got %.200q, want the end of the connection", c.bad)
		}
	case <-limit.C:
		c.t.Fatalf("the connection still stands after %v", within)
	}
}

// End says that this client has said all, as an orderly disconnect does. Over a
// connection that cannot be closed by half it is a close.
func (c *Client) End() {
	c.t.Helper()
	if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
		if err := half.CloseWrite(); err != nil {
			c.t.Fatalf("close the way out: %v", err)
		}
		return
	}
	c.Close()
}

// Close breaks the connection.
func (c *Client) Close() { c.nc.Close() }
