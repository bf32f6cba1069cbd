package hotcachetest_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/hotcachetest"
)

// broken is a real node with a defect in front.
type broken struct {
	hotcache.Node
	d defect
}

// A defect is one way to break the contract: every hook is optional.
type defect struct {
	name   string
	caught []string // the tests that must fail, as group/Name

	asked       func(q *hotcache.Ask)
	answered    func(b *broken, q hotcache.Ask, a *hotcache.Answer)
	fill        func(b *broken, f *hotcache.Fill)
	filled      func(b *broken, f hotcache.Fill, r *hotcache.Filled)
	renew       func(b *broken, key string, t hotcache.Token, held *bool)
	fail        func(b *broken, why *string, pause *time.Duration)
	invalidate  func(key *string, v *hotcache.Version)
	invalidated func(b *broken, inv *hotcache.Invalidation, members *[]hotcache.Member, by hotcache.Member)
	putCopy     func(c *hotcache.Copy)
	gotCopy     func(c *hotcache.Copy)
	told        func(l *brokenListener, inv hotcache.Invalidation) []hotcache.Invalidation
	by          func(by *hotcache.Member)
	woken       func(l *brokenListener, key string)
	beat        func(trust *time.Duration)
	beaten      func(f *brokenFeed, p *hotcache.Position)
	tell        func(to *hotcache.Member, text *string)
	noClose     bool
	anyContext  bool
}

func (b *broken) context(ctx context.Context) context.Context {
	if b.d.anyContext {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (b *broken) Ask(ctx context.Context, q hotcache.Ask) (hotcache.Answer, error) {
	was := q
	if b.d.asked != nil {
		b.d.asked(&q)
	}
	a, err := b.Node.Ask(b.context(ctx), q)
	if b.d.answered != nil && err == nil {
		b.d.answered(b, was, &a)
	}
	return a, err
}

func (b *broken) Fill(ctx context.Context, f hotcache.Fill) (hotcache.Filled, error) {
	if b.d.fill != nil {
		b.d.fill(b, &f)
	}
	r, err := b.Node.Fill(b.context(ctx), f)
	if b.d.filled != nil && err == nil {
		b.d.filled(b, f, &r)
	}
	return r, err
}

func (b *broken) Renew(ctx context.Context, key string, t hotcache.Token) (bool, error) {
	held, err := false, error(nil)
	if b.d.renew == nil {
		return b.Node.Renew(b.context(ctx), key, t)
	}
	b.d.renew(b, key, t, &held)
	return held, err
}

func (b *broken) Fail(ctx context.Context, key string, t hotcache.Token, why string, pause time.Duration) error {
	if b.d.fail != nil {
		b.d.fail(b, &why, &pause)
	}
	return b.Node.Fail(b.context(ctx), key, t, why, pause)
}

func (b *broken) Invalidate(ctx context.Context, key string, v hotcache.Version, by hotcache.Member) (hotcache.Invalidation, []hotcache.Member, error) {
	if b.d.invalidate != nil {
		b.d.invalidate(&key, &v)
	}
	inv, members, err := b.Node.Invalidate(b.context(ctx), key, v, by)
	if b.d.invalidated != nil && err == nil {
		b.d.invalidated(b, &inv, &members, by)
	}
	return inv, members, err
}

func (b *broken) PutCopy(ctx context.Context, key string, c hotcache.Copy) error {
	if b.d.putCopy != nil {
		b.d.putCopy(&c)
	}
	return b.Node.PutCopy(b.context(ctx), key, c)
}

func (b *broken) GetCopy(ctx context.Context, key string) (*hotcache.Copy, error) {
	c, err := b.Node.GetCopy(b.context(ctx), key)
	if b.d.gotCopy != nil && c != nil {
		b.d.gotCopy(c)
	}
	return c, err
}

func (b *broken) Follow(as hotcache.Member, l hotcache.Listener) (hotcache.Feed, error) {
	inner := &brokenListener{Listener: l, b: b}
	f, err := b.Node.Follow(as, inner)
	return &brokenFeed{Feed: f, b: b}, err
}

type brokenListener struct {
	hotcache.Listener
	b    *broken
	held []hotcache.Invalidation // by a defect
}

func (l *brokenListener) Invalidated(inv hotcache.Invalidation, by hotcache.Member) {
	if l.b.d.by != nil {
		l.b.d.by(&by)
	}
	all := []hotcache.Invalidation{inv}
	if l.b.d.told != nil {
		all = l.b.d.told(l, inv)
	}
	for _, inv := range all {
		l.Listener.Invalidated(inv, by)
	}
}

func (l *brokenListener) Woken(key string) {
	if l.b.d.woken != nil {
		l.b.d.woken(l, key)
		return
	}
	l.Listener.Woken(key)
}

type brokenFeed struct {
	hotcache.Feed
	b    *broken
	last hotcache.Position
}

func (f *brokenFeed) Beat(ctx context.Context, trust time.Duration) (hotcache.Position, error) {
	if f.b.d.beat != nil {
		f.b.d.beat(&trust)
	}
	p, err := f.Feed.Beat(f.b.context(ctx), trust)
	if f.b.d.beaten != nil && err == nil {
		f.b.d.beaten(f, &p)
	}
	return p, err
}

func (f *brokenFeed) Tell(ctx context.Context, to hotcache.Member, text string) error {
	if f.b.d.tell != nil {
		f.b.d.tell(&to, &text)
	}
	return f.Feed.Tell(f.b.context(ctx), to, text)
}

func (f *brokenFeed) Close() {
	if !f.b.d.noClose {
		f.Feed.Close()
	}
}

const envDefect = "LATCHKEY_TEST_DEFECT"

// TestDefect runs the suite on one broken node, in the process that TestBroken starts for it.
func TestDefect(t *testing.T) {
	name := os.Getenv(envDefect)
	if name == "" {
		t.Skip("for TestBroken")
	}
	for _, d := range defects() {
		if d.name == name {
			hotcachetest.Run(t, hotcachetest.Subject{
				Open: func(t *testing.T, rules hotcache.Rules) (first, second hotcache.Node) {
					b := &broken{Node: hotcache.NewEmbedded(rules), d: d}
					return b, b
				},
				Bubble: true,
			})
		}
	}
}

// TestBroken sees the suite fail: each defect must be noticed by the tests that are about it.
func TestBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("each of the defects is a process")
	}
	for _, d := range defects() {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestDefect$", "-test.v", "-test.timeout=60s")
			cmd.Env = append(os.Environ(), envDefect+"="+d.name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passed:\n%s", out)
			}
			for _, name := range d.caught {
				if !strings.Contains(string(out), "--- FAIL: TestDefect/"+name+" ") {
					t.Errorf("%s did not notice", name)
				}
			}
			if t.Failed() {
				for line := range strings.Lines(string(out)) {
					if strings.Contains(line, "--- FAIL") || strings.Contains(line, "panic") {
						t.Log(strings.TrimSpace(line))
					}
				}
			}
		})
	}
}
