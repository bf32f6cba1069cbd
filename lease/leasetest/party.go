package leasetest

import (
	"errors"
	"sync"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// party is one session and what it was told.
type party struct {
	e *env
	s lease.Session

	mu     sync.Mutex // guards the fields below
	told   []lease.Notice
	toldAt []time.Time
	silent bool // suspended or taken over: answers may never come
	calls  []*call
}

// join opens a session with the service's default grace.
func (e *env) join(name string) *party {
	e.Helper()
	return e.joinAs(lease.SessionOptions{Name: name})
}

func (e *env) joinAs(o lease.SessionOptions) *party {
	e.Helper()
	p, err := e.tryJoin(o)
	if err != nil {
		e.Fatalf("open %+v: %v", o, err)
	}
	return p
}

func (e *env) tryJoin(o lease.SessionOptions) (*party, error) {
	p := &party{e: e}
	o.Notify = p.notify
	s, err := e.svc.Open(e.ctx, o)
	if err != nil {
		return nil, err
	}
	p.s = s
	return p, nil
}

func (p *party) notify(n lease.Notice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, n)
	p.toldAt = append(p.toldAt, time.Now())
}

// notices returns what the session was told so far.
func (p *party) notices() []lease.Notice {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]lease.Notice(nil), p.told...)
}

// lost returns the notices about one hold.
func (p *party) lost(id string) []lease.Notice {
	var out []lease.Notice
	for _, n := range p.notices() {
		if n.ID == id {
			out = append(out, n)
		}
	}
	return out
}

// suspend breaks the connection: answers in flight are not owed any more.
func (p *party) suspend() {
	p.mute()
	p.s.Suspend()
	synctest.Wait()
}

func (p *party) mute() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	for _, c := range p.calls {
		c.mute()
	}
}

// close says goodbye and waits for the answer.
func (p *party) close() {
	p.e.Helper()
	answer := make(chan error, 1)
	p.s.Close(func(err error) { answer <- err })
	if err := <-answer; err != nil {
		p.e.Fatalf("goodbye: %v", err)
	}
	synctest.Wait()
}

// alive keeps a session that has a lease of its own for a while.
func (p *party) alive(d, every time.Duration) {
	p.e.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		p.e.pass(min(every, time.Until(end)))
		p.mustDo(lease.Command{Verb: lease.Ping})
	}
}

// ask starts a request.
func (p *party) ask(r lease.Request) *call {
	c := &call{e: p.e, r: r, start: time.Now()}
	p.e.calls = append(p.e.calls, c)
	p.mu.Lock()
	p.calls = append(p.calls, c)
	p.mu.Unlock()
	p.s.Acquire(r, c)
	synctest.Wait()
	return c
}

// get asks for what must be granted at once.
func (p *party) get(r lease.Request) lease.Lease {
	p.e.Helper()
	return p.ask(r).granted()
}

// hold takes one key exclusively, for ever.
func (p *party) hold(keys ...string) lease.Lease {
	p.e.Helper()
	return p.get(lease.Request{Keys: keys, TTL: lease.Forever})
}

// want asks for keys exclusively, for ever.
func (p *party) want(keys ...string) *call {
	return p.ask(lease.Request{Keys: keys, TTL: lease.Forever})
}

// do runs a command and waits for its answer.
func (p *party) do(c lease.Command) (lease.Lease, error) {
	p.e.Helper()
	type answer struct {
		l   lease.Lease
		err error
	}
	got := make(chan answer, 2)
	p.s.Do(c, func(l lease.Lease, err error) { got <- answer{l, err} })
	synctest.Wait()
	select {
	case a := <-got:
		if len(got) > 0 {
			p.e.Errorf("%v was answered twice", c.Verb)
		}
		return a.l, a.err
	default:
		p.e.Fatalf("%v was not answered", c.Verb)
		return lease.Lease{}, nil
	}
}

func (p *party) mustDo(c lease.Command) lease.Lease {
	p.e.Helper()
	l, err := p.do(c)
	if err != nil {
		p.e.Fatalf("%v %+v: %v", c.Verb, c, err)
	}
	return l
}

func (p *party) release(l lease.Lease) {
	p.e.Helper()
	p.mustDo(lease.Command{Verb: lease.Release, ID: l.ID})
}

