package rmapredis_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/latchkey-go/latchkey/internal/redistest"
	"github.com/latchkey-go/latchkey/internal/trial"
	"github.com/latchkey-go/latchkey/rmap"
	"github.com/latchkey-go/latchkey/rmap/rmaplocal"
	"github.com/latchkey-go/latchkey/rmap/rmapredis"
)

// strange are keys like the bookkeeping of other packages and of ours.
var strange = []string{"p:a=b", "=pool:x", "=gen", "=rev", "=kind", "=", ":", " ", "\x00", "\n", "{flags}:log", "flags:due",
	"1 00000000000000aa 1 00000000000000bb 0 0 0 0 0", "\xff\xfe", "tmp", "changes"}

// S19: any text is a key, whoever writes it: a process with a copy, a script, or somebody by hand.
func TestS19AnyKey(t *testing.T) {
	script := rmapredis.NewScript(`for _, key in ipairs(ARGV) do map.set(key, 'p' .. 'script', 0) end`)
	w := newWorld(t)
	a, b := w.join(deaf()), w.join(deaf())
	check := func(value string) {
		t.Helper()
		want := make(map[string]string)
		for _, k := range strange {
			want[k] = value
		}
		for _, r := range []*replica{a, b} {
			r.sync()
			r.shows(want)
		}
		if stored, _ := w.stored(); !maps.Equal(stored, want) {
			t.Fatalf("stored is %q", stored)
		}
	}
	for _, k := range strange {
		if _, err := a.SetIfAbsent(t.Context(), k, "api"); err != nil {
			t.Fatalf("%q: %v", k, err)
		}
	}
	check("api")
	if done, err := rmapredis.Run(t.Context(), b.store, script, w.name, nil, strange); err != nil || !done.Changed {
		t.Fatal(done, err)
	}
	check("script")
	for _, k := range strange {
		w.byHand(k, "by hand")
	}
	check("by hand")
	for _, k := range strange {
		a.del(k)
	}
	a.sync()
	a.shows(nil)
}

// S20: what is there does not stand in the way of a key like our bookkeeping that comes later, nor that of anything.
func TestS20BookkeepingAsAKeyComesLater(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	r.set("k", "v")
	want := map[string]string{"k": "v"}
	for _, key := range strange {
		before := r.Lag().Revision
		rev, err := r.SetIfAbsent(t.Context(), key, "v")
		if err != nil || rev.Generation != before.Generation || rev.Number != before.Number+1 {
			t.Fatalf("%q: %v, %v after %v", key, rev, err, before)
		}
		want[key] = "v"
		r.sync()
		r.shows(want)
	}
	w.settled(r, w.join(deaf()))
}

// S22: a script of another package goes through the prelude or fails; it cannot leave half a change.
func TestS22ScriptFails(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	rev := r.set("k", "v")
	for name, body := range map[string]string{
		"an error": `map.set('k', 'pw', 0) error('no')`,
		"no kind":  `map.set('l', 'pw', 0) map.set('k', 'w', 0)`,
		"no key":   `map.set('l', 'pw', 0) map.set('', 'pw', 0)`,
		"a code":   `map.delete('k') map.fail('INVALID')`,
	} {
		if done, err := rmapredis.Run(t.Context(), r.store, rmapredis.NewScript(body), w.name, nil, nil); err == nil {
			t.Errorf("%s: %+v", name, done)
		}
		if stored, at := w.stored(); at != rev || !maps.Equal(stored, map[string]string{"k": "v"}) {
			t.Errorf("%s: stored is %q at %v", name, stored, at)
		}
	}
	r.sync()
	r.hears("set k")
}

// S23: the one key that cannot be kept is refused at once, by name, and nothing hangs.
func TestS23EmptyKeyIsRefused(t *testing.T) {
	w := newWorld(t)
	r := w.join(deaf())
	trial.Soon(t, "the empty key", func() {
		if _, err := r.SetAndWait(context.WithoutCancel(t.Context()), "", "v"); !errors.Is(err, rmap.ErrInvalid) ||
			rmap.OutcomeOf(err) != rmap.NotApplied {
			t.Errorf("the empty key: %v", err)
		}
		if _, err := rmapredis.Run(t.Context(), r.store, rmapredis.NewScript(`map.set('', 'pv', 0)`), w.name, nil, nil); !errors.Is(err, rmap.ErrInvalid) {
			t.Errorf("the empty key by a script: %v", err)
		}
	})
	if _, ok := r.Get(""); ok || w.Int("EXISTS", w.hash()) != 0 {
		t.Error("it is there")
	}
}

// H9: the same program runs in one process without a server, and a cluster, which it cannot use, is refused by name.
func TestH09SameProgramElsewhere(t *testing.T) {
	program := func(store rmap.Store) map[string]string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		a, err := rmap.Join(ctx, store, "m", options{})
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		b, err := rmap.Join(ctx, store, "m", options{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		_, err1 := a.Set(ctx, "k", "v")
		_, err2 := b.CompareAndSet(ctx, "k", "v", "w")
		_, err3 := a.SetTTL(ctx, "t", "v", time.Millisecond)
		_, err4 := b.Batch().IfAbsent("n").Set("n", "1").Delete("none").Write(ctx)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			t.Fatal(err)
		}
		until(t, "the entry is over", func() bool { return b.Sync(ctx) == nil && b.Len() == 2 })
		return maps.Collect(b.All())
	}
	w := newWorld(t)
	local := rmaplocal.New(rmaplocal.Options{})
	defer local.Close()
	here, there := program(local), program(w.open(w.Addr(), rmapredis.Options{}))
	if !maps.Equal(here, there) || len(here) != 2 {
		t.Errorf("in this process %q, in a server %q", here, there)
	}

	cluster := redistest.Start(t, redistest.Options{Config: []string{"cluster-enabled yes"}})
	if s, err := rmapredis.Open(t.Context(), cluster.URL(), rmapredis.Options{}); !errors.Is(err, rmap.ErrInvalid) {
		if err == nil {
			s.Close()
		}
		t.Errorf("a cluster: %v", err)
	}
}
