package leasetest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
	"github.com/latchkey-go/latchkey/lease/leaselocal"
	"github.com/latchkey-go/latchkey/lease/leasetest"
)

// A suite counts only when it is seen to fail. Here it judges services with one
// planted defect each, in a process of its own, and must fail the tests that are
// there for it.

// defect is one way to break the contract: every hook is optional.
type defect struct {
	name   string
	caught []string // the tests that must fail, as group/Name

	request func(b *broken, r lease.Request) lease.Request
	done    func(b *broken, c lease.Caller, l lease.Lease, err error)
	acquire func(s *brokenSession, r lease.Request, c lease.Caller) bool // true: dealt with
	command func(s *brokenSession, c lease.Command, done func(lease.Lease, error)) bool
	suspend func(s *brokenSession)
	notice  func(n lease.Notice) bool // false: swallowed
	event   func(b *broken, e lease.Event) bool
	list    func(b *broken, l *lease.Listing)
	force   func(f *lease.Forced)
	restart bool // comes back with nothing
}

// defects are run by the suite, and so inside a synctest bubble.
func defects() []defect {
	return []defect{
		{name: "one token for all", caught: []string{"tokens/RisePerKey", "tokens/AcrossKeys", "many/SortedHolds", "client/DoTakesTurns"},
			done: func(_ *broken, c lease.Caller, l lease.Lease, err error) {
				l.Holds = slices.Clone(l.Holds)
				for i := range l.Holds {
					l.Holds[i].Token = 7
				}
				c.Done(l, err)
			}},
		{name: "ignores cancel", caught: []string{"outcomes/CancelWhileWaiting", "outcomes/CancelAfterGrant", "client/CancelledAcquireLeavesNothing"},
			command: func(_ *brokenSession, c lease.Command, done func(lease.Lease, error)) bool {
				if c.Verb != lease.Cancel {
					return false
				}
				done(lease.Lease{}, nil)
				return true
			}},
		{name: "never notifies", caught: []string{"loss/Expired", "loss/Forced", "many/ForceOneLeavesOthers", "client/HeldEndsWithForce"},
			notice: func(lease.Notice) bool { return false }},
		{name: "polls instead of queueing", caught: []string{"queue/FirstComeFirstServed", "queue/ReaderBehindWaitingWriter", "many/CrossedSetsFinish"},
			acquire: pollInstead},
		{name: "ends early", caught: []string{"ttl/NeverBefore", "ttl/Default", "ttl/RenewStartsAnew"},
			request: func(_ *broken, r lease.Request) lease.Request {
				if r.TTL != lease.Forever {
					r.TTL = max(lease.MinTTL, (r.TTL+lease.DefaultTTL*b2i(r.TTL == 0))*9/10)
				}
				return r
			}},
		{name: "ends late", caught: []string{"ttl/NeverBefore", "ttl/ManyDueAtOnce", "loss/Expired"},
			request: func(_ *broken, r lease.Request) lease.Request {
				if r.TTL > 0 && r.TTL != lease.Forever {
					r.TTL += time.Second
				}
				return r
			}},
		{name: "answers twice", caught: []string{"modes/ExclusiveExcludes", "queue/FirstComeFirstServed"},
			done: func(_ *broken, c lease.Caller, l lease.Lease, err error) {
				c.Done(l, err)
				c.Done(l, err)
			}},
		{name: "leaves waiters without an answer", caught: []string{"goodbye/AnswersWaiters", "session/GoodbyeEndsAtOnce"},
			done: func(_ *broken, c lease.Caller, l lease.Lease, err error) {
				if lease.CodeOf(err) != lease.ErrClosed {
					c.Done(l, err)
				}
			}},
		{name: "takes anything", caught: []string{"limits/BadRequests"},
			request: func(_ *broken, r lease.Request) lease.Request {
				if r.Normalize() != nil {
					return lease.Request{Keys: []string{"something"}}
				}
				return r
			}},
		{name: "does not look for deadlocks", caught: []string{"deadlock/TwoParties", "deadlock/Itself", "deadlock/ThroughTheQueue", "client/NestedDoIsADeadlock"},
			request: func(_ *broken, r lease.Request) lease.Request {
				r.Declared = nil
				return r
			}},
		{name: "suspects everybody", caught: []string{"deadlock/UndeclaredIsInnocent", "deadlock/ManyGoroutines"},
			acquire: suspectAll},
		{name: "releases by key", caught: []string{"tokens/StaleRelease", "ids/TokenOnlyFromItsSession"},
			command: func(s *brokenSession, c lease.Command, done func(lease.Lease, error)) bool {
				if c.Verb != lease.Release {
					return false
				}
				s.Session.Do(c, func(l lease.Lease, err error) {
					if err != nil {
						go s.b.Service.Force(context.Background(), lease.ForceRequest{Key: "k"})
					}
					done(l, nil)
				})
				return true
			}},
		{name: "keeps the dead", caught: []string{"session/EndsAfterItsGrace", "session/NoGraceEndsWithItsConnection", "queue/BrokenSessionIsPassedOver"},
			suspend: func(s *brokenSession) {
				go func() { // somebody pings in its name
					for range 100 {
						s.Session.Do(lease.Command{Verb: lease.Ping}, nil)
						time.Sleep(100 * time.Millisecond)
					}
				}()
			}},
		{name: "shares what is exclusive", caught: []string{"modes/ExclusiveExcludes", "modes/AgainstTheRule", "client/DoTakesTurns"},
			request: func(_ *broken, r lease.Request) lease.Request {
				if r.Mode == lease.Exclusive {
					r.Mode = lease.Shared
				}
				return r
			}},
		{name: "takes the first key only", caught: []string{"many/AllOrNone", "many/SixtyFour"},
			request: func(_ *broken, r lease.Request) lease.Request {
				if r.Normalize() == nil {
					r.Keys = r.Keys[:1]
				}
				return r
			}},
		{name: "drops events", caught: []string{"watch/EveryKind", "watch/InOrder"},
			event: func(b *broken, e lease.Event) bool {
				b.n++
				return b.n%3 != 0
			}},
		{name: "shows ids", caught: []string{"ids/NeverShown"},
			list: func(b *broken, l *lease.Listing) {
				for i := range l.Keys {
					for j := range l.Keys[i].Holders {
						l.Keys[i].Holders[j].Label = strings.Join(b.ids, " ")
					}
				}
			}},
		{name: "forces without a fence", caught: []string{"tokens/ForceFences", "force/ByToken"},
			force: func(f *lease.Forced) { f.Token = f.Holds[0].Token }},
		{name: "does not detach", caught: []string{"session/DetachedOutlivesGoodbye", "session/DetachOnRequest"},
			request: func(_ *broken, r lease.Request) lease.Request {
				r.Detach = false
				return r
			},
			command: func(s *brokenSession, c lease.Command, done func(lease.Lease, error)) bool {
				if c.Verb != lease.Detach {
					return false
				}
				s.Session.Do(lease.Command{Verb: lease.Renew, ID: c.ID, Token: c.Token}, func(l lease.Lease, err error) {
					l.Detached = true
					done(l, err)
				})
				return true
			}},
		{name: "has no lock-delay", caught: []string{"lockdelay/AfterExpiry", "lockdelay/AfterForce"},
			request: func(_ *broken, r lease.Request) lease.Request {
				r.LockDelay = 0
				return r
			}},
		{name: "gives repeats a second hold", caught: []string{"ids/RepeatJoinsTheWaiter", "ids/RepeatGetsTheSameGrant", "ids/RepeatAfterTheEnd"},
			request: func(b *broken, r lease.Request) lease.Request {
				if slices.Contains(b.ids, r.ID) {
					r.ID, r.Mode = "", lease.Shared
				}
				return r
			}},
		{name: "forgets at a restart", caught: []string{"restart/HoldsAsTheyWere", "restart/TokensRise", "restart/SessionResumes"},
			restart: true},
	}
}

