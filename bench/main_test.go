package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/latchkey-go/latchkey/bench/internal/rounds"
	"github.com/latchkey-go/latchkey/lease"
)

func TestRowsHaveNamesOfTheirOwn(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range table() {
		if r.name == "" || r.title == "" || (r.run == nil) == (r.tables == nil) || seen[r.name] {
			t.Errorf("row %q: %q", r.name, r.title)
		}
		seen[r.name] = true
	}
	if len(seen) != 44 {
		t.Errorf("%d rows, want 44", len(seen))
	}
}

func TestFlagsThatCannotBeMeant(t *testing.T) {
	for _, args := range []string{"--rounds 0", "--length 1us", "--write x --quick", "held", "--write x --profile y"} {
		if _, err := parse(strings.Fields(args)); err == nil {
			t.Errorf("%s: no error", args)
		}
	}
	if o, err := parse([]string{"--quick"}); err != nil || o.rounds != 3 || o.length != 50*time.Millisecond {
		t.Errorf("--quick: %+v, %v", o, err)
	}
	if _, err := chosen("held,nonsense"); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("--only nonsense: %v", err)
	}
	if rows, err := chosen("held,expiry"); err != nil || len(rows) != 2 || rows[1].name != "expiry" {
		t.Errorf("--only held,expiry: %v, %v", rows, err)
	}
	if rows, err := chosen("inproc,held"); err != nil || len(rows) != 8 || rows[0].name != "inproc-read" {
		t.Errorf("--only inproc,held: %v, %v", rows, err)
	}
	if _, err := chosen("inproc-"); err == nil {
		t.Error("--only inproc-: no error")
	}
}

func TestCollectionsAreRead(t *testing.T) {
	trace := "latchkey: listening\n" +
		"gc 1 @0.014s 2%: 0.018+1.2+0.003 ms clock, 0.036+0/1.1/0.5+0.006 ms cpu, 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 2 P\n" +
		"gc 12 @9.100s 2%: 0.018+1.2+0.003 ms clock, 0.036+0/1.1/0.5+0.006 ms cpu, 280->281->245 MB, 290 MB goal, 0 MB stacks, 0 MB globals, 2 P\n"
	if n, live := lastCollection(trace); n != 12 || live != 245<<20 {
		t.Errorf("collection %d with %d bytes live", n, live)
	}
	if n, live := lastCollection("nothing of the kind"); n != 0 || live != 0 {
		t.Errorf("collection %d with %d bytes live", n, live)
	}
}

// mutex is a lock in this process. Planted defects make it wrong.
type mutex struct {
	held  chan struct{}
	token *uint64

	stuck bool // always the same token
}

// Lock sleeps, which takes no time: it is called in a synctest bubble only.
func (m *mutex) Lock(ctx context.Context) (uint64, error) {
	select {
	case m.held <- struct{}{}:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	time.Sleep(time.Millisecond)
	if !m.stuck {
		*m.token++
	}
	return *m.token + 1, nil
}

func (m *mutex) Unlock(context.Context) error {
	<-m.held
	return nil
}

func TestContestJudges(t *testing.T) {
	for name, c := range map[string]struct {
		plant  func(*mutex)
		agrees error
		want   error
	}{
		"a mutex":                       {plant: func(*mutex) {}},
		"a token that does not rise":    {plant: func(m *mutex) { m.stuck = true }, want: rounds.ErrWrong},
		"a service that counts its own": {plant: func(*mutex) {}, agrees: rounds.Wrong("other numbers"), want: rounds.ErrWrong},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &mutex{held: make(chan struct{}, 1), token: new(uint64)}
				c.plant(m)
				x := &contest{name: "x", contenders: []contender{m, m, m}, agrees: func(context.Context, *rounds.Sample, int) error { return c.agrees }}
				s, err := x.run(t.Context(), 300*time.Millisecond)
				if err == nil {
					err = x.check(t.Context(), &s)
				}
				if !errors.Is(err, c.want) || c.want == nil && s.Ops < 290 {
					t.Errorf("%d hand-overs, error %v, want %v", s.Ops, err, c.want)
				}
			})
		})
	}
}

// clockwork is a session whose leases end by timers. Planted defects make it
// wrong.
type clockwork struct {
	lease.Session // the rest is not called

	mu     sync.Mutex
	notify func(lease.Notice)
	shift  func(n int) time.Duration // planted: by how much the n-th end is off
	ends   func(n int) int           // planted: how often it is told
	n      int
}

func (c *clockwork) Acquire(r lease.Request, who lease.Caller) {
	c.mu.Lock()
	n := c.n
	c.n++
	c.mu.Unlock()
	h := lease.Hold{Key: r.Keys[0], Token: lease.Token(n + 1)}
	time.AfterFunc(r.TTL+c.shift(n), func() {
		for range c.ends(n) {
			c.notify(lease.Notice{Key: h.Key, Token: h.Token, Code: lease.ErrExpired})
		}
	})
	who.Done(lease.Lease{Holds: []lease.Hold{h}, TTL: r.TTL, Deadline: time.Now().Add(r.TTL)}, nil)
}

func TestWaveJudges(t *testing.T) {
	never := func(int) time.Duration { return 0 }
	once := func(int) int { return 1 }
	only := func(d time.Duration) func(int) time.Duration {
		return func(n int) time.Duration {
			if n == 70 {
				return d
			}
			return 0
		}
	}
	times := func(k int) func(int) int {
		return func(n int) int {
			if n == 70 {
				return k
			}
			return 1
		}
	}
	for name, c := range map[string]struct {
		shift func(int) time.Duration
		ends  func(int) int
		want  error
	}{
		"leases that end in time":      {never, once, nil},
		"one that ends 5 ms late":      {only(5 * time.Millisecond), once, nil},
		"one that ends a moment early": {only(-time.Nanosecond), once, rounds.ErrWrong},
		"one that never ends":          {never, times(0), rounds.ErrWrong},
		"one that ends twice":          {never, times(2), rounds.ErrWrong},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &wave{n: 100, lead: 100 * time.Millisecond}
				w.session = &clockwork{notify: w.told, shift: c.shift, ends: c.ends}
				s, err := w.run(t.Context(), 50*time.Millisecond)
				if !errors.Is(err, c.want) {
					t.Fatalf("error = %v, want %v", err, c.want)
				}
				if c.want == nil && slices.Max(s.Latency) != c.shift(70) {
					t.Errorf("the longest lateness is %v, want %v", slices.Max(s.Latency), c.shift(70))
				}
			})
		})
	}
}
