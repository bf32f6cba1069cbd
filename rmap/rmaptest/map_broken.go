package rmaptest

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapBroken checks what a value, or a key, that does not decode does: it is told, it is no entry, and it kills nothing.
func mapBroken() []test {
	return []test{
		{"WrongKinds", wrongKinds},
		{"Overflow", overflow},
		{"ToldAndMended", brokenTold},
		{"ThereAtJoin", brokenAtJoin},
		{"CodecFailsOrPanics", fickle},
		{"Keys", brokenKeys},
		{"Encode", encodeFails},
		{"FormerValue", brokenFormer},
		{"NoZeroValue", noZero},
	}
}

// isBroken checks that a key is there, as one that did not decode and nothing else.
func isBroken[K comparable, V any](e *env, m *rmap.Map[K, V], keys ...K) {
	e.Helper()
	s := m.Snapshot()
	broken := maps.Collect(s.Broken())
	for _, key := range keys {
		if v, ok := m.Get(key); ok {
			e.Fatalf("Get of a broken %v is %s", key, text(v))
		}
		_, err := m.Lookup(key)
		if !errors.Is(err, rmap.ErrDecode) || !errors.Is(broken[key], rmap.ErrDecode) {
			e.Fatalf("Lookup of a broken %v: %v; Broken has %v", key, err, broken[key])
		}
		if _, ok := s.RevisionOf(key); !ok {
			e.Fatalf("a broken %v has no revision", key)
		}
	}
	if len(broken) != len(keys) || m.Stats().Broken != len(keys) {
		e.Fatalf("%d are broken, Stats say %d, want %d", len(broken), m.Stats().Broken, len(keys))
	}
	n := 0
	for range s.All() {
		n++
	}
	if n != s.Len() || n != m.Len() {
		e.Fatalf("All yields %d, Len is %d", n, s.Len())
	}
}

func wrongKinds(e *env) {
	raw := joined(e, e.first, raws{})
	e.did(raw.Batch().Set("p", plain("7")).Set("i", integer("7")).Set("l", list("7")).Write(e.ctx))
	text := joined(e, e.second, texts{})
	isBroken(e, text, "i", "l")
	data := joined(e, e.second, rmap.Options[string, []byte]{})
	isBroken(e, data, "i", "l")
	number := joined(e, e.second, numbers{})
	isBroken(e, number, "p", "l")
	lists := joined(e, e.second, listings{})
	isBroken(e, lists, "i", "p")
	named := joined(e, e.second, rmap.Options[string, port]{})
	isBroken(e, named, "p", "l")
	values := joined(e, e.second, rmap.Options[string, float64]{})
	isBroken(e, values, "i", "l")
	isBroken(e, joined(e, e.first, raws{}))
}

func overflow(e *env) {
	raw := joined(e, e.first, raws{})
	e.did(raw.Set(e.ctx, "big", integer("300")))
	e.did(raw.Set(e.ctx, "fits", integer("-128")))
	small := joined(e, e.first, rmap.Options[string, int8]{})
	isBroken(e, small, "big")
	if v, ok := small.Get("fits"); v != -128 || !ok {
		e.Fatalf("-128 is %v, %t", v, ok)
	}
	type tiny int8
	named := joined(e, e.first, rmap.Options[string, tiny]{})
	isBroken(e, named, "big")
	isBroken(e, joined(e, e.first, rmap.Options[string, []int8]{Values: rmap.Lists(rmap.Ints[int8]())}), "big", "fits")
	e.did(raw.Batch().Reset().Set("l", list("1", "300")).Set("ok", list("1")).Write(e.ctx))
	isBroken(e, joined(e, e.first, rmap.Options[string, []int8]{Values: rmap.Lists(rmap.Ints[int8]())}), "l")
}

