package leaseremote

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/asleep"
	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
)

// broker is a real broker, leaselocal behind tcpserve, that is reached through
// relays which can be told to fail.
type broker struct {
	t    testing.TB
	opts leaselocal.Options

	mu     sync.Mutex // guards what follows
	svc    *leaselocal.Service
	srv    *tcpserve.Server
	away   error // why connections are refused
	relays []*relay
	judge  func(fromBroker bool, line string) verdict
	dials  int
	lend   bool          // callers read; set before anybody connects
	sleep  *asleep.Clock // how long the clients' machine has slept; set before anybody connects

	// lie changes what is said, to see that a checker notices. It is set before
	// anybody connects.
	lie func(fromBroker bool, line string) string
}

// verdict is what a relay does with a line.
type verdict int

const (
	pass     verdict = iota
	drop             // it never arrives
	cutThere         // it never arrives and the connection breaks
	cutAfter         // it arrives and the connection breaks
)

var errDown = errors.New("the broker is down")

// newBroker starts a broker that the test ends.
func newBroker(t testing.TB, o leaselocal.Options) *broker {
	b := &broker{t: t, opts: o}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *broker) start() {
	b.t.Helper()
	svc, err := leaselocal.Open(b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.svc, b.srv, b.away = svc, tcpserve.New(svc, tcpserve.Options{}), nil
}

// stop ends the broker as a signal would: what waits is answered.
func (b *broker) stop() {
	b.mu.Lock()
	svc, srv := b.svc, b.srv
	b.svc, b.srv, b.away = nil, nil, errDown
	b.mu.Unlock()
	if svc == nil {
		return
	}
	svc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	srv.Shutdown(ctx)
	b.cut()
}

// crash ends the broker without a word to anybody. Nobody connects to it once its connections are gone.
func (b *broker) crash() {
	b.refuse(errDown)
	b.cut()
	b.stop()
}

// refuse makes connecting fail until it is called with nil.
func (b *broker) refuse(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away = err
}

// decide sets what relays do with lines. Nil lets all pass.
func (b *broker) decide(fn func(fromBroker bool, line string) verdict) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.judge = fn
}

// once makes the first line that holds all the parts meet a verdict.
func (b *broker) once(v verdict, fromBroker bool, parts ...string) {
	var met sync.Once
	b.decide(func(from bool, line string) verdict {
		got := pass
		if from != fromBroker {
			return got
		}
		for _, p := range parts {
			if !strings.Contains(line, p) {
				return got
			}
		}
		met.Do(func() { got = v })
		return got
	})
}

func (b *broker) verdict(fromBroker bool, line string) verdict {
	b.mu.Lock()
	fn := b.judge
	b.mu.Unlock()
	if fn == nil {
		return pass
	}
	return fn(fromBroker, line)
}

// dial connects in memory.
func (b *broker) dial(context.Context) (net.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dials++
	if b.away != nil {
		return nil, b.away
	}
	client, here := net.Pipe()
	there, server := net.Pipe()
	go b.srv.ServeConn(server)
	b.relays = append(b.relays, newRelay(b, here, there))
	return client, nil
}

// cut breaks all connections, and freeze stops all of them without a word.
func (b *broker) cut() { b.each((*relay).cut) }

func (b *broker) freeze() { b.each((*relay).freeze) }

func (b *broker) each(do func(*relay)) {
	b.mu.Lock()
	relays := b.relays
	b.relays = nil
	b.mu.Unlock()
	for _, r := range relays {
		do(r)
	}
}

// relay passes lines between a client and a broker.
type relay struct {
	b      *broker
	ends   [2]net.Conn
	frozen chan struct{}
	gone   chan struct{}
	once   sync.Once
}

func newRelay(b *broker, client, server net.Conn) *relay {
	r := &relay{b: b, ends: [2]net.Conn{client, server}, frozen: make(chan struct{}), gone: make(chan struct{})}
	go r.pump(client, server, false)
	go r.pump(server, client, true)
	return r
}

func (r *relay) pump(from, to net.Conn, fromBroker bool) {
	defer r.cut()
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		select {
		case <-r.frozen:
			<-r.gone
			return
		default:
		}
		v := r.b.verdict(fromBroker, line)
		if v == cutThere {
			return
		}
		if r.b.lie != nil {
			line = r.b.lie(fromBroker, line)
		}
		if v == drop {
			continue
		}
		if _, err := to.Write([]byte(line)); err != nil || v == cutAfter {
			return
		}
	}
}

