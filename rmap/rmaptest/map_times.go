package rmaptest

import (
	"errors"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapTTLs checks entries that end: hidden everywhere at their deadline, told once, and removed from the store.
func mapTTLs() []test {
	return []test{
		{"Hidden", ttlHidden},
		{"Told", ttlTold},
		{"Kept", ttlKept},
		{"Absent", ttlAbsent},
		{"Replaced", ttlReplaced},
		{"ClosedMap", ttlClosed},
		{"Many", ttlMany},
		{"SnapshotStays", ttlSnapshot},
	}
}

// leaves waits until a copy does not show a key any more.
func leaves[K comparable, V any](e *env, m *rmap.Map[K, V], key K) {
	e.Helper()
	e.until("the entry is hidden", func() bool { _, ok := m.Get(key); return !ok })
}

func ttlHidden(e *env) {
	a, b := pair(e, texts{})
	e.did(a.Set(e.ctx, "stays", "v"))
	began := time.Now()
	r := e.did(a.SetTTL(e.ctx, "k", "v", 200*time.Millisecond))
	if err := b.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	if _, ok := b.Get("k"); !ok && time.Since(began) < 190*time.Millisecond {
		e.Fatal("it is hidden before its deadline")
	}
	leaves(e, a, "k")
	leaves(e, b, "k")
	if d := time.Since(began); d < 199*time.Millisecond {
		e.Fatalf("it was hidden after %v, its ttl is 200ms", d)
	}
	for _, m := range []*rmap.Map[string, string]{a, b} {
		shows(e, m, map[string]string{"stays": "v"})
		if _, err := m.Lookup("k"); !errors.Is(err, rmap.ErrAbsent) {
			e.Fatalf("Lookup: %v", err)
		}
		if _, ok := m.Snapshot().RevisionOf("k"); ok {
			e.Fatal("a snapshot taken now has it")
		}
	}
	e.until("the store has removed it", func() bool { return len(e.scan(e.first, e.name)) == 1 })
	e.synced(a, b)
	shows(e, a, map[string]string{"stays": "v"})
	shows(e, b, map[string]string{"stays": "v"})
}

func ttlTold(e *env) {
	a, b := pair(e, texts{})
	e.did(a.Set(e.ctx, "stays", "v"))
	e.synced(a, b)
	ta, tb := record(e, a, rmap.WatchOptions{}), record(e, b, rmap.WatchOptions{})
	r := e.did(a.SetTTL(e.ctx, "k", "v", short))
	leaves(e, a, "k")
	leaves(e, b, "k")
	e.until("the store has removed it", func() bool { return len(e.scan(e.first, e.name)) == 1 })
	last := e.did(a.Set(e.ctx, "end", "v"))
	for _, tp := range []*tape[string, string]{ta, tb} {
		events := tp.tells(e, "set k: none to v", "expire k: v to none", "set end: none to v")
		if events[0].Revision != r || events[1].Revision.Number < r.Number || events[1].Revision.Number >= last.Number {
			e.Fatalf("the events are of %v, %v and %v", events[0].Revision, events[1].Revision, events[2].Revision)
		}
	}
}

// What adds to a value keeps its deadline, and what replaces it does not, unless it says so.
func ttlKept(e *env) {
	m := joined(e, e.first, texts{})
	n := joined(e, e.first, numbers{})
	l := joined(e, e.first, listings{})
	e.did(m.SetTTL(e.ctx, "kept", "v", long))
	e.did(m.SetTTL(e.ctx, "dropped", "v", long))
	e.did(n.SetTTL(e.ctx, "n", 1, long))
	e.did(l.SetTTL(e.ctx, "l", []string{"a"}, long))
	before := e.scan(e.first, e.name)
	e.did(m.Batch().SetKeepTTL("kept", "w").SetKeepTTL("new", "v").Write(e.ctx))
	e.did(m.Set(e.ctx, "dropped", "w"))
	if _, _, err := rmap.Inc(e.ctx, n, "n", 1); err != nil {
		e.Fatal(err)
	}
	for _, do := range []func() error{
		func() error { _, _, err := rmap.Append(e.ctx, l, "l", "b"); return err },
		func() error { _, _, err := rmap.AppendUnique(e.ctx, l, "l", "c"); return err },
		func() error { _, _, err := rmap.Remove(e.ctx, l, "l", "a"); return err },
	} {
		if err := do(); err != nil {
			e.Fatal(err)
		}
	}
	after := e.scan(e.first, e.name)
	for _, key := range []string{"kept", "n", "l"} {
		if after[key].Deadline != before[key].Deadline || after[key].Deadline == 0 || after[key].Value == before[key].Value {
			e.Errorf("%q went from %+v to %+v", key, before[key], after[key])
		}
	}
	if after["dropped"].Deadline != 0 || after["new"].Deadline != 0 {
		e.Errorf("there are deadlines on %+v and %+v", after["dropped"], after["new"])
	}
}

func ttlAbsent(e *env) {
	m := joined(e, e.first, texts{})
	n := joined(e, e.first, numbers{})
	put := func() rmap.Revision {
		r := e.did(m.Batch().SetTTL("k", "v", short).Write(e.ctx))
		e.reachMap(m, r, "k")
		return r
	}
	put()
	e.fails(rmap.ErrConflict)(m.CompareAndSet(e.ctx, "k", "v", "w"))
	r := put()
	e.fails(rmap.ErrConflict)(m.SetAtRevision(e.ctx, "k", r, "w"))
	put()
	e.did(m.SetIfAbsent(e.ctx, "k", "w"))
	put()
	if _, existed, _, err := m.Swap(e.ctx, "k", "w"); existed || err != nil {
		e.Fatalf("Swap: %t, %v", existed, err)
	}
	put()
	if _, existed, _, err := m.Take(e.ctx, "k"); existed || err != nil {
		e.Fatalf("Take: %t, %v", existed, err)
	}
	put()
	if v, _, err := m.Update(e.ctx, "k", func(old string, ok bool) (string, error) {
		if ok {
			e.Errorf("Update showed %q", old)
		}
		return "u", nil
	}); v != "u" || err != nil {
		e.Fatalf("Update: %q, %v", v, err)
	}
	put()
	if v, _, err := rmap.Inc(e.ctx, n, "k", 3); v != 3 || err != nil {
		e.Fatalf("Inc: %d, %v", v, err) // it was text before
	}
}

// reachMap waits until an entry is past its deadline, here and so in the store.
func (e *env) reachMap(m *rmap.Map[string, string], r rmap.Revision, key string) {
	e.Helper()
	if err := m.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	leaves(e, m, key)
}

func ttlReplaced(e *env) {
	a, b := pair(e, texts{})
	e.did(a.SetTTL(e.ctx, "ever", "v", short))
	e.did(a.SetTTL(e.ctx, "again", "v", short))
	last := e.did(a.SetTTL(e.ctx, "witness", "v", short))
	e.did(a.Set(e.ctx, "ever", "w"))
	e.did(a.SetTTL(e.ctx, "again", "w", long))
	e.reachMap(b, last, "witness")
	e.pass(short)
	e.synced(a, b)
	shows(e, a, map[string]string{"ever": "w", "again": "w"})
	shows(e, b, map[string]string{"ever": "w", "again": "w"})
}

func ttlClosed(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.SetTTL(e.ctx, "k", "v", 100*time.Millisecond))
	e.did(m.Set(e.ctx, "stays", "v"))
	e.synced(m)
	m.Close()
	leaves(e, m, "k")
	shows(e, m, map[string]string{"stays": "v"})
}

