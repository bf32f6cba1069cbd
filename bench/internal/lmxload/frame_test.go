package lmxload

import (
	"encoding/json"
	"testing"
)

func TestFramesAreScanned(t *testing.T) {
	var f frame
	line := `{"readersCount":0,"uuid":"U-1","key":"a\"b\\","lockRequestCount":3,"x":[{"type":"no]}"},2],"type":"lock","acquired":true,"fencingToken":9007199254740991}`
	if !f.parse([]byte(line)) || string(f.kind) != "lock" || string(f.uuid) != "U-1" || string(f.key) != `a\"b\\` ||
		f.acquired != yes || f.unlocked != missing || f.token != 1<<53-1 || f.problem != nil || f.again {
		t.Errorf("%+v", f)
	}
	if !f.parse([]byte(`{"type":"unlock","unlocked":false,"error":"no \"such\" lock"}`)) || f.unlocked != no || string(f.problem) != `"no \"such\" lock"` {
		t.Errorf("%+v", f)
	}
	if !f.parse([]byte(`{"reelection":true}`)) || !f.again {
		t.Errorf("%+v", f)
	}
	for _, bad := range []string{
		``, `{`, `}`, `null`, `[]`, `{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":"}`, `{"a":"\"}`, `{"a":[1}`, `{"a":["]}`, `{a:1}`,
		`{"acquired":1}`, `{"uuid":7}`, `{"fencingToken":"7"}`, `{"fencingToken":9007199254740992}`, `{"fencingToken":-1}`,
	} {
		if f.parse([]byte(bad)) {
			t.Errorf("%s was taken", bad)
		}
	}
}

// What the scanner takes of valid JSON is what encoding/json reads, and nothing
// makes it panic.
func FuzzFrame(f *testing.F) {
	f.Add([]byte(`{"type":"lock","uuid":"u","key":"k","acquired":true,"fencingToken":1,"x":{"y":[]}}`))
	f.Add([]byte(`{"a":"\\","b":null}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var got frame
		if !got.parse(line) || !json.Valid(line) {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatalf("%q was taken for an object: %v", line, err)
		}
		for name, v := range map[string][]byte{"type": got.kind, "uuid": got.uuid} {
			if raw := want[name]; v != nil && raw != nil && string(raw) != `"`+string(v)+`"` {
				t.Errorf("%q: %s = %q, want %s", line, name, v, raw)
			}
		}
	})
}
