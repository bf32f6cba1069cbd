package lmxtest

import (
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
)

// World is one broker and the clients of one test.
type World struct {
	T T

	// Connect makes a connection to the broker.
	Connect func() (net.Conn, error)

	// Patience is how long an answer may take that must come; zero means ten
	// seconds.
	Patience time.Duration

	// Settle is how long to wait for what must not come; zero means 100 ms.
	Settle time.Duration

	// Hurry shortens what Long makes of a time, for brokers with shorter timers.
	Hurry int

	// Notes has what a target can tell beyond its wire, by name.
	Notes map[string]func() int64

	serial int
}

// Dial connects a client, which says nothing yet.
func (w *World) Dial() *Client {
	w.T.Helper()
	nc, err := w.Connect()
	if err != nil {
		w.T.Fatalf("connect to the broker: %v", err)
	}
	patience := w.Patience
	if patience == 0 {
		patience = 10 * time.Second
	}
	return NewClient(w.T, nc, patience)
}

// Client connects one that says it is of version 0.2.25.
func (w *World) Client() *Client {
	w.T.Helper()
	return w.Dial().Version("0.2.25")
}

// ID is a uuid that no other request of this world has.
func (w *World) ID() string {
	w.serial++
	return fmt.Sprintf("u%06d", w.serial)
}

// Pause lets time pass.
func (w *World) Pause(d time.Duration) { <-time.After(d) }

// Long is a time that is longer than a timer of the broker.
func (w *World) Long(d time.Duration) time.Duration { return d / time.Duration(max(w.Hurry, 1)) }

// Quiet checks that none of the clients is sent anything.
func (w *World) Quiet(clients ...*Client) {
	w.T.Helper()
	d := w.Settle
	if d == 0 {
		d = 100 * time.Millisecond
	}
	w.Pause(d)
	for _, c := range clients {
		c.Quiet()
	}
}

// Lock is the frame of a request, with the fields of more.
func Lock(uuid, key string, more Frame) Frame {
	return Frame{"type": "lock", "uuid": uuid, "key": key, "ttl": 60000, "max": nil, "pid": 4711,
		"retryCount": 0, "keepLocksAfterDeath": false, "force": false}.With(more)
}

// Unlock is the frame of a release by id.
func Unlock(uuid, lockID, key string, more Frame) Frame {
	return Frame{"type": "unlock", "uuid": uuid, "_uuid": lockID, "key": key, "pid": 4711, "force": false}.With(more)
}

// Hold locks a key, which must be granted at once, and returns id and grant.
func (w *World) Hold(c *Client, key string, more Frame) (id string, grant Frame) {
	w.T.Helper()
	id = w.ID()
	c.Send(Lock(id, key, more))
	grant = c.Expect(id)
	if !grant.True("acquired") {
		w.T.Fatalf("lock %q: got %v, want it granted", key, grant)
	}
	return id, grant
}

// Queue locks a key, which must be answered with a place in the queue.
func (w *World) Queue(c *Client, key string, more Frame) (id string) {
	w.T.Helper()
	id = w.ID()
	c.Send(Lock(id, key, more))
	if f := c.Expect(id); !f.False("acquired") || f.Has("error") {
		w.T.Fatalf("lock %q: got %v, want it queued", key, f)
	}
	return id
}

// Granted reads the grant that a queued request must get.
func (w *World) Granted(c *Client, id string) Frame {
	w.T.Helper()
	f := c.Expect(id)
	if !f.True("acquired") {
		w.T.Fatalf("got %v, want the grant of %s", f, id)
	}
	return f
}

// Release gives a hold back, which must succeed.
func (w *World) Release(c *Client, key, id string) Frame {
	w.T.Helper()
	return w.unlocked(c, key, id, nil)
}

// Force ends every hold of a key, which must succeed.
func (w *World) Force(c *Client, key string) Frame {
	w.T.Helper()
	uuid := w.ID()
	c.Send(Frame{"type": "unlock", "uuid": uuid, "key": key, "force": true})
	f := c.Expect(uuid)
	if !f.True("unlocked") {
		w.T.Fatalf("force %q: got %v, want unlocked", key, f)
	}
	return f
}

func (w *World) unlocked(c *Client, key, id string, more Frame) Frame {
	w.T.Helper()
	uuid := w.ID()
	c.Send(Unlock(uuid, id, key, more))
	f := c.Expect(uuid)
	if !f.True("unlocked") {
		w.T.Fatalf("unlock %q: got %v, want unlocked", key, f)
	}
	return f
}

// Info asks who holds a key and how many wait.
func (w *World) Info(c *Client, key string) (holders []string, waiting int64) {
	w.T.Helper()
	uuid := w.ID()
	c.Send(Frame{"type": "lock-info-request", "uuid": uuid, "key": key})
	f := c.Expect(uuid)
	return f.Texts("lockholderUUIDs"), f.Int("lockRequestCount")
}

// Note is a count that the target tells beyond its wire. A target that cannot tell
// it fails the test.
func (w *World) Note(name string) int64 {
	w.T.Helper()
	fn := w.Notes[name]
	if fn == nil {
		w.T.Fatalf("the broker does not tell %q", name)
	}
	return fn()
}

// Findings notes what a test finds instead of failing it: for a broker that is
// known to be wrong. It is a T.
type Findings struct {
	mu       sync.Mutex // guards what follows
	texts    []string
	cleanups []func()
}

// Run runs a test and returns what it found, nothing if all is well.
func (f *Findings) Run(test func(T)) []string {
	over := make(chan struct{})
	go func() {
		defer close(over)
		test(f)
	}()
	<-over
	for i := len(f.cleanups) - 1; i >= 0; i-- {
		f.cleanups[i]()
	}
	return f.texts
}

// Helper does nothing.
func (f *Findings) Helper() {}

// Errorf notes something.
func (f *Findings) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

// Fatalf notes something and ends the test.
func (f *Findings) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// Cleanup calls fn when the test has ended.
func (f *Findings) Cleanup(fn func()) { f.cleanups = append(f.cleanups, fn) }
