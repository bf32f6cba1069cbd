package hotcachetest

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

// A Subject is a node under test.
type Subject struct {
	// Open returns an empty node with these rules, twice: the second is what another process has of it. A node that is
	// for one process is returned twice. What Open starts ends by t.Cleanup.
	Open func(t *testing.T, rules hotcache.Rules) (first, second hotcache.Node)
	// Bubble runs every test in a bubble of testing/synctest, for nodes that live by package time alone. Others run at
	// the same time as one another.
	Bubble bool
}

// A test is one promise of the contract.
type test struct {
	name  string
	rules hotcache.Rules // where they matter; of zero ones those that never end
	fn    func(e *env)
}

type group struct {
	name  string
	tests []test
}

func suite() []group {
	return []group{
		{"asks", asks()},
		{"leases", leases()},
		{"failures", failures()},
		{"fills", fills()},
		{"invalidations", invalidations()},
		{"floors", floors()},
		{"members", members()},
		{"feeds", feeds()},
		{"copies", copies()},
		{"context", contexts()},
		{"model", models()},
		{"histories", histories()},
	}
}

// Run checks that nodes made by s.Open keep the contract. Each test opens its own.
func Run(t *testing.T, s Subject) {
	for _, g := range suite() {
		t.Run(g.name, func(t *testing.T) {
			for _, tt := range g.tests {
				t.Run(tt.name, func(t *testing.T) {
					if !s.Bubble {
						t.Parallel()
						one(t, s, tt)
						return
					}
					synctest.Test(t, func(t *testing.T) { one(t, s, tt) })
				})
			}
		})
	}
}

func one(t *testing.T, s Subject, tt test) {
	rules := tt.rules
	if rules.LeaseTTL == 0 {
		rules.LeaseTTL = long
	}
	if rules.FloorTTL == 0 {
		rules.FloorTTL = long
	}
	e := &env{T: t, subject: s, ctx: t.Context(), rules: rules}
	e.first, e.second = s.Open(t, rules)
	e.w = e.follow(e.first, "first")
	e.other = e.follow(e.second, "second")
	defer e.finish()
	tt.fn(e)
}

// Times: one that passes while a test waits, one that does not, however slow the machine, and one in which a test is
// done if the machine is not very slow.
const (
	short = 20 * time.Millisecond
	long  = time.Hour
	while = 1500 * time.Millisecond
)

// fine are times that do not pass.
func fine() hotcache.Times { return hotcache.Times{Soft: long, Hard: 2 * long, Keep: 3 * long} }

// env is one test with its node. Only the goroutine of the test uses it, but for the nodes.
type env struct {
	*testing.T
	subject       Subject
	ctx           context.Context
	rules         hotcache.Rules
	first, second hotcache.Node
	w, other      *witness // at the first and at the second
	all           []*witness
	tokens        hotcache.Token
}

// finish closes all subscriptions and asks the witnesses.
func (e *env) finish() {
	if p := recover(); p != nil {
		panic(p) // a node that panicked may hold a lock for ever
	}
	for _, w := range e.all {
		w.close()
	}
	for _, w := range e.all {
		for _, p := range w.problems() {
			e.Errorf("witness %s: %s", w.as, p)
		}
	}
}

// until waits for a condition. Only a node that breaks its word makes it wait in vain.
func (e *env) until(what string, cond func() bool) {
	e.Helper()
	for begin := time.Now(); !cond(); {
		if time.Since(begin) > 20*time.Second {
			e.Fatalf("waited in vain until %s", what)
		}
		time.Sleep(time.Millisecond) // between two looks; what counts is the condition
	}
}

// token returns one that was not used before.
func (e *env) token() hotcache.Token {
	e.tokens++
	return e.tokens
}

// ask asks the first node.
func (e *env) ask(key string, min hotcache.Version, token hotcache.Token) hotcache.Answer {
	e.Helper()
	return e.askOf(e.first, key, min, token)
}

func (e *env) askOf(n hotcache.Node, key string, min hotcache.Version, token hotcache.Token) hotcache.Answer {
	e.Helper()
	a, err := n.Ask(e.ctx, hotcache.Ask{Key: key, Min: min, Token: token})
	if err != nil {
		e.Fatalf("ask for %q: %v", key, err)
	}
	if p := sane(a, token); p != "" {
		e.Fatalf("the answer for %q, %+v, %s", key, a, p)
	}
	return a
}

