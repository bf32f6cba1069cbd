package rmaptest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapJoins checks what Join refuses, and that copies do not disturb each other.
func mapJoins() []test {
	return []test{
		{"Refused", joinRefused},
		{"Names", joinNames},
		{"Twice", joinTwice},
		{"Complete", joinComplete},
		{"OtherMaps", joinOtherMaps},
	}
}

func joinRefused(e *env) {
	ended, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err := rmap.Join(ended, e.first, e.name, texts{}); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), e.name) {
		e.Errorf("with an ended context: %v", err)
	}
	if _, err := rmap.Join(e.ctx, nil, e.name, texts{}); !errors.Is(err, rmap.ErrInvalid) {
		e.Errorf("without a store: %v", err)
	}
	for what, o := range map[string]texts{
		"Heartbeat":  {Heartbeat: 9 * time.Millisecond},
		"Heartbeat ": {Heartbeat: -1},
		"Timeout":    {Timeout: -time.Second},
		"MaxEntries": {MaxEntries: -1},
		"MaxStale":   {MaxStale: -2},
		"Sliding":    {Sliding: true},
		"ttl":        {TTL: -time.Second},
	} {
		if _, err := rmap.Join(e.ctx, e.first, e.name, o); !errors.Is(err, rmap.ErrInvalid) || !strings.Contains(err.Error(), strings.TrimSpace(what)) {
			e.Errorf("with a bad %s: %v", what, err)
		}
	}
}

func joinNames(e *env) {
	for _, bad := range []string{"", " ", "a b", "a\tb", "a\n", "a\x00b", "a\x7f", "a{b", "a}b", "a*", "a?", "[a", "a]", "a\u00a0b", "a\u2028",
		"a\xffb", strings.Repeat("n", rmap.MaxName+1)} {
		if _, err := rmap.Join(e.ctx, e.first, bad, texts{}); !errors.Is(err, rmap.ErrInvalid) || len(err.Error()) > 2*rmap.MaxName+200 {
			e.Errorf("the name %s: %v", text(bad), err)
		}
		if err := rmap.CheckName(bad); !errors.Is(err, rmap.ErrInvalid) {
			e.Errorf("CheckName of %s: %v", text(bad), err)
		}
	}
	for _, good := range []string{"a", "app/flags:v1.2-x_y", "日本", "=", "\"'", "%s", "map", strings.Repeat("n", rmap.MaxName)} {
		m, err := rmap.Join(e.ctx, e.first, good, texts{})
		if err != nil {
			e.Fatalf("the name %s: %v", text(good), err)
		}
		e.did(m.SetAndWait(e.ctx, "k", good))
		shows(e, m, map[string]string{"k": good})
		m.Close()
	}
}

func joinTwice(e *env) {
	a, b := joined(e, e.first, texts{}), joined(e, e.first, texts{})
	r := e.did(a.Set(e.ctx, "k", "v"))
	for _, m := range []*rmap.Map[string, string]{a, b} {
		if err := m.WaitFor(e.ctx, r); err != nil {
			e.Fatal(err)
		}
	}
	a.Close()
	r = e.did(b.Set(e.ctx, "k", "w"))
	if err := b.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	shows(e, a, map[string]string{"k": "v"})
	shows(e, b, map[string]string{"k": "w"})
	c := joined(e, e.first, texts{})
	shows(e, c, map[string]string{"k": "w"})
}

// A copy is complete when Join returns, at any size and while others write.
func joinComplete(e *env) {
	a := joined(e, e.first, numbers{})
	b := a.Batch()
	for i := range rmap.MaxOps {
		b.Set(fmt.Sprint("key ", i), i)
	}
	e.did(b.Write(e.ctx))
	for i := range 10 {
		e.did(a.Set(e.ctx, "last", i))
		m, err := rmap.Join(e.ctx, e.second, e.name, numbers{})
		if err != nil {
			e.Fatal(err)
		}
		if v, ok := m.Get("last"); v != i || !ok || m.Len() != rmap.MaxOps+1 {
			e.Fatalf("joined with %d, %t, and %d entries", v, ok, m.Len())
		}
		if lag := m.Lag(); lag.State != rmap.Live || lag.Age > 20*time.Second {
			e.Fatalf("Lag is %+v", lag)
		}
		m.Close()
	}
}

func joinOtherMaps(e *env) {
	a := joined(e, e.first, texts{})
	other, err := rmap.Join(e.ctx, e.first, e.name+"2", texts{})
	if err != nil {
		e.Fatal(err)
	}
	defer other.Close()
	e.did(a.Set(e.ctx, "k", "v"))
	r := e.did(other.Set(e.ctx, "k", "w"))
	e.did(a.Reset(e.ctx))
	e.synced(a)
	if err := other.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	if v, _ := other.Get("k"); v != "w" || a.Len() != 0 {
		e.Fatalf("the other map has %q, this one %d entries", v, a.Len())
	}
	if err := a.WaitFor(e.ctx, r); !errors.Is(err, rmap.ErrGone) {
		e.Fatalf("a revision of another map: %v", err)
	}
}

// mapCloses checks that Close ends what must end and leaves what must go on.
func mapCloses() []test {
	return []test{
		{"Twice", closeTwice},
		{"Writes", closeWrites},
		{"Reads", closeReads},
		{"Subscribers", closeSubscribers},
		{"Amidst", closeAmidst},
	}
}

func closeTwice(e *env) {
	m := joined(e, e.first, texts{})
	var group sync.WaitGroup
	for range 5 {
		group.Go(m.Close)
	}
	group.Wait()
	m.Close()
	if lag := m.Lag(); lag.State != rmap.Closed || lag.Err != nil {
		e.Fatalf("Lag is %+v", lag)
	}
}

