package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/internal/tcpserve"
	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leaseremote"
)

// site is a durable broker, its connections in memory, and what goes wrong there.
type site struct {
	t   *testing.T
	dir string
	lie *lie // nil for an honest broker

	mu     sync.Mutex // guards the fields below
	svc    *leaselocal.Service
	srv    *tcpserve.Server
	cables []*cable
}

func (s *site) start() {
	o := leaselocal.Options{Dir: s.dir, Fsync: leaselocal.Never}
	if s.lie != nil && s.lie.forget {
		o.Dir = ""
	}
	svc, err := leaselocal.Open(o)
	if err != nil {
		s.t.Error(err)
		return
	}
	var front lease.Service = svc
	if s.lie != nil {
		front = &liar{svc, s.lie}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.svc, s.srv = svc, tcpserve.New(front, tcpserve.Options{})
}

// lie is a defect of the broker, to see that the test notices.
type lie struct {
	forget bool // what was granted is gone with a restart
	share  bool // exclusive holds are shared
	token  bool // tokens repeat
	silent bool // holds are forced and nobody is told
}

type liar struct {
	lease.Service
	lie *lie
}

func (l *liar) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	if l.lie.silent {
		o.Notify = nil
	}
	s, err := l.Service.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &liarSession{s, l.lie}, nil
}

type liarSession struct {
	lease.Session
	lie *lie
}

func (s *liarSession) Acquire(r lease.Request, c lease.Caller) {
	if s.lie.share {
		r.Mode = lease.Shared
	}
	s.Session.Acquire(r, liarCaller{c, s.lie})
}

type liarCaller struct {
	lease.Caller
	lie *lie
}

func (c liarCaller) Done(l lease.Lease, err error) {
	if c.lie.token {
		for i := range l.Holds {
			l.Holds[i].Token = 7
		}
	}
	c.Caller.Done(l, err)
}