// More end at once than one write removes.
func ttlMany(e *env) {
	a, b := pair(e, numbers{})
	e.did(a.Set(e.ctx, "begin", 1)) // a first change this large is read, and not followed
	e.did(a.Delete(e.ctx, "begin"))
	e.synced(b)
	tp := record(e, b, rmap.WatchOptions{Events: 10 * rmap.MaxOps})
	batch := a.Batch()
	for i := range 5 * rmap.PurgeBatch {
		batch.SetTTL(string(rune('一'+i)), i, 50*time.Millisecond)
	}
	e.did(batch.Set("stays", 1).Write(e.ctx))
	e.until("all are hidden", func() bool { return a.Len() == 1 && b.Len() == 1 })
	e.until("the store has removed them", func() bool { return len(e.scan(e.first, e.name)) == 1 })
	e.did(a.Set(e.ctx, "end", 1))
	n := make(map[rmap.Cause]int)
	for _, ev := range tp.until(e, 10*rmap.PurgeBatch+2) {
		n[ev.Cause]++
	}
	if n[rmap.CauseSet] != 5*rmap.PurgeBatch+2 || n[rmap.CauseExpire] != 5*rmap.PurgeBatch || len(n) != 2 {
		e.Fatalf("the events are %v", n)
	}
}

func ttlSnapshot(e *env) {
	m := joined(e, e.first, texts{})
	e.did(m.SetTTL(e.ctx, "k", "v", 200*time.Millisecond))
	e.synced(m)
	s := m.Snapshot()
	leaves(e, m, "k")
	if v, ok := s.Get("k"); v != "v" || !ok || s.Len() != 1 {
		e.Fatalf("the snapshot has %q, %t", v, ok)
	}
}

