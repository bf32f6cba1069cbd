package rmaptest

import (
	"bytes"
	"errors"
	"math"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/latchkey-go/latchkey/rmap"
)

// mapCodecs checks what each type is kept as, when the options do not say, and that it comes back.
func mapCodecs() []test {
	return []test{
		{"Defaults", defaultCodecs},
		{"Named", namedCodecs},
		{"Explicit", explicitCodecs},
		{"Raw", rawCodec},
		{"KeyTypes", keyTypes},
		{"AwkwardKeys", awkwardKeys},
		{"EmptyValues", emptyValues},
	}
}

type (
	shape struct {
		Name  string
		Sides int            `json:",omitempty"`
		Tags  map[string]any `json:",omitempty"`
	}
	flagName string
	port     int16
	stamp    time.Duration
	shout    string // says itself how it wants to be written
)

// MarshalText implements [encoding.TextMarshaler].
func (s shout) MarshalText() ([]byte, error) { return []byte(strings.ToUpper(string(s))), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *shout) UnmarshalText(b []byte) error {
	*s = shout(strings.ToLower(string(b)))
	return nil
}

// keeps writes values with a codec, and checks what the store has of them and what another process reads.
func keeps[V any](e *env, codec rmap.Codec[V], want map[string]rmap.Value, values map[string]V) {
	e.Helper()
	a, b := pair(e, rmap.Options[string, V]{Values: codec})
	for key, v := range values {
		e.did(a.Set(e.ctx, key, v))
	}
	e.synced(b)
	shows(e, b, values)
	for range b.Snapshot().Broken() {
		e.Fatal("there is something broken in it")
	}
	got := make(map[string]rmap.Value)
	for key, x := range e.scan(e.first, e.name) {
		got[key] = x.Value
	}
	if !reflect.DeepEqual(got, want) {
		e.Fatalf("the store has %s, want %s", shown(got), shown(want))
	}
	e.did(a.Reset(e.ctx))
	a.Close()
	b.Close()
}

func one1[T any](v T) map[string]T { return map[string]T{"k": v} }

func defaultCodecs(e *env) {
	keeps(e, nil, one1(plain("a\x00\xff")), one1("a\x00\xff"))
	keeps(e, nil, one1(plain("a\x00\xff")), one1([]byte("a\x00\xff")))
	keeps(e, nil, one1(list("a", "", "b,c", `["d"]`)), one1([]string{"a", "", "b,c", `["d"]`}))
	keeps(e, nil, map[string]rmap.Value{"a": integer("-9223372036854775808"), "b": integer("0"), "c": integer("9223372036854775807")},
		map[string]int64{"a": math.MinInt64, "b": 0, "c": math.MaxInt64})
	keeps(e, nil, one1(integer("-5")), one1(-5))
	keeps(e, nil, one1(integer("-5")), one1(int32(-5)))
	keeps(e, nil, one1(integer("-32768")), one1(int16(-32768)))
	keeps(e, nil, one1(integer("127")), one1(int8(127)))
	keeps(e, nil, one1(plain("18446744073709551615")), one1(uint64(math.MaxUint64)))
	keeps(e, nil, one1(plain("true")), one1(true))
	keeps(e, nil, one1(plain("0.1")), one1(0.1))
	keeps(e, nil, one1(plain(`{"Name":"square","Sides":4,"Tags":{"a":"b"}}`)), one1(shape{"square", 4, map[string]any{"a": "b"}}))
	keeps(e, nil, one1(plain(`{"Name":"p"}`)), one1(&shape{Name: "p"}))
	keeps(e, nil, one1(plain(`[1,2]`)), one1([]int{1, 2}))
	keeps(e, nil, one1(plain(`null`)), one1((*shape)(nil)))
	keeps(e, nil, one1(plain(`"2026-01-02T03:04:05Z"`)), one1(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)))
}

func namedCodecs(e *env) {
	keeps(e, nil, one1(plain("dark")), one1(flagName("dark")))
	keeps(e, nil, one1(integer("443")), one1(port(443)))
	keeps(e, nil, one1(integer("1000000000")), one1(stamp(time.Second)))
	keeps(e, nil, one1(integer("1500000000")), one1(1500*time.Millisecond))
	keeps(e, nil, one1(plain(`"LOUD"`)), one1(shout("loud")))
	keeps(e, rmap.Strings[flagName](), one1(plain("dark")), one1(flagName("dark")))
	keeps(e, rmap.Ints[port](), one1(integer("443")), one1(port(443)))
}

func explicitCodecs(e *env) {
	keeps(e, rmap.Binary[url.URL](), one1(plain("https://a.example/b?c=d")), one1(url.URL{Scheme: "https", Host: "a.example", Path: "/b", RawQuery: "c=d"}))
	keeps(e, rmap.JSON[string](), one1(plain(`"a"`)), one1("a"))
	keeps(e, rmap.Bytes(), one1(plain("b")), one1([]byte("b")))
	keeps(e, rmap.Lists(rmap.Ints[int]()), one1(list("1", "-2")), one1([]int{1, -2}))
	keeps(e, rmap.Lists(rmap.Bytes()), one1(list("\x00", "")), one1([][]byte{{0}, {}}))
	keeps(e, rmap.Lists(rmap.JSON[shape]()), one1(list(`{"Name":"a"}`, `{"Name":"b"}`)), one1([]shape{{Name: "a"}, {Name: "b"}}))
	keeps(e, rmap.Lists(rmap.JSON[*shape]()), one1(list(`{"Name":"a"}`, "null")), one1([]*shape{{Name: "a"}, nil}))
	inner := rmap.Lists(rmap.Strings[string]())
	keeps(e, rmap.Lists(inner), one1(list(rmap.EncodeList([]string{"a", "b"}), "")), one1([][]string{{"a", "b"}, {}}))
}