func (r *relay) cut() {
	r.once.Do(func() {
		close(r.gone)
		r.ends[0].Close()
		r.ends[1].Close()
	})
}

// freeze stops passing lines; the connections stay open until the client hangs
// up, as when a machine is gone without a word.
func (r *relay) freeze() {
	close(r.frozen)
	r.b.t.Cleanup(r.cut)
}

// connect opens a service on the broker that the test closes.
func (b *broker) connect() *Service {
	b.t.Helper()
	v, err := Dial(context.Background(), "memory", Options{Dial: b.dial, Logger: logger(b.t), lend: b.lend, sleep: b.sleep})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { v.Close() })
	return v
}

// logger shows what is logged with the test.
func logger(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// user is a session and what it was told.
type user struct {
	t testing.TB
	s lease.Session

	mu   sync.Mutex // guards what follows
	told []lease.Notice
}

// open begins a session.
func open(t testing.TB, v lease.Service, o lease.SessionOptions) *user {
	t.Helper()
	u := &user{t: t}
	o.Notify = func(n lease.Notice) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.told = append(u.told, n)
	}
	s, err := v.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	u.s = s
	return u
}

func (u *user) notices() []lease.Notice {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]lease.Notice(nil), u.told...)
}

// result is what a call came to.
type result struct {
	t      testing.TB
	mu     sync.Mutex // guards what follows
	queued []lease.Queued
	leases []lease.Lease
	errs   []error
	done   chan struct{}
}

func newResult(t testing.TB) *result { return &result{t: t, done: make(chan struct{})} }

func (r *result) Queued(q lease.Queued) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queued = append(r.queued, q)
}

func (r *result) Done(l lease.Lease, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases, r.errs = append(r.leases, l), append(r.errs, err)
	if len(r.errs) == 1 {
		close(r.done)
	}
}

// ask starts a request.
func (u *user) ask(req lease.Request) *result {
	r := newResult(u.t)
	u.s.Acquire(req, r)
	return r
}

// do starts a command.
func (u *user) do(c lease.Command) *result {
	r := newResult(u.t)
	u.s.Do(c, r.Done)
	return r
}

// wait returns the outcome. Ten minutes are enough for a queue of users whose
// leases begin anew with each restart of the broker.
func (r *result) wait() (lease.Lease, error) {
	r.t.Helper()
	select {
	case <-r.done:
	case <-time.After(10 * time.Minute):
		r.t.Fatal("no outcome within ten minutes")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) > 1 {
		r.t.Fatalf("answered %d times: %v %v", len(r.errs), r.leases, r.errs)
	}
	return r.leases[0], r.errs[0]
}

// ok returns the lease of a call that must succeed.
func (r *result) ok() lease.Lease {
	r.t.Helper()
	l, err := r.wait()
	if err != nil {
		r.t.Fatalf("failed: %v", err)
	}
	return l
}

// fails checks the code of a call that must fail.
func (r *result) fails(code lease.Code) error {
	r.t.Helper()
	l, err := r.wait()
	if lease.CodeOf(err) != code {
		r.t.Fatalf("got %+v, %v; want %v", l, err, code)
	}
	return err
}

// pending checks that there is no outcome yet. It is for a synctest bubble.
func (r *result) pending() {
	r.t.Helper()
	synctest.Wait()
	select {
	case <-r.done:
		l, err := r.wait()
		r.t.Fatalf("got %+v, %v; want no outcome yet", l, err)
	default:
	}
}

// holders returns the tokens that hold a key, by the broker's own word.
func (b *broker) holders(key string) []lease.Token {
	b.t.Helper()
	b.mu.Lock()
	svc := b.svc
	b.mu.Unlock()
	l, err := svc.List(context.Background(), lease.Query{Key: key})
	if err != nil {
		b.t.Fatal(err)
	}
	var tokens []lease.Token
	for _, k := range l.Keys {
		for _, h := range k.Holders {
			tokens = append(tokens, h.Token)
		}
	}
	return tokens
}

// waiters returns how many wait for a key.
func (b *broker) waiters(key string) int {
	b.t.Helper()
	b.mu.Lock()
	svc := b.svc
	b.mu.Unlock()
	l, err := svc.List(context.Background(), lease.Query{Key: key})
	if err != nil {
		b.t.Fatal(err)
	}
	n := 0
	for _, k := range l.Keys {
		n += len(k.Waiters)
	}
	return n
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, fn)
}

func one(key string) lease.Request { return lease.Request{Keys: []string{key}, ID: "id-" + key} }