func b2i(b bool) time.Duration {
	if b {
		return 1
	}
	return 0
}

// pollInstead asks again and again instead of waiting in line.
func pollInstead(s *brokenSession, r lease.Request, c lease.Caller) bool {
	if r.Try || r.Normalize() != nil {
		return false
	}
	r.Try, r.Wait, r.ID = true, 0, ""
	told := false
	var ask func()
	ask = func() {
		s.Session.Acquire(r, each{
			queued: c.Queued,
			done: func(l lease.Lease, err error) {
				if lease.CodeOf(err) != lease.ErrBusy {
					c.Done(l, err)
					return
				}
				if !told {
					told = true
					c.Queued(lease.Queued{ID: r.ID, Key: r.Keys[0]})
				}
				s.b.mu.Lock()
				s.b.n++
				// Later ones ask more often, as those that have backed off least.
				d := max(time.Second/time.Duration(s.b.n), time.Millisecond)
				s.b.mu.Unlock()
				time.AfterFunc(d, ask)
			}})
	}
	ask()
	return true
}

// suspectAll takes every hold of a session for one that its requests wait with.
func suspectAll(s *brokenSession, r lease.Request, c lease.Caller) bool {
	s.b.mu.Lock()
	held := slices.Clone(s.held)
	s.b.mu.Unlock()
	if len(held) <= lease.MaxDeclared {
		r.Declared = held
	}
	s.Session.Acquire(r, each{queued: c.Queued, done: func(l lease.Lease, err error) {
		if err == nil {
			s.b.mu.Lock()
			s.held = append(s.held, l.ID)
			s.b.mu.Unlock()
		}
		c.Done(l, err)
	}})
	return true
}