func rawCodec(e *env) {
	values := map[string]rmap.Value{"p": plain("x"), "i": integer("-7"), "l": list("a", "b"), "e": list(), "": plain("")}
	delete(values, "")
	keeps(e, nil, values, values)
	m := joined(e, e.first, raws{})
	for _, bad := range []rmap.Value{{Kind: rmap.Integer, Data: "x"}, {Kind: rmap.Integer, Data: "+1"}, {Kind: rmap.Integer, Data: "01"},
		{Kind: rmap.Integer, Data: "-0"}, {Kind: rmap.Integer, Data: "9223372036854775808"}, {Kind: rmap.List, Data: "a,b"},
		{Kind: rmap.List, Data: "3:ab"}, {Kind: 'z', Data: "x"}, {}} {
		e.fails(rmap.ErrInvalid)(m.Set(e.ctx, "k", bad))
	}
	shows(e, m, nil)
}

// keysOf checks that keys of a type come back.
func keysOf[K comparable](e *env, codec rmap.Codec[K], want ...string) func(keys ...K) {
	return func(keys ...K) {
		e.Helper()
		a, b := pair(e, rmap.Options[K, string]{Keys: codec})
		values := make(map[K]string)
		for i, k := range keys {
			values[k] = want[i]
			e.did(a.Set(e.ctx, k, want[i]))
		}
		e.synced(b)
		shows(e, b, values)
		for key, x := range e.scan(e.first, e.name) {
			if key != x.Value.Data {
				e.Errorf("the key %q was to be %q", key, x.Value.Data)
			}
		}
		for _, k := range keys {
			e.did(b.Delete(e.ctx, k))
		}
		e.synced(a)
		shows(e, a, nil)
		a.Close()
		b.Close()
	}
}

func keyTypes(e *env) {
	keysOf[string](e, nil, "a", "b")("a", "b")
	keysOf[flagName](e, nil, "a", "b")("a", "b")
	keysOf[int](e, nil, "-1", "0", "7")(-1, 0, 7)
	keysOf[int64](e, nil, "-9223372036854775808", "9223372036854775807")(math.MinInt64, math.MaxInt64)
	keysOf[port](e, nil, "80")(80)
	keysOf(e, rmap.JSON[uint](), "80")(80)
	keysOf(e, rmap.JSON[[2]int](), "[1,2]")([2]int{1, 2})
	keysOf(e, rmap.Binary[url.URL](), "http://a")(url.URL{Scheme: "http", Host: "a"})
	if _, err := rmap.Join(e.ctx, e.first, e.name, rmap.Options[uint, string]{}); !errors.Is(err, rmap.ErrInvalid) ||
		!strings.Contains(err.Error(), "uint") || !strings.Contains(err.Error(), "Options.Keys") {
		e.Fatalf("keys without a codec: %v", err)
	}
}

func awkwardKeys(e *env) {
	a, b := pair(e, texts{})
	want := make(map[string]string)
	for _, k := range awkward() {
		e.did(a.SetIfAbsent(e.ctx, k, k))
		want[k] = k
	}
	e.synced(b)
	shows(e, b, want)
	for _, k := range awkward() {
		r, ok := b.Snapshot().RevisionOf(k)
		if !ok {
			e.Fatalf("%s has no revision", text(k))
		}
		e.did(b.SetAtRevision(e.ctx, k, r, "w"))
		if v, _, err := a.Update(e.ctx, k, func(string, bool) (string, error) { return "x", nil }); v != "x" || err != nil {
			e.Fatalf("Update of %s: %q, %v", text(k), v, err)
		}
		e.did(b.CompareAndDelete(e.ctx, k, "x"))
		w := e.fails(rmap.ErrConflict)(a.CompareAndSet(e.ctx, k, "x", "y"))
		if len(w.Key) > 500 || w.Key == "" {
			e.Errorf("the error has the key %s", text(w.Key))
		}
	}
	e.synced(a, b)
	shows(e, a, nil)
	shows(e, b, nil)
}

func emptyValues(e *env) {
	a, b := pair(e, texts{})
	e.did(a.Set(e.ctx, "k", ""))
	e.fails(rmap.ErrConflict)(a.SetIfAbsent(e.ctx, "k", "v"))
	old, existed, _, err := a.Swap(e.ctx, "k", "v")
	if old != "" || !existed || err != nil {
		e.Fatalf("Swap: %q, %t, %v", old, existed, err)
	}
	e.did(a.CompareAndSet(e.ctx, "k", "v", ""))
	e.did(a.CompareAndSet(e.ctx, "k", "", ""))
	e.synced(b)
	shows(e, b, map[string]string{"k": ""})
	c := joined(e, e.first, rmap.Options[string, []byte]{})
	if v, ok := c.Get("k"); !ok || !bytes.Equal(v, nil) {
		e.Fatalf("as bytes it is %q, %t", v, ok)
	}
	l := joined(e, e.first, listings{})
	e.did(l.Set(e.ctx, "l", nil))
	e.synced(l)
	if v, ok := l.Get("l"); !ok || len(v) != 0 {
		e.Fatalf("an empty list is %q, %t", v, ok)
	}
}
