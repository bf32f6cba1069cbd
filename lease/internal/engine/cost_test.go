package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/lease"
)

// crowd is an engine with a great many of something, driven past the checks of a
// world.
type crowd struct {
	e *Engine
	n int
}

func (c *crowd) session(id string) *Session {
	s, _, err := c.e.Open(id, lease.SessionOptions{Name: id, Notify: func(lease.Notice) {}})
	if err != nil {
		panic(err)
	}
	return s
}

func (c *crowd) ask(s *Session, r lease.Request) string {
	c.n++
	r.ID = fmt.Sprint("request", c.n)
	if err := r.Normalize(); err != nil {
		panic(err)
	}
	c.e.Acquire(s, s.epoch, &r, &asker{})
	c.e.Out().Reset()
	return r.ID
}

// slowest is how long the slowest of the calls took.
func slowest(calls ...func()) (worst time.Duration) {
	for _, fn := range calls {
		begin := time.Now()
		fn()
		worst = max(worst, time.Since(begin))
	}
	return worst
}

func keys(n int) (ks []string) {
	for i := range n {
		ks = append(ks, fmt.Sprintf("key%02d", i))
	}
	return ks
}

// BenchmarkWorst reports how long single commands take at their worst, which is how
// long everybody else waits. Run it with -benchtime 1x. To compare two versions, run
// them in turn: a busy machine changes these figures several times over.
func BenchmarkWorst(b *testing.B) {
	for name, fn := range costs {
		b.Run(name, func(b *testing.B) {
			var worst time.Duration
			for b.Loop() {
				worst = max(worst, fn())
			}
			b.ReportMetric(float64(worst.Microseconds())/1000, "ms")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func release(c *crowd, s *Session, id string) func() {
	return func() {
		c.e.Do(s, s.epoch, lease.Command{Verb: lease.Release, ID: id}, nil)
		c.e.Out().Reset()
	}
}

func cancel(c *crowd, s *Session, id string) func() {
	return func() {
		c.e.Do(s, s.epoch, lease.Command{Verb: lease.Cancel, ID: id}, nil)
		c.e.Out().Reset()
	}
}

var costs = map[string]func() time.Duration{
	"10000 waiters, cancel from the middle": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		c.ask(s, lease.Request{Keys: []string{"k"}})
		var calls []func()
		for i := range 10_000 {
			id := c.ask(s, lease.Request{Keys: []string{"k"}})
			if i%100 == 50 {
				calls = append(calls, cancel(c, s, id))
			}
		}
		return slowest(calls...)
	},
	"10000 shared waiters on 64 keys, cancel the first": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		ks := keys(64)
		c.ask(s, lease.Request{Keys: ks[63:]})
		var calls []func()
		for i := range 10_000 {
			id := c.ask(s, lease.Request{Keys: ks, Mode: lease.Shared})
			if i < 3 {
				calls = append(calls, cancel(c, s, id))
			}
		}
		return slowest(calls...)
	},
	"10000 shared waiters on 64 keys, behind a writer, granted": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		ks := keys(64)
		id := c.ask(s, lease.Request{Keys: ks})
		for range 10_000 {
			c.ask(s, lease.Request{Keys: ks, Mode: lease.Shared})
		}
		return slowest(release(c, s, id))
	},
	"10000 shared waiters on 64 keys, one key is freed": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		ks := keys(64)
		id := c.ask(s, lease.Request{Keys: ks[:1]})
		c.ask(s, lease.Request{Keys: ks[63:]})
		for range 10_000 {
			c.ask(s, lease.Request{Keys: ks, Mode: lease.Shared})
		}
		return slowest(release(c, s, id))
	},
	"10000 exclusive waiters on 64 keys, one release": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		ks := keys(64)
		id := c.ask(s, lease.Request{Keys: ks})
		for range 10_000 {
			c.ask(s, lease.Request{Keys: ks})
		}
		return slowest(release(c, s, id))
	},
	"10000 waiters on 64 keys, end of their session": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s, o := c.session("s"), c.session("o")
		ks := keys(64)
		c.ask(o, lease.Request{Keys: ks})
		for range 10_000 {
			c.ask(s, lease.Request{Keys: ks})
		}
		return slowest(func() { _ = c.e.CloseSession(s, s.epoch); c.e.Out().Reset() })
	},
	"10000 suspended waiters ahead, one release": func() time.Duration {
		c := &crowd{e: New(Config{})}
		o := c.session("o")
		id := c.ask(o, lease.Request{Keys: []string{"k"}})
		for i := range 9_990 {
			s := c.session(fmt.Sprint(i))
			c.ask(s, lease.Request{Keys: []string{"k"}})
			c.e.Suspend(s, s.epoch)
			c.e.Out().Reset()
		}
		c.ask(o, lease.Request{Keys: []string{"k"}})
		return slowest(release(c, o, id))
	},
	"10000 waiters that declared one hold, a grant": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		h := c.ask(s, lease.Request{Keys: []string{"held"}})
		id := c.ask(s, lease.Request{Keys: []string{"k"}})
		var calls []func()
		for range 10_000 {
			calls = append(calls, func() { c.ask(s, lease.Request{Keys: []string{"k"}, Declared: []string{h}}) })
		}
		return max(slowest(calls...), slowest(release(c, s, id)))
	},
	"a circle of 2000 declared holds": func() time.Duration {
		const n = 2000
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		var hs []string
		for i := range n {
			hs = append(hs, c.ask(s, lease.Request{Keys: []string{fmt.Sprint(i)}}))
		}
		var calls []func()
		for i := range n {
			calls = append(calls, func() { c.ask(s, lease.Request{Keys: []string{fmt.Sprint((i + 1) % n)}, Declared: hs[i : i+1]}) })
		}
		return slowest(calls...)
	},
	"100000 sessions with the same request id": func() time.Duration {
		c := &crowd{e: New(Config{})}
		var calls []func()
		for i := range 99_000 {
			s := c.session(fmt.Sprint(i))
			r := lease.Request{ID: "1", Keys: []string{fmt.Sprint(i)}, TTL: time.Hour}
			c.e.Acquire(s, s.epoch, &r, &asker{})
			c.e.Out().Reset()
			if i%10_000 == 9 {
				calls = append(calls, release(c, s, "1"))
			}
		}
		return slowest(calls...)
	},
	"100000 waiters of one session on 10 keys, suspend": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		for i := range 99_000 {
			c.ask(s, lease.Request{Keys: []string{fmt.Sprint(i % 10)}})
		}
		return slowest(func() { c.e.Suspend(s, s.epoch) })
	},
	"1000000 holds expire at once": func() time.Duration {
		c := million(Config{}, time.Second, 0)
		return slowest(func() { c.e.Advance(time.Hour) }, func() { c.e.Advance(time.Hour) })
	},
	"1000000 holds expire at once, durable, with lock-delay": func() time.Duration {
		c := million(Config{Durable: true}, time.Second, time.Second)
		return slowest(func() { c.e.Advance(time.Hour) })
	},
	"1000000 holds, end of their session": func() time.Duration {
		c := million(Config{Durable: true}, time.Hour, 0)
		return slowest(func() { s := c.e.sessions["s"]; _ = c.e.CloseSession(s, s.epoch) })
	},
	"1000000 keys, list by prefix": func() time.Duration {
		c := million(Config{}, time.Hour, 0)
		return slowest(func() { _, _ = c.e.List(lease.Query{Prefix: "k"}) })
	},
	"1000000 keys, list after a key": func() time.Duration {
		c := million(Config{}, time.Hour, 0)
		return slowest(func() { _, _ = c.e.List(lease.Query{After: "key5", Limit: 10_000}) })
	},
	"1000000 keys, begin of a snapshot": func() time.Duration {
		c := million(Config{}, time.Hour, 0)
		sn := c.e.Snapshot()
		next := func() { sn.Next(2000, func([]byte) {}) }
		return slowest(next, next, next)
	},
	"1000000 contended keys, list": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		for i := range 900_000 {
			c.ask(s, lease.Request{Keys: []string{fmt.Sprint("key", i)}})
			c.ask(s, lease.Request{Keys: []string{fmt.Sprint("key", i)}})
		}
		return slowest(func() { _, _ = c.e.List(lease.Query{Contended: true}) })
	},
	"1000000 contended keys, end of the session": func() time.Duration {
		c := &crowd{e: New(Config{})}
		s := c.session("s")
		for i := range 900_000 {
			c.ask(s, lease.Request{Keys: []string{fmt.Sprint("key", i)}})
			c.ask(s, lease.Request{Keys: []string{fmt.Sprint("key", i)}})
		}
		return slowest(func() { _ = c.e.CloseSession(s, s.epoch) })
	},
}

func million(cfg Config, ttl, delay time.Duration) *crowd {
	c := &crowd{e: New(cfg)}
	s := c.session("s")
	for i := range 1_000_000 {
		c.ask(s, lease.Request{Keys: []string{fmt.Sprint("key", i)}, TTL: ttl, LockDelay: delay})
	}
	return c
}