func brokenTold(e *env) {
	raw := joined(e, e.first, raws{})
	m := joined(e, e.second, numbers{})
	tp := record(e, m, rmap.WatchOptions{})
	e.did(m.Set(e.ctx, "k", 1))
	r := e.did(raw.Set(e.ctx, "k", plain("secret")))
	e.synced(m)
	isBroken(e, m, "k")
	e.fails(rmap.ErrConflict)(m.SetIfAbsent(e.ctx, "k", 2))
	if _, _, err := m.Update(e.ctx, "k", func(int, bool) (int, error) { e.Error("Update showed it"); return 0, nil }); err != nil {
		e.failed(err, rmap.ErrDecode, rmap.NotApplied)
	}
	e.did(m.Set(e.ctx, "k", 3)) // a good value mends it
	e.did(raw.Set(e.ctx, "k", plain("bad")))
	e.did(m.Delete(e.ctx, "k"))
	e.did(raw.Set(e.ctx, "k", plain("bad")))
	e.did(m.Reset(e.ctx))
	e.did(m.Set(e.ctx, "k", 4))
	events := tp.tells(e, "set k: none to 1", "broken k", "set k: none to 3", "broken k", "delete k: none to none", "broken k",
		"reset", "set k: none to 4")
	if ev := events[1]; !errors.Is(ev.Err, rmap.ErrDecode) || ev.Revision != r || strings.Contains(ev.Err.Error(), "secret") || ev.HasNew {
		e.Fatalf("the event is %+v", ev)
	}
	isBroken(e, m)
	shows(e, m, map[string]int{"k": 4})
	if got := m.Stats().Undecoded; got != 3 {
		e.Fatalf("%d were counted that did not decode, want 3", got)
	}
}

func brokenAtJoin(e *env) {
	raw := joined(e, e.first, raws{})
	e.did(raw.Set(e.ctx, "bad", plain("x")))
	e.did(raw.Set(e.ctx, "good", integer("1")))
	m := joined(e, e.second, numbers{})
	isBroken(e, m, "bad")
	shows(e, m, map[string]int{"good": 1})
	if _, err := m.Lookup("nothing"); !errors.Is(err, rmap.ErrAbsent) || !strings.Contains(err.Error(), `"nothing"`) {
		e.Fatalf("Lookup of nothing: %v", err)
	}
	e.did(m.SetAndWait(e.ctx, "bad", 2))
	isBroken(e, m)
	shows(e, m, map[string]int{"good": 1, "bad": 2})
}

// moody fails to decode some values, in its own ways.
type moody struct{}

func (moody) Encode(v string) (rmap.Value, error) {
	if v == "refuse" {
		return rmap.Value{}, errors.New("no such value")
	}
	return plain(v), nil
}

func (moody) Decode(v rmap.Value) (string, error) {
	switch v.Data {
	case "panic":
		panic("a codec's panic")
	case "error panic":
		return strings.Repeat("an error as a panic", -1), nil
	case "fail":
		return "half", fmt.Errorf("its own error")
	}
	return v.Data, nil
}

func fickle(e *env) {
	raw := joined(e, e.first, texts{})
	a, b := pair(e, texts{Values: moody{}})
	tp := record(e, b, rmap.WatchOptions{})
	for _, v := range []string{"panic", "error panic", "fail"} {
		e.did(raw.Set(e.ctx, v, v))
	}
	e.synced(a, b)
	isBroken(e, a, "panic", "error panic", "fail")
	isBroken(e, b, "panic", "error panic", "fail")
	if _, err := b.Lookup("fail"); !strings.Contains(err.Error(), "its own error") {
		e.Fatalf("Lookup does not say why: %v", err)
	}
	isBroken(e, joined(e, e.second, texts{Values: moody{}}), "panic", "error panic", "fail")
	e.did(a.Set(e.ctx, "panic", "well"))
	e.synced(b)
	shows(e, b, map[string]string{"panic": "well"})
	tp.tells(e, "broken panic", "broken error panic", "broken fail", "set panic: none to well")
	if s := b.Lag().State; s != rmap.Live {
		e.Fatalf("the copy is %v", s)
	}
}

func brokenKeys(e *env) {
	raw := joined(e, e.first, texts{})
	e.did(raw.Set(e.ctx, "early", "v"))
	m := joined(e, e.second, rmap.Options[int, string]{})
	tp := record(e, m, rmap.WatchOptions{})
	e.did(raw.Set(e.ctx, "late", "v"))
	e.did(raw.Set(e.ctx, "7", "v"))
	e.did(raw.Set(e.ctx, "07", "v"))
	e.did(raw.Delete(e.ctx, "late"))
	e.did(raw.Set(e.ctx, "8", "v"))
	events := tp.tells(e, "broken 0", "set 7: none to v", "broken 0", "set 8: none to v")
	if err := events[0].Err; !errors.Is(err, rmap.ErrDecode) || !strings.Contains(err.Error(), `"late"`) {
		e.Fatalf("the error does not name the key: %v", err)
	}
	shows(e, m, map[int]string{7: "v", 8: "v"})
	e.did(m.Reset(e.ctx))
	e.synced(m, raw)
	shows(e, m, nil)
	shows(e, raw, nil)
}