func closeWrites(e *env) {
	m := joined(e, e.first, texts{})
	n := joined(e, e.first, numbers{})
	l := joined(e, e.first, listings{})
	e.did(m.SetAndWait(e.ctx, "k", "v"))
	m.Close()
	n.Close()
	l.Close()
	for op, write := range writers(e.ctx, m) {
		r, err := write()
		if w := e.failed(err, rmap.ErrClosed, rmap.NotApplied); w.Op != op || !r.IsZero() {
			e.Errorf("%s: %v, %v", op, r, err)
		}
	}
	_, err := m.SetAndWait(e.ctx, "k", "w")
	e.failed(err, rmap.ErrClosed, rmap.NotApplied)
	_, _, err = rmap.Inc(e.ctx, n, "n", 1)
	e.failed(err, rmap.ErrClosed, rmap.NotApplied)
	for _, do := range listOps() {
		_, _, err = do(e.ctx, l, "l", "x")
		e.failed(err, rmap.ErrClosed, rmap.NotApplied)
	}
	if err := m.Sync(e.ctx); !errors.Is(err, rmap.ErrClosed) {
		e.Errorf("Sync: %v", err)
	}
	if err := m.WaitFor(e.ctx, m.Snapshot().Revision()); err != nil {
		e.Errorf("WaitFor what it has: %v", err)
	}
	if err := m.WaitFor(e.ctx, rmap.Revision{Generation: 1, Number: 1, Nonce: 1}); !errors.Is(err, rmap.ErrClosed) {
		e.Errorf("WaitFor: %v", err)
	}
	fresh := joined(e, e.second, texts{})
	shows(e, fresh, map[string]string{"k": "v"})
}

func closeReads(e *env) {
	m, other := pair(e, texts{})
	r := e.did(m.SetAndWait(e.ctx, "k", "v"))
	m.Close()
	e.did(other.Set(e.ctx, "k", "w"))
	shows(e, m, map[string]string{"k": "v"})
	if got := m.Snapshot().Revision(); got != r || m.Stats().Entries != 1 {
		e.Fatalf("it is at %v, was at %v", got, r)
	}
	if _, err := m.Lookup("none"); !errors.Is(err, rmap.ErrAbsent) {
		e.Fatalf("Lookup of nothing: %v", err)
	}
}

func closeSubscribers(e *env) {
	m := joined(e, e.first, texts{})
	tp := record(e, m, rmap.WatchOptions{})
	idle := m.Watch(e.ctx, rmap.WatchOptions{})
	ended := m.Watch(e.ctx, rmap.WatchOptions{})
	e.did(m.SetAndWait(e.ctx, "k", "v"))
	tp.tells(e, "set k: none to v")
	m.Close()
	<-tp.over
	tp.tells(e, "set k: none to v")
	n := 0
	for ev := range idle { // what was queued is still given
		if line(ev) != "set k: none to v" {
			e.Errorf("it was told %v", ev)
		}
		n++
	}
	for range ended {
		n++
		break
	}
	for range m.Watch(e.ctx, rmap.WatchOptions{}) {
		n++
	}
	if n != 2 {
		e.Fatalf("%d events, want 2", n)
	}
}

// Close comes while everything else goes on. Everything ends, and what fails says why.
func closeAmidst(e *env) {
	for i := range 15 {
		m, err := rmap.Join(e.ctx, []rmap.Store{e.first, e.second}[i%2], e.name, texts{Heartbeat: 10 * time.Millisecond})
		if err != nil {
			e.Fatal(err)
		}
		var group sync.WaitGroup
		for j := range 8 {
			group.Go(func() { amidst(e, m, j) })
		}
		group.Go(func() {
			for ev := range m.Watch(e.ctx, rmap.WatchOptions{Events: 4}) {
				if ev.Cause == 0 {
					e.Errorf("it was told %v", ev)
				}
			}
		})
		e.pass(time.Duration(rand.IntN(4000)) * time.Microsecond)
		m.Close()
		if lag := m.Lag(); lag.State != rmap.Closed || lag.Err != nil {
			e.Errorf("Lag is %+v", lag)
		}
		group.Wait()
	}
}

func amidst(e *env, m *rmap.Map[string, string], worker int) {
	for i := 0; ; i++ {
		var err error
		switch key := fmt.Sprint(i % 5); worker {
		case 0:
			_, err = m.Set(e.ctx, key, "v")
		case 1:
			_, err = m.SetTTL(e.ctx, key, "v", time.Millisecond)
		case 2:
			_, err = m.SetAndWait(e.ctx, key, "v")
		case 3:
			_, _, err = m.Update(e.ctx, key, func(old string, _ bool) (string, error) { return old[:min(len(old), 3)] + "x", nil })
		case 4:
			err = m.Sync(e.ctx)
		case 5:
			err = m.WaitFor(e.ctx, rmap.Revision{Generation: 1, Number: uint64(i) + 1, Nonce: 1})
			if errors.Is(err, rmap.ErrGone) {
				err = nil
			}
		case 6:
			_, err = m.Reset(e.ctx)
		case 7:
			for range m.All() {
				m.Get(key)
			}
			m.Snapshot().Len()
			m.Stats()
			if m.Lag().State == rmap.Closed {
				return
			}
		}
		if errors.Is(err, rmap.ErrClosed) {
			return
		}
		if err != nil {
			e.Errorf("worker %d: %v", worker, err)
			return
		}
		e.pass(200 * time.Microsecond)
	}
}