// sane says what is wrong with an answer by itself.
func sane(a hotcache.Answer, token hotcache.Token) string {
	granted := a.Token != 0
	switch {
	case a.State < core.Hit || a.State > core.Miss:
		return "has a state that there is not"
	case a.State == core.Hit && (a.Item == nil || a.Times.Hard <= 0):
		return "is a hit without an item that is good"
	case a.State != core.Hit && a.Item != nil && a.Times.Hard > 0:
		return "has a good item, and is no hit"
	case a.Item != nil && a.Times.Keep <= 0:
		return "has an item that should be gone"
	case granted && a.Token != token, a.State == core.Lease && !granted, granted && a.State != core.Lease && a.State != core.Hit:
		return "grants a lease that was not asked for, or none"
	case !granted && (a.Min != 0 || a.Floor != 0):
		return "says what to load to somebody who is not to"
	case (a.State == core.Busy || a.State == core.Failed) != (a.Retry > 0):
		return "does not say when to come again, or does so for nothing"
	case a.Stamp.Generation == 0:
		return "has no stamp"
	}
	return ""
}

// state asks with a lease in mind, and checks what state the answer is.
func (e *env) state(key string, want core.State) hotcache.Answer {
	e.Helper()
	a := e.ask(key, 0, e.token())
	e.is(a, want)
	return a
}

func (e *env) is(a hotcache.Answer, want core.State) {
	e.Helper()
	if a.State != want {
		e.Fatalf("the answer is %+v, want state %d", a, want)
	}
}

// lease asks for a lease and must get it.
func (e *env) lease(key string) hotcache.Answer {
	e.Helper()
	return e.state(key, core.Lease)
}

func (e *env) fill(key string, t hotcache.Token, item hotcache.Item, times hotcache.Times) hotcache.Filled {
	e.Helper()
	r, err := e.first.Fill(e.ctx, hotcache.Fill{Key: key, Token: t, Item: item, Times: times})
	if err != nil {
		e.Fatalf("fill %q: %v", key, err)
	}
	return r
}

// put stores an item, by a lease.
func (e *env) put(key string, item hotcache.Item, times hotcache.Times) {
	e.Helper()
	if r := e.fill(key, e.ask(key, hotcache.Fresh, e.token()).Token, item, times); r.Refusal != core.Stored {
		e.Fatalf("%q was not stored: %+v", key, r)
	}
}

func (e *env) invalidate(key string, v hotcache.Version) hotcache.Invalidation {
	e.Helper()
	inv, _ := e.invalidateBy(key, v, "")
	return inv
}

func (e *env) invalidateBy(key string, v hotcache.Version, by hotcache.Member) (hotcache.Invalidation, []hotcache.Member) {
	e.Helper()
	inv, members, err := e.first.Invalidate(e.ctx, key, v, by)
	if err != nil {
		e.Fatalf("invalidate %q: %v", key, err)
	}
	return inv, members
}

func (e *env) fail(key string, t hotcache.Token, why string, pause time.Duration) {
	e.Helper()
	if err := e.first.Fail(e.ctx, key, t, why, pause); err != nil {
		e.Fatalf("fail %q: %v", key, err)
	}
}

func (e *env) renew(key string, t hotcache.Token) bool {
	e.Helper()
	held, err := e.second.Renew(e.ctx, key, t)
	if err != nil {
		e.Fatalf("renew %q: %v", key, err)
	}
	return held
}

// settle waits until the node is no young one any more, from which on it does not ask for everything fresh.
func (e *env) settle() (since time.Time) {
	e.Helper()
	e.until("loads need not be fresh any more", func() bool {
		a := e.lease("settle")
		e.fail("settle", a.Token, "", 0)
		return a.Min != hotcache.Fresh
	})
	return time.Now()
}

// slow skips what cannot be judged because floors may have been forgotten by now.
func (e *env) slow(since time.Time) {
	if time.Since(since) > e.rules.FloorTTL*9/10 {
		e.Skip("the machine is too slow to judge this")
	}
}

func row(v hotcache.Version, data string) hotcache.Item {
	return hotcache.Item{Version: v, Data: []byte(data)}
}

func same(a, b hotcache.Item) bool {
	return a.Version == b.Version && a.Absent == b.Absent && string(a.Data) == string(b.Data)
}

// holds checks that an answer has an item.
func (e *env) holds(a hotcache.Answer, want hotcache.Item) {
	e.Helper()
	if a.Item == nil || !same(*a.Item, want) {
		e.Fatalf("the answer %+v has the item %.100v, want %.100v", a, a.Item, want)
	}
}