func encodeFails(e *env) {
	m := joined(e, e.first, texts{Values: moody{}})
	w := e.fails(rmap.ErrInvalid)(m.Set(e.ctx, "k", "refuse"))
	if !strings.Contains(w.Error(), "no such value") {
		e.Fatalf("the error does not say why: %v", w)
	}
	e.fails(rmap.ErrInvalid)(m.Batch().Set("a", "v").Set("b", "refuse").Write(e.ctx))
	e.fails(rmap.ErrInvalid)(m.CompareAndSet(e.ctx, "k", "refuse", "v"))
	f := joined(e, e.first, rmap.Options[string, func()]{})
	e.fails(rmap.ErrInvalid)(f.Set(e.ctx, "k", func() {}))
	l := joined(e, e.first, listings{Values: rmap.Lists[string](moody{})})
	e.fails(rmap.ErrInvalid)(l.Set(e.ctx, "k", []string{"a", "refuse"}))
	_, _, err := rmap.Append(e.ctx, l, "k", "refuse")
	e.failed(err, rmap.ErrInvalid, rmap.NotApplied)
	e.synced(m)
	shows(e, m, nil)
}

// A write that replaced or removed something is applied, whether what was there decodes or not.
func brokenFormer(e *env) {
	raw := joined(e, e.first, raws{})
	m := joined(e, e.first, numbers{})
	e.did(raw.Set(e.ctx, "k", plain("x")))
	_, existed, r, err := m.Swap(e.ctx, "k", 1)
	if w := e.failed(err, rmap.ErrDecode, rmap.Applied); !existed || r.IsZero() || w.Revision != r {
		e.Fatalf("Swap: %t, %v, %v", existed, r, err)
	}
	e.synced(m)
	shows(e, m, map[string]int{"k": 1})
	e.did(raw.Set(e.ctx, "k", plain("x")))
	_, existed, r, err = m.Take(e.ctx, "k")
	if w := e.failed(err, rmap.ErrDecode, rmap.Applied); !existed || w.Revision != r {
		e.Fatalf("Take: %t, %v, %v", existed, r, err)
	}
	e.synced(m)
	shows(e, m, nil)
}

// deref keeps what a pointer points to, and cannot encode nil.
type deref struct{}

func (deref) Encode(v *shape) (rmap.Value, error) { return plain(v.Name), nil }

func (deref) Decode(v rmap.Value) (*shape, error) { return &shape{Name: v.Data}, nil }

// firstLetter keeps the first letter of a key, and panics without one.
type firstLetter struct{}

func (firstLetter) Encode(v string) (rmap.Value, error) { return plain(v[:1]), nil }

func (firstLetter) Decode(v rmap.Value) (string, error) {
	if v.Data == "!" {
		panic("a codec's panic")
	}
	return v.Data, nil
}

// A codec need not know what to do with the zero value of its type.
func noZero(e *env) {
	a, b := pair(e, rmap.Options[string, []*shape]{Keys: firstLetter{}, Values: rmap.Lists[*shape](deref{})})
	want := map[string][]*shape{"k": {{Name: "a"}, {Name: "b"}}}
	e.did(a.Set(e.ctx, "k", want["k"]))
	e.synced(b)
	isBroken(e, b)
	shows(e, b, want)
	tp := record(e, b, rmap.WatchOptions{})
	raw := joined(e, e.first, listings{})
	e.did(raw.Set(e.ctx, "!", nil))
	if ev := tp.until(e, 1)[0]; ev.Cause != rmap.CauseBroken || !errors.Is(ev.Err, rmap.ErrDecode) || !strings.Contains(ev.Err.Error(), `"!"`) {
		e.Fatalf("it was told %+v", ev)
	}
	shows(e, b, want)
}