// mapLifetimes checks maps that end as a whole.
func mapLifetimes() []test {
	return []test{
		{"Ends", lifeEnds},
		{"Absolute", lifeAbsolute},
		{"Sliding", lifeSliding},
		{"Mismatch", lifeMismatch},
		{"AfterDestroy", lifeAfterDestroy},
	}
}

const life = 300 * time.Millisecond

// Everything is gone at once, nothing of it comes back, and what is written next is a new life.
func lifeEnds(e *env) {
	a, b := pair(e, texts{TTL: life})
	tp := record(e, b, rmap.WatchOptions{})
	e.did(a.Set(e.ctx, "k", "v"))
	r := e.did(a.Set(e.ctx, "l", "v"))
	if err := b.WaitFor(e.ctx, r); err != nil {
		e.Fatal(err)
	}
	e.until("the map has ended", func() bool { return a.Len() == 0 && b.Len() == 0 })
	e.synced(a, b)
	shows(e, a, nil)
	shows(e, b, nil)
	if lag := b.Lag(); !lag.Revision.IsZero() || lag.State != rmap.Live {
		e.Fatalf("Lag is %+v", lag)
	}
	if err := b.WaitFor(e.ctx, r); !errors.Is(err, rmap.ErrGone) {
		e.Fatalf("WaitFor a life that is over: %v", err)
	}
	next := e.did(a.SetAndWait(e.ctx, "k", "w"))
	if next.Generation == r.Generation || next.Number != 1 {
		e.Fatalf("after %v came %v", r, next)
	}
	if err := b.WaitFor(e.ctx, next); err != nil {
		e.Fatal(err)
	}
	shows(e, b, map[string]string{"k": "w"})
	tp.tells(e, "set k: none to v", "set l: none to v", "reset", "set k: none to w")
	if err := b.WaitFor(e.ctx, r); !errors.Is(err, rmap.ErrGone) {
		e.Fatalf("WaitFor a life that is over: %v", err)
	}
	e.fails(rmap.ErrConflict)(b.SetAtRevision(e.ctx, "k", r, "x"))
}

// expiry returns when the store says that the map ends.
func (e *env) expiry() int64 {
	e.Helper()
	w := e.follow(e.first, e.name)
	defer w.close()
	return e.headOf(w).Expires
}

