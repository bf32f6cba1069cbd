package httpserve

import (
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// FuzzFields feeds any bytes to the decoder of request bodies. It must not
// panic, and what it accepts must be an object in which a lax decoder sees the
// same texts: strictness refuses, it does not read differently.
func FuzzFields(f *testing.F) {
	for _, s := range []string{
		`{"key":"a","ttl":5000}`, `{"key":"\ud83d\ude00"}`, `{"key":"\ud83d"}`, `{"key":"\\ud800"}`, `{"keys":["a","b"]}`,
		`{}`, `[]`, `null`, `{"key":"a","key":"b"}`, `{"key":"a"}{}`, `{"ttl":1e3,"max":-0}`, `{"force":true,"key":"\u0000"}`,
	} {
		f.Add([]byte(s))
	}
	allowed := []string{"key", "keys", "ttl", "max", "force"}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, p := parseFields(body, allowed)
		if p != nil {
			if p.text == "" || p.status != 400 {
				t.Errorf("refusal %d %q", p.status, p.text)
			}
			return
		}
		var lax map[string]any
		if err := json.Unmarshal(body, &lax); err != nil {
			t.Fatalf("accepted what is not JSON: %v", err)
		}
		if s, err := got.text("key"); err == nil && got.has("key") {
			if s != lax["key"] || !utf8.ValidString(s) {
				t.Errorf("key %q, a lax decoder reads %q", s, lax["key"])
			}
		}
		if keys, err := got.texts("keys"); err == nil && got.has("keys") && len(keys) != len(lax["keys"].([]any)) {
			t.Errorf("keys %q, a lax decoder reads %v", keys, lax["keys"])
		}
		if d, err := got.millis("ttl"); err == nil && d < 0 {
			t.Errorf("ttl %v", d)
		}
		_, _ = got.positive("max", "")
		_, _ = got.flag("force")
	})
}

func TestLoneSurrogate(t *testing.T) {
	for text, want := range map[string]bool{
		`"plain"`: false, `"\ud83d\ude00"`: false, `"\uD83D\uDE00x"`: false, `"\\ud800"`: false, `"\n\ud83d\ude00\t"`: false,
		`"\ud83d"`: true, `"\ude00\ud83d"`: true, `"\ud83d\n"`: true, `"\ud83dx"`: true, `"\ud83d\ud83d\ude00"`: true,
		`"\ufffd"`: false,
	} {
		if got := loneSurrogate([]byte(text)); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
