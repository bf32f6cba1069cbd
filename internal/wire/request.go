package wire

import (
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Op says what a request asks for.
type Op uint8

// The operations.
const (
	OpOpen    Op = iota + 1 // begin or resume the connection's session
	OpAcquire               // ask for a lease
	OpRenew                 // start its ttl anew
	OpRelease               // end it
	OpDetach                // let it outlive the session
	OpCancel                // take a request back
	OpPing                  // a sign of life
	OpClose                 // the goodbye
	OpList                  // the state of keys
	OpWatch                 // events of keys
	OpUnwatch               // no more of them
	OpForce                 // an administrator's release
	OpStats                 // counters and gauges
)

// String returns the name used on the wire.
func (o Op) String() string {
	names := [...]string{"", "open", "acquire", "renew", "release", "detach", "cancel", "ping", "close",
		"list", "watch", "unwatch", "force", "stats"}
	if int(o) < len(names) {
		return names[o]
	}
	return ""
}

// parseOp is the inverse of String; zero for a name that is none.
func parseOp(name string) Op {
	switch name {
	case "open":
		return OpOpen
	case "acquire":
		return OpAcquire
	case "renew":
		return OpRenew
	case "release":
		return OpRelease
	case "detach":
		return OpDetach
	case "cancel":
		return OpCancel
	case "ping":
		return OpPing
	case "close":
		return OpClose
	case "list":
		return OpList
	case "watch":
		return OpWatch
	case "unwatch":
		return OpUnwatch
	case "force":
		return OpForce
	case "stats":
		return OpStats
	}
	return 0
}

// Request is one frame of a client. Only the fields of its Do are meaningful; a
// zero field is absent from the frame, and the service's default applies.
type Request struct {
	N  uint64 // names the request on its connection; 1 or more
	Do Op

	// Acquire: see lease.Request, whose names differ only in Max, its Limit.
	// Renew, release, detach: ID or Token; renew also TTL. Cancel: ID.
	ID            string
	Key           string   // one key, or
	Keys          []string // several
	Mode          lease.Mode
	Max           int
	TTL           time.Duration // or lease.Forever
	Try           bool
	Wait          time.Duration
	Waited        time.Duration
	PreferReaders bool
	MaxHold       time.Duration
	LockDelay     time.Duration
	Detach        bool
	Label         string
	Declared      []string
	Token         lease.Token // also of force

	// Open. Grace is lease.NoGrace for 0 on the wire, and zero when absent.
	Name   string
	Host   string
	PID    int
	Grace  time.Duration
	Resume string

	// List and watch: Key or Prefix.
	Prefix    string
	After     string
	Limit     int
	Contended bool
	Brief     bool

	Watch uint64 // unwatch: the N of the watch

	// Force, with Key and perhaps Token.
	By     string
	Reason string
}

// Acquire makes an acquire frame of r, which should be normalized: durations
// have a grain of 1 ms and are rounded up.
func Acquire(n uint64, r *lease.Request) Request {
	q := Request{N: n, Do: OpAcquire, ID: r.ID, Mode: r.Mode, Max: r.Limit, TTL: r.TTL, Try: r.Try, Wait: r.Wait,
		Waited: r.Waited, PreferReaders: r.PreferReaders, MaxHold: r.MaxHold, LockDelay: r.LockDelay,
		Detach: r.Detach, Label: r.Label, Declared: r.Declared}
	if len(r.Keys) == 1 {
		q.Key = r.Keys[0]
	} else {
		q.Keys = r.Keys
	}
	return q
}

// Lease returns what an acquire frame asks for.
func (q *Request) Lease() lease.Request {
	r := lease.Request{ID: q.ID, Keys: q.Keys, Mode: q.Mode, Limit: q.Max, TTL: q.TTL, Try: q.Try, Wait: q.Wait,
		Waited: q.Waited, PreferReaders: q.PreferReaders, MaxHold: q.MaxHold, LockDelay: q.LockDelay,
		Detach: q.Detach, Label: q.Label, Declared: q.Declared}
	if q.Keys == nil {
		r.Keys = []string{q.Key}
	}
	return r
}

// Command makes a frame of a command.
func Command(n uint64, c *lease.Command) Request {
	q := Request{N: n, ID: c.ID, Token: c.Token, Key: c.Key}
	switch c.Verb {
	case lease.Ping:
		q = Request{N: n, Do: OpPing}
	case lease.Renew:
		q.Do, q.TTL = OpRenew, c.TTL
	case lease.Release:
		q.Do = OpRelease
	case lease.Detach:
		q.Do = OpDetach
	case lease.Cancel:
		q.Do, q.Key = OpCancel, ""
	}
	if q.ID != "" {
		q.Token = 0 // a frame names the hold in one way
	}
	return q
}

// Command returns what a renew, release, detach, cancel or ping frame asks for.
func (q *Request) Command() lease.Command {
	c := lease.Command{ID: q.ID, Token: q.Token, Key: q.Key, TTL: q.TTL}
	switch q.Do {
	case OpRenew:
		c.Verb = lease.Renew
	case OpRelease:
		c.Verb = lease.Release
	case OpDetach:
		c.Verb = lease.Detach
	case OpCancel:
		c.Verb = lease.Cancel
	}
	return c
}

// Open makes an open frame.
func Open(n uint64, o *lease.SessionOptions) Request {
	return Request{N: n, Do: OpOpen, Name: o.Name, Host: o.Host, PID: o.PID, Grace: o.Grace, Resume: o.Resume}
}

// Session returns the options of an open frame. An absent grace is
// lease.DefaultGrace: a connection can break.
func (q *Request) Session() lease.SessionOptions {
	o := lease.SessionOptions{Name: q.Name, Host: q.Host, PID: q.PID, Grace: q.Grace, Resume: q.Resume}
	if o.Grace == 0 {
		o.Grace = lease.DefaultGrace
	}
	return o
}

// List makes a list frame.
func List(n uint64, q *lease.Query) Request {
	r := Watch(n, q)
	r.Do, r.After, r.Limit, r.Contended, r.Brief = OpList, q.After, q.Limit, q.Contended, q.Brief
	return r
}

// Watch makes a watch frame.
func Watch(n uint64, q *lease.Query) Request {
	if q.Key != "" {
		return Request{N: n, Do: OpWatch, Key: q.Key} // a key decides alone
	}
	return Request{N: n, Do: OpWatch, Prefix: q.Prefix}
}

// Query returns what a list or watch frame asks for.
func (q *Request) Query() lease.Query {
	return lease.Query{Key: q.Key, Prefix: q.Prefix, After: q.After, Limit: q.Limit, Contended: q.Contended, Brief: q.Brief}
}

// Force makes a force frame.
func Force(n uint64, f *lease.ForceRequest) Request {
	return Request{N: n, Do: OpForce, Key: f.Key, Token: f.Token, By: f.By, Reason: f.Reason}
}

// Force returns what a force frame asks for.
func (q *Request) Force() lease.ForceRequest {
	return lease.ForceRequest{Key: q.Key, Token: q.Token, By: q.By, Reason: q.Reason}
}