func lifeAbsolute(e *env) {
	m := joined(e, e.first, texts{TTL: long})
	e.did(m.Set(e.ctx, "k", "v"))
	ends := e.expiry()
	e.pass(20 * time.Millisecond)
	e.did(m.Set(e.ctx, "k", "w"))
	e.did(m.Reset(e.ctx))
	e.did(m.Set(e.ctx, "k", "x"))
	if got := e.expiry(); got != ends || ends == 0 {
		e.Fatalf("the end moved from %d to %d", ends, got)
	}
	other, err := rmap.Join(e.ctx, e.first, "short", texts{TTL: life})
	if err != nil {
		e.Fatal(err)
	}
	defer other.Close()
	e.did(other.Set(e.ctx, "k", "v"))
	began := time.Now()
	for time.Since(began) < life-50*time.Millisecond {
		e.did(other.Reset(e.ctx))
		e.did(other.Set(e.ctx, "k", "v"))
		e.pass(20 * time.Millisecond)
	}
	e.until("it ends whatever was written", func() bool { return other.Len() == 0 })
}

func lifeSliding(e *env) {
	a, b := pair(e, texts{TTL: life, Sliding: true})
	first := e.did(a.Set(e.ctx, "k", "v"))
	for range 8 {
		e.pass(life / 4)
		if got := e.did(a.Set(e.ctx, "l", "v")); got.Generation != first.Generation {
			e.Skip("the machine stood still for longer than the map lives")
		}
	}
	if _, ok := b.Get("k"); !ok {
		e.Fatal("it ended though it was changed all the time")
	}
	e.until("the map has ended", func() bool { return a.Len() == 0 && b.Len() == 0 })
	e.synced(a, b)
	shows(e, b, nil)
}

func lifeMismatch(e *env) {
	early := joined(e, e.second, texts{TTL: 2 * long})
	m := joined(e, e.first, texts{TTL: long})
	e.did(m.SetAndWait(e.ctx, "k", "v"))
	for what, o := range map[string]texts{
		"another ttl": {TTL: 2 * long},
		"sliding":     {TTL: long, Sliding: true},
	} {
		if _, err := rmap.Join(e.ctx, e.first, e.name, o); !errors.Is(err, rmap.ErrLifetime) {
			e.Errorf("join with %s: %v", what, err)
		}
	}
	// One that joined before there was anything is refused when it writes.
	e.fails(rmap.ErrLifetime)(early.Set(e.ctx, "k", "w"))
	e.fails(rmap.ErrLifetime)(early.Delete(e.ctx, "k"))
	e.fails(rmap.ErrLifetime)(early.Reset(e.ctx))
	e.synced(early)
	shows(e, early, map[string]string{"k": "v"})
	// One that says nothing goes along.
	easy := joined(e, e.second, texts{})
	e.did(easy.SetAndWait(e.ctx, "k", "w"))
	shows(e, easy, map[string]string{"k": "w"})
	ever, err := rmap.Join(e.ctx, e.first, "ever", texts{})
	if err != nil {
		e.Fatal(err)
	}
	defer ever.Close()
	e.did(ever.Set(e.ctx, "k", "v"))
	if _, err := rmap.Join(e.ctx, e.first, "ever", texts{TTL: long}); !errors.Is(err, rmap.ErrLifetime) {
		e.Errorf("join with a ttl where there is none: %v", err)
	}
}

// A map that was destroyed begins again with the writer's ttl.
func lifeAfterDestroy(e *env) {
	a := joined(e, e.first, texts{TTL: long})
	b := joined(e, e.first, texts{})
	e.did(a.Set(e.ctx, "k", "v"))
	e.did(a.Destroy(e.ctx))
	e.did(b.Set(e.ctx, "k", "v"))
	if got := e.expiry(); got != 0 {
		e.Fatalf("it ends at %d, though its writer said nothing", got)
	}
	e.fails(rmap.ErrLifetime)(a.Set(e.ctx, "k", "w"))
	e.did(b.Destroy(e.ctx))
	e.did(a.Set(e.ctx, "k", "w"))
	if e.expiry() == 0 {
		e.Fatal("it does not end, though its writer said so")
	}
}