// each is a Caller of two functions.
type each struct {
	queued func(lease.Queued)
	done   func(lease.Lease, error)
}

func (e each) Queued(q lease.Queued)         { e.queued(q) }
func (e each) Done(l lease.Lease, err error) { e.done(l, err) }

// broken is a real service with a defect in front.
type broken struct {
	lease.Service
	d defect

	mu  sync.Mutex // guards the fields below
	ids []string   // request ids seen
	n   int
}

func (b *broken) Open(ctx context.Context, o lease.SessionOptions) (lease.Session, error) {
	if notify := o.Notify; notify != nil && b.d.notice != nil {
		o.Notify = func(n lease.Notice) {
			if b.d.notice(n) {
				notify(n)
			}
		}
	}
	s, err := b.Service.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &brokenSession{Session: s, b: b}, nil
}

func (b *broken) List(ctx context.Context, q lease.Query) (lease.Listing, error) {
	l, err := b.Service.List(ctx, q)
	if b.d.list != nil {
		b.d.list(b, &l)
	}
	return l, err
}

func (b *broken) Watch(ctx context.Context, q lease.Query, fn func(lease.Event)) (func(), error) {
	return b.Service.Watch(ctx, q, func(e lease.Event) {
		if b.d.event == nil || b.d.event(b, e) {
			fn(e)
		}
	})
}

func (b *broken) Force(ctx context.Context, f lease.ForceRequest) (lease.Forced, error) {
	got, err := b.Service.Force(ctx, f)
	if b.d.force != nil && err == nil {
		b.d.force(&got)
	}
	return got, err
}

type brokenSession struct {
	lease.Session
	b    *broken
	held []string // guarded by b.mu
}

func (s *brokenSession) Acquire(r lease.Request, c lease.Caller) {
	d := s.b.d
	s.b.mu.Lock()
	if d.request != nil {
		r = d.request(s.b, r)
	}
	if r.ID != "" {
		s.b.ids = append(s.b.ids, r.ID)
	}
	s.b.mu.Unlock()
	if d.acquire != nil && d.acquire(s, r, c) {
		return
	}
	if done := d.done; done != nil {
		inner := c
		c = each{inner.Queued, func(l lease.Lease, err error) { done(s.b, inner, l, err) }}
	}
	s.Session.Acquire(r, c)
}

func (s *brokenSession) Do(c lease.Command, done func(lease.Lease, error)) {
	if s.b.d.command != nil && s.b.d.command(s, c, done) {
		return
	}
	s.Session.Do(c, done)
}

func (s *brokenSession) Suspend() {
	if s.b.d.suspend != nil {
		s.b.d.suspend(s)
		return
	}
	s.Session.Suspend()
}

// defectEnv names the defect that the child process is to judge.
const defectEnv = "LATCHKEY_LEASETEST_DEFECT"

// TestBrokenService is the child's part: the suite on a broken service.
func TestBrokenService(t *testing.T) {
	all := append(defects(), defect{name: control})
	i := slices.IndexFunc(all, func(d defect) bool { return d.name == os.Getenv(defectEnv) })
	if i < 0 {
		t.Skip("only for the processes that TestSuiteSeesDefects starts")
	}
	d := all[i]
	leasetest.Run(t, func(t *testing.T) leasetest.Harness {
		dir := t.TempDir()
		open := func(t *testing.T) lease.Service {
			s, err := leaselocal.Open(leaselocal.Options{Dir: dir, Fsync: leaselocal.Never})
			if err != nil {
				t.Fatal(err)
			}
			if d.restart {
				dir = t.TempDir()
			}
			return &broken{Service: s, d: d}
		}
		return leasetest.Harness{Service: open(t), Restart: open}
	})
}

// control names the absence of a defect.
const control = "none"

// Each defect makes each of its tests fail. Each test is judged in a process of
// its own, because a broken service may take its process with it.
func TestSuiteSeesDefects(t *testing.T) {
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			for _, name := range d.caught {
				group, test, _ := strings.Cut(name, "/")
				out := child(t, d.name, "^TestBrokenService$/^"+group+"$/^"+test+"$")
				if !strings.Contains(out, "--- FAIL: TestBrokenService/"+name+" ") {
					t.Errorf("%s did not fail:\n%s", name, out)
				}
			}
		})
	}
}

// The same service without a defect passes all of it.
func TestSuitePassesWithoutDefect(t *testing.T) {
	out := child(t, control, "^TestBrokenService$")
	if strings.Contains(out, "--- FAIL") || !strings.Contains(out, "--- PASS: TestBrokenService/client/CloseReleases") {
		t.Errorf("the service without a defect failed:\n%s", out)
	}
}

func child(t *testing.T, defect, run string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+run, "-test.v", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), defectEnv+"="+defect)
	out, _ := cmd.CombinedOutput() // a failure is what is wanted
	return string(out)
}
