package hotcachetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/latchkey-go/latchkey/hotcache"
	"github.com/latchkey-go/latchkey/hotcache/internal/core"
)

func models() []test {
	return []test{
		{name: "Young", rules: hotcache.Rules{MaxFloors: 6}, fn: func(e *env) { compare(e, 1, 600) }},
		{name: "Old", rules: hotcache.Rules{FloorTTL: while}, fn: func(e *env) { e.settle(); compare(e, 2, 400) }},
	}
}

// A model compares a node with the pure core, in the embedded node, step by step. No time that is given ends while it
// runs, or all of it has passed when it is given, so that both have the same to say.
type model struct {
	*env
	random *rand.Rand
	like   *hotcache.Embedded
	tokens []hotcache.Token
	seen   map[uint64]uint64
	log    []string
}

// compare runs steps drawn at random from a seed that is always the same.
func compare(e *env, seed uint64, steps int) {
	m := &model{env: e, random: rand.New(rand.NewPCG(seed, 1)), like: hotcache.NewEmbedded(e.rules), seen: map[uint64]uint64{}}
	for { // until the embedded node is as old as the other one
		a, _ := m.like.Ask(e.ctx, hotcache.Ask{Key: "settle", Token: e.token()})
		_ = m.like.Fail(e.ctx, "settle", a.Token, "", 0)
		if a.Min != hotcache.Fresh || e.rules.FloorTTL == long {
			break
		}
		time.Sleep(near) // it takes a while
	}
	first := e.invalidate("first", 1) // the numbers begin alike
	like, _, _ := m.like.Invalidate(e.ctx, "first", 1, "")
	m.pair(first.Generation, like.Generation)
	begin := time.Now()
	for i := range steps {
		if time.Since(begin) > e.rules.FloorTTL*8/10 {
			e.Logf("%d steps, then time was up", i)
			return
		}
		m.step()
		if e.Failed() {
			e.Fatalf("seed %d; the last steps: %q", seed, m.log[max(0, len(m.log)-8):])
		}
	}
}

// pair notes that a generation of the one is one of the other, or checks it.
func (m *model) pair(got, want uint64) {
	m.Helper()
	old, ok := m.seen[got]
	if !ok {
		for _, w := range m.seen {
			if w == want {
				m.Errorf("a generation began, and should not have")
			}
		}
		m.seen[got] = want
	} else if old != want {
		m.Errorf("no generation began, and one should have")
	}
}

func (m *model) stamps(got, want hotcache.Stamp) {
	m.Helper()
	m.pair(got.Generation, want.Generation)
	if got.Number != want.Number {
		m.Errorf("the number is %d, want %d", got.Number, want.Number)
	}
}

func pick[T any](m *model, from ...T) T { return from[m.random.IntN(len(from))] }

func (m *model) version() hotcache.Version {
	return pick[hotcache.Version](m, 0, 1, 2, 3, 4, 5, 6, 1<<63+1, 1<<63+2, 1<<32, 1<<32+1)
}

// tokenOf returns a token of one of the last leases, or another one.
func (m *model) tokenOf() hotcache.Token {
	if n := len(m.tokens); n > 0 && m.random.IntN(8) > 0 {
		return m.tokens[max(0, n-1-m.random.IntN(4))]
	}
	return m.token()
}

func (m *model) times() hotcache.Times {
	t := fine()
	switch m.random.IntN(6) {
	case 0:
		t.Soft = -time.Second
	case 1:
		t.Soft, t.Hard = -time.Second, -time.Second
	case 2:
		t.Soft, t.Hard, t.Keep = -time.Second, -time.Second, -time.Second
	case 3:
		t.Hard = 0 // before its soft time
	}
	return t
}

func (m *model) step() {
	key := pick(m, "a", "b", "c", "d", "e", "f", "g", "h")
	m.log = append(m.log, "")
	say := func(format string, args ...any) { m.log[len(m.log)-1] = fmt.Sprintf(format, args...) }
	switch m.random.IntN(10) {
	case 0, 1, 2, 3:
		q := hotcache.Ask{Key: key, Min: pick(m, 0, 0, 0, hotcache.Fresh, m.version()), Token: pick(m, 0, m.token(), m.token())}
		say("%+v", q)
		m.ask(q)
	case 4, 5, 6:
		f := hotcache.Fill{Key: key, Token: m.tokenOf(), Item: row(m.version(), "data"), Times: m.times()}
		if m.random.IntN(4) == 0 {
			f.Item.Absent, f.Item.Data = true, nil
		}
		say("%+v", f)
		m.fillBoth(f)
	case 7:
		t, pause := m.tokenOf(), pick(m, 0, long)
		say("fail %s %d %v", key, t, pause)
		m.fail(key, t, "because", pause)
		if err := m.like.Fail(m.ctx, key, t, "because", pause); err != nil {
			m.Fatal(err)
		}
	case 8:
		t := m.tokenOf()
		say("renew %s %d", key, t)
		want, _ := m.like.Renew(m.ctx, key, t)
		if got := m.renew(key, t); got != want {
			m.Errorf("renewed: %t, want %t", got, want)
		}
	case 9:
		v := m.version()
		say("invalidate %s %d", key, v)
		got := m.invalidate(key, v)
		want, _, _ := m.like.Invalidate(m.ctx, key, v, "")
		m.stamps(core.StampOf(got.Position), core.StampOf(want.Position))
	}
}

func (m *model) ask(q hotcache.Ask) {
	n := pick(m, m.first, m.second)
	got, want := m.askOf(n, q.Key, q.Min, q.Token), hotcache.Answer{}
	want, err := m.like.Ask(m.ctx, q)
	if err != nil {
		m.Fatal(err)
	}
	if got.Token != 0 {
		m.tokens = append(m.tokens, got.Token)
	}
	m.stamps(got.Stamp, want.Stamp)
	if got.State != want.State || got.Token != want.Token || got.Min != want.Min || got.Floor != want.Floor || got.Why != want.Why ||
		(got.Item == nil) != (want.Item == nil) || got.Item != nil && !same(*got.Item, *want.Item) {
		m.Errorf("the answer is %+v with %v, want %+v with %v", got, got.Item, want, want.Item)
	}
	alike := func(a, b time.Duration) bool { return (a - b).Abs() < 10*time.Second }
	if !alike(got.Times.Soft, want.Times.Soft) || !alike(got.Times.Hard, want.Times.Hard) || !alike(got.Times.Keep, want.Times.Keep) ||
		!alike(got.Retry, want.Retry) {
		m.Errorf("the times are %+v and %v, want %+v and %v", got.Times, got.Retry, want.Times, want.Retry)
	}
}

func (m *model) fillBoth(f hotcache.Fill) {
	got := m.fill(f.Key, f.Token, f.Item, f.Times)
	f.Item.Data = slices.Clone(f.Item.Data)
	want, err := m.like.Fill(m.ctx, f)
	if err != nil {
		m.Fatal(err)
	}
	m.stamps(got.Stamp, want.Stamp)
	if got.Refusal != want.Refusal || got.Floor != want.Floor {
		m.Errorf("the fill got %+v, want %+v", got, want)
	}
}