// fails runs a command that must fail with a code.
func (p *party) fails(c lease.Command, code lease.Code) {
	p.e.Helper()
	l, err := p.do(c)
	if lease.CodeOf(err) != code {
		p.e.Fatalf("%v %+v: got %+v, %v; want %v", c.Verb, c, l, err, code)
	}
}

// call is one request and what it was told.
type call struct {
	e     *env
	r     lease.Request
	start time.Time

	mu     sync.Mutex // guards the fields below
	queued []lease.Queued
	leases []lease.Lease
	errs   []error
	at     time.Time // of the outcome
	wrong  string
	silent bool
}

// Queued implements lease.Caller.
func (c *call) Queued(q lease.Queued) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queued = append(c.queued, q)
	if len(c.errs) > 0 {
		c.wrong = "queued after the outcome"
	}
}

// Done implements lease.Caller.
func (c *call) Done(l lease.Lease, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leases = append(c.leases, l)
	c.errs = append(c.errs, err)
	c.at = time.Now()
}

func (c *call) mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silent = true
}

// check holds for every request when its service is closed.
func (c *call) check() {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.wrong != "":
		c.e.Errorf("request %+v: %s", c.r, c.wrong)
	case len(c.queued) > 1:
		c.e.Errorf("request %+v was told %d times that it waits", c.r, len(c.queued))
	case len(c.errs) > 1:
		c.e.Errorf("request %+v was answered %d times: %+v %v", c.r, len(c.errs), c.leases, c.errs)
	case len(c.errs) == 0 && !c.silent:
		c.e.Errorf("request %+v was never answered", c.r)
	}
}

// over reports whether the outcome came.
func (c *call) over() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.errs) > 0
}

// granted returns the lease of a request that must have been granted by now.
func (c *call) granted() lease.Lease {
	c.e.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) == 0 {
		c.e.Fatalf("request %+v waits, want a grant", c.r)
	}
	if c.errs[0] != nil {
		c.e.Fatalf("request %+v: %v, want a grant", c.r, c.errs[0])
	}
	return c.leases[0]
}

// waits returns what a request was told that must be waiting now.
func (c *call) waits() lease.Queued {
	c.e.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) > 0 {
		c.e.Fatalf("request %+v: %+v, %v; want it to wait", c.r, c.leases[0], c.errs[0])
	}
	if len(c.queued) == 0 {
		c.e.Fatalf("request %+v waits and was not told so", c.r)
	}
	return c.queued[0]
}

// failed returns the error of a request that must have failed with one of codes.
func (c *call) failed(codes ...lease.Code) *lease.Error {
	c.e.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.errs) == 0 {
		c.e.Fatalf("request %+v waits, want it to fail with %v", c.r, codes)
	}
	err := c.errs[0]
	for _, code := range codes {
		if lease.CodeOf(err) != code {
			continue
		}
		var full *lease.Error
		if !errors.As(err, &full) {
			c.e.Fatalf("request %+v: %v is not a *lease.Error", c.r, err)
		}
		return full
	}
	c.e.Fatalf("request %+v: got %+v, %v; want %v", c.r, c.leases[0], err, codes)
	return nil
}

// after returns how long a request took.
func (c *call) after() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Sub(c.start)
}

// about fails unless something happened when it was due: never before, and not
// much later.
func (e *env) about(what string, got, want time.Duration) {
	e.Helper()
	if got < want || got > want+slack {
		e.Fatalf("%s after %v, want %v to %v", what, got, want, want+slack)
	}
}

func exclusive(keys ...string) lease.Request { return lease.Request{Keys: keys} }

func shared(keys ...string) lease.Request {
	return lease.Request{Keys: keys, Mode: lease.Shared}
}

func counted(limit int, keys ...string) lease.Request {
	return lease.Request{Keys: keys, Mode: lease.Counted, Limit: limit}
}

// try makes a request answer busy instead of waiting.
func try(r lease.Request) lease.Request {
	r.Try = true
	return r
}

// named gives a request an id.
func named(id string, r lease.Request) lease.Request {
	r.ID = id
	return r
}

// lasting gives a request a ttl.
func lasting(ttl time.Duration, r lease.Request) lease.Request {
	r.TTL = ttl
	return r
}
