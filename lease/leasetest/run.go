package leasetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// Harness is a service under test, and what can be done to it from outside.
type Harness struct {
	// Service is new and empty. The suite closes it.
	Service lease.Service

	// Restart, after the suite closed the service, opens it again on the same
	// data. Nil skips what only a durable service promises.
	Restart func(t *testing.T) lease.Service
}

// slack is how late the service may be with what is due: the grain of its timers.
const slack = 20 * time.Millisecond

type test struct {
	name string
	fn   func(e *env)
}

type group struct {
	name  string
	tests []test
}

func suite() []group {
	return []group{
		{"modes", modes()},
		{"queue", queue()},
		{"many", many()},
		{"outcomes", outcomes()},
		{"tokens", tokens()},
		{"ids", ids()},
		{"ttl", ttls()},
		{"session", sessions()},
		{"loss", losses()},
		{"lockdelay", lockDelays()},
		{"force", forces()},
		{"deadlock", deadlocks()},
		{"sight", sights()},
		{"watch", watches()},
		{"limits", limits()},
		{"goodbye", goodbyes()},
		{"restart", restarts()},
		{"client", clients()},
		{"settled", settling()},
	}
}

// Run checks that services made by open keep the contract. Each test opens its
// own, inside a synctest bubble.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, g := range suite() {
		t.Run(g.name, func(t *testing.T) {
			for _, tt := range g.tests {
				t.Run(tt.name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						h := open(t)
						e := &env{T: t, harness: h, svc: h.Service, ctx: t.Context()}
						defer e.finish()
						tt.fn(e)
					})
				})
			}
		})
	}
}

// env is one test with its service. Only the goroutine of the test uses it.
type env struct {
	*testing.T
	harness Harness
	svc     lease.Service
	ctx     context.Context
	calls   []*call
}

// finish closes the service and checks what holds for every request of every
// test: one answer, and nothing after it.
func (e *env) finish() {
	if p := recover(); p != nil {
		panic(p) // a service that panicked may not be able to close
	}
	if err := e.svc.Close(); err != nil && !e.Failed() {
		e.Errorf("close: %v", err)
	}
	synctest.Wait()
	for _, c := range e.calls {
		c.check()
	}
}

// restart closes the service and opens it again on the same data.
func (e *env) restart() {
	e.Helper()
	if e.harness.Restart == nil {
		e.Skip("the service under test keeps nothing across a restart")
	}
	if err := e.svc.Close(); err != nil {
		e.Fatalf("close: %v", err)
	}
	synctest.Wait()
	e.svc = e.harness.Restart(e.T)
}

// needRestart skips a test before it does anything.
func (e *env) needRestart() {
	e.Helper()
	if e.harness.Restart == nil {
		e.Skip("the service under test keeps nothing across a restart")
	}
}

// pass lets time go by, and everything that is due then happen.
func (e *env) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// list returns the state of the selected keys.
func (e *env) list(q lease.Query) lease.Listing {
	e.Helper()
	l, err := e.svc.List(e.ctx, q)
	if err != nil {
		e.Fatalf("list %+v: %v", q, err)
	}
	return l
}

// show returns the state of one key; the zero KeyInfo when the service knows
// nothing of it.
func (e *env) show(key string) lease.KeyInfo {
	e.Helper()
	l := e.list(lease.Query{Key: key})
	switch {
	case len(l.Keys) == 0:
		return lease.KeyInfo{Key: key}
	case len(l.Keys) > 1 || l.Keys[0].Key != key:
		e.Fatalf("list of key %q returned %+v", key, l.Keys)
	}
	return l.Keys[0]
}

// empty fails unless the service knows no key: nothing is held, nobody waits.
func (e *env) empty() {
	e.Helper()
	if l := e.list(lease.Query{}); len(l.Keys) != 0 {
		e.Fatalf("keys are left behind: %+v", l.Keys)
	}
}

func (e *env) stats() lease.Stats {
	e.Helper()
	s, err := e.svc.Stats(e.ctx)
	if err != nil {
		e.Fatalf("stats: %v", err)
	}
	return s
}

func (e *env) force(f lease.ForceRequest) lease.Forced {
	e.Helper()
	got, err := e.svc.Force(e.ctx, f)
	if err != nil {
		e.Fatalf("force %+v: %v", f, err)
	}
	synctest.Wait()
	return got
}