func (s *site) stop() {
	s.mu.Lock()
	svc, srv := s.svc, s.srv
	s.svc, s.srv = nil, nil
	s.mu.Unlock()
	if err := svc.Close(); err != nil {
		s.t.Error(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	srv.Shutdown(ctx)
}

func (s *site) dial(context.Context) (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.srv == nil {
		return nil, errors.New("the broker is down")
	}
	here, there := net.Pipe()
	go s.srv.ServeConn(there)
	c := &cable{Conn: here, frozen: make(chan struct{}), closed: make(chan struct{})}
	s.cables = append(s.cables, c)
	return c, nil
}

// trouble does one bad thing.
func (s *site) trouble(rng *rand.Rand) {
	s.mu.Lock()
	var c *cable
	if len(s.cables) > 0 {
		i := rng.IntN(len(s.cables))
		c = s.cables[i]
		s.cables = append(s.cables[:i], s.cables[i+1:]...)
	}
	s.mu.Unlock()
	if s.lie != nil && s.lie.silent {
		_, _ = s.svc.Force(s.t.Context(), lease.ForceRequest{Key: "k"})
	}
	switch n := rng.IntN(10); {
	case n == 0:
		s.stop()
		time.Sleep(time.Duration(rng.IntN(800)) * time.Millisecond)
		s.start()
	case c == nil:
	case n < 6:
		c.Close()
	default:
		c.freeze()
	}
}

// cable is a connection that can be frozen: nothing arrives any more, and nobody
// is told.
type cable struct {
	net.Conn
	once, end sync.Once
	frozen    chan struct{}
	closed    chan struct{}
}

func (c *cable) freeze() { c.once.Do(func() { close(c.frozen) }) }

func (c *cable) Close() error {
	c.end.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *cable) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.frozen:
		<-c.closed
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (c *cable) Write(p []byte) (int, error) {
	select {
	case <-c.frozen:
		return len(p), nil
	default:
		return c.Conn.Write(p)
	}
}

// believers are the holds whose holders are at work. No two of them may believe
// to hold at the same time, by their own word.
type believers struct {
	mu      sync.Mutex // guards the fields below
	at      map[*lease.Held]string
	highest lease.Token
	terms   int
	lost    int
	wrong   error
}

func (b *believers) enter(who string, h *lease.Held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at[h] = who
	b.terms++
	if h.Err() == nil && h.Token() <= b.highest && b.wrong == nil {
		b.wrong = fmt.Errorf("%s entered with token %d after %d", who, h.Token(), b.highest)
	}
	b.highest = max(b.highest, h.Token())
	b.lookLocked()
}

func (b *believers) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lookLocked()
}

func (b *believers) lookLocked() {
	var first *lease.Held
	for h := range b.at {
		if h.Err() != nil {
			continue
		}
		if first != nil && b.wrong == nil {
			b.wrong = fmt.Errorf("%s with token %d and %s with token %d both hold", b.at[first], first.Token(), b.at[h], h.Token())
		}
		first = h
	}
}

func (b *believers) leave(h *lease.Held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.Err() != nil {
		b.lost++
	}
	delete(b.at, h)
}

// Holders behind cut and frozen connections and a restarting broker never overlap
// by their own word, and everybody gets on.
func TestHoldersNeverOverlap(t *testing.T) {
	seeds := 3
	if os.Getenv("LATCHKEY_SOAK") != "" {
		seeds = 500
	}
	base := rand.Uint64N(1 << 40)
	for i := range seeds {
		seed := base + uint64(i)
		var err error
		synctest.Test(t, func(t *testing.T) { err = overlap(t, seed, nil) })
		if err != nil || t.Failed() {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// The test above notices brokers that break their word.
func TestOverlapsAreNoticed(t *testing.T) {
	for name, l := range map[string]*lie{
		"forgets": {forget: true}, "shares": {share: true}, "repeats tokens": {token: true}, "forces in silence": {silent: true},
	} {
		t.Run(name, func(t *testing.T) {
			var err error
			for seed := uint64(0); seed < 10 && err == nil; seed++ {
				synctest.Test(t, func(t *testing.T) { err = overlap(t, seed, l) })
			}
			if err == nil {
				t.Fatal("nothing was noticed")
			}
			t.Log(err)
		})
	}
}

// overlap drives holders and trouble for a minute of a synctest bubble's time, and
// returns whose words contradicted one another.
func overlap(t *testing.T, seed uint64, l *lie) error {
	s := &site{t: t, dir: t.TempDir(), lie: l}
	s.start()
	b := &believers{at: make(map[*lease.Held]string)}
	ctx, over := context.WithCancel(t.Context())
	var workers, chaos sync.WaitGroup
	for i := range 5 {
		workers.Go(func() { work(ctx, t, s, b, fmt.Sprint("worker ", i), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	calm, stop := context.WithCancel(t.Context())
	chaos.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 99))
		for calm.Err() == nil {
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			s.trouble(rng)
		}
	})
	for range 6000 { // 30 s
		time.Sleep(5 * time.Millisecond)
		b.look()
	}
	stop()
	chaos.Wait()
	before := b.count()
	time.Sleep(30 * time.Second)
	if after := b.count(); after < before+10 {
		t.Errorf("%d terms in half a minute without trouble", after-before)
	}
	over()
	workers.Wait()
	defer s.stop()
	if l != nil {
		return b.wrong
	}
	time.Sleep(5 * time.Second) // what was cut off while it said goodbye ends with its grace
	if l, err := s.svc.List(t.Context(), lease.Query{}); err != nil || len(l.Keys) != 0 {
		t.Errorf("left behind: %+v %v", l.Keys, err)
	}
	t.Logf("seed %d: %d terms, %d lost", seed, b.terms, b.lost)
	return b.wrong
}

func (b *believers) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.terms
}

// work takes turns on one key until ctx ends. It runs inside a synctest bubble.
func work(ctx context.Context, t *testing.T, s *site, b *believers, who string, rng *rand.Rand) {
	svc, err := leaseremote.Dial(ctx, "memory", leaseremote.Options{Dial: s.dial})
	for ; err != nil; svc, err = leaseremote.Dial(ctx, "memory", leaseremote.Options{Dial: s.dial}) {
		time.Sleep(100 * time.Millisecond)
	}
	defer svc.Close()
	var c *lease.Client
	for c == nil {
		o := lease.ClientOptions{SessionOptions: lease.SessionOptions{Name: who, Grace: 900 * time.Millisecond}}
		if c, err = lease.Connect(ctx, svc, o); err != nil {
			time.Sleep(100 * time.Millisecond)
		}
	}
	for ctx.Err() == nil {
		_ = c.Do(ctx, lease.Request{Keys: []string{"k"}, TTL: time.Second}, func(ctx context.Context, h *lease.Held) error {
			b.enter(who, h)
			defer b.leave(h)
			select {
			case <-time.After(time.Duration(rng.IntN(1500)) * time.Millisecond):
			case <-ctx.Done():
				// A holder that is slow to stop: it knows that it lost.
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			}
			return nil
		})
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
	}
	end, stop := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer stop()
	if err := c.Close(end); err != nil && !errors.Is(err, lease.ErrUnknown) {
		t.Errorf("%s: close: %v", who, err)
	}
}
