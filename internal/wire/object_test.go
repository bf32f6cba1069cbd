package wire

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/latchkey-go/latchkey/lease"
)

// Members come in order, with their values as they were written.
func TestObject(t *testing.T) {
	var got []string
	err := Object([]byte(` {"a": 1,"b\u0063":"x\ny" , "c":[1,{"d":2}],"a":null}  `), func(name []byte, v Value) {
		got = append(got, string(name)+"="+string(v))
	})
	want := []string{"a=1", `bc="x\ny"`, `c=[1,{"d":2}]`, "a=null"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestObjectRefuses(t *testing.T) {
	deep := `{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`
	for _, line := range []string{``, ` `, `null`, `[]`, `7`, `{`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1}x`, `{a:1}`, `{"a":"`, deep} {
		if err := Object([]byte(line), func([]byte, Value) {}); lease.CodeOf(err) != lease.ErrProtocol {
			t.Errorf("%.20q: %v", line, err)
		}
	}
}

func TestValue(t *testing.T) {
	if s, wrong := Value(`"a\u00e9b"`).Text(); s != "aéb" || wrong != "" {
		t.Errorf("text: %q %q", s, wrong)
	}
	for _, bad := range []string{``, `7`, `null`, `"\ud800"`, "\"\xff\""} {
		if _, wrong := Value(bad).Text(); wrong == "" {
			t.Errorf("%q is taken as a text", bad)
		}
	}
	if n, err := Value(`17`).Positive("max", ""); n != 17 || err != nil {
		t.Errorf("positive: %d %v", n, err)
	}
	if n, err := Value(`99999999999999999999`).Positive("max", ""); n != 1<<63-1 || err != nil {
		t.Errorf("beyond 2^63: %d %v", n, err)
	}
	for _, bad := range []string{``, `0`, `-3`, `1.5`, `1e3`, `"7"`, `true`, `[]`, `-99999999999999999999`} {
		_, err := Value(bad).Positive("max", "")
		if lease.CodeOf(err) != lease.ErrRefused || !strings.Contains(err.Error(), "max must be a positive integer, got ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	var parts []string
	if !Value(`[ "a" , 1,{"x":[]} ]`).Each(func(v Value) { parts = append(parts, string(v)) }) ||
		!slices.Equal(parts, []string{`"a"`, `1`, `{"x":[]}`}) {
		t.Errorf("each: %q", parts)
	}
	if Value(`{}`).Each(func(Value) {}) || Value(nil).Each(func(Value) {}) {
		t.Error("what is no array is taken as one")
	}
}

// Whatever encoding/json takes as an object is taken here, and nothing else is,
// with the same names and values.
func FuzzObject(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, `{"a":"b","c":[null,true]}`, `{"\u0041":{"x":1e5}}`, `[]`, `{"a":1`, "{\"a\":\"\xff\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		got := map[string]string{}
		err := Object(line, func(name []byte, v Value) { got[string(name)] = string(v) })
		var want map[string]json.RawMessage
		if json.Unmarshal(line, &want) != nil || want == nil {
			return // depth and duplicates of mangled names are where the two differ; ours may be laxer nowhere else
		}
		if err != nil {
			if !strings.Contains(err.Error(), "nested deeper") {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		if len(got) < len(want) {
			t.Fatalf("%d members, want %d", len(got), len(want))
		}
		for name, v := range want {
			if w, ok := got[name]; ok && w != string(v) {
				t.Fatalf("%q: %s, want %s", name, w, v)
			}
		}
	})
}
