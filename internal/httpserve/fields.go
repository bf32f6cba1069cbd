package httpserve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/latchkey-go/latchkey/internal/wire"
	"github.com/latchkey-go/latchkey/lease"
)

// fields are the members of a request body. Decoding is strict where a lax
// decoder could make two callers mean different things by the same bytes, or one
// caller mean something that nobody reads: an unknown or repeated member, other
// capitals, invalid UTF-8 and lone surrogates, which would turn different keys
// into one.
type fields map[string]json.RawMessage

func parseFields(body []byte, allowed []string) (fields, *problem) {
	bad := func(format string, args ...any) (fields, *problem) {
		return nil, &problem{400, lease.ErrRefused, fmt.Sprintf(format, args...)}
	}
	if !utf8.Valid(body) {
		return bad("the body is not valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return bad("the body must be one JSON object, such as {\"%s\": …}", allowed[0])
	}
	f := make(fields)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return bad("the body is not valid JSON: %v", err)
		}
		name, _ := t.(string)
		if !slices.Contains(allowed, name) {
			return bad("unknown field %s; this route takes %s", lease.QuoteKey(name), strings.Join(allowed, ", "))
		}
		if _, twice := f[name]; twice {
			return bad("%s appears twice", name)
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return bad("the body is not valid JSON: %s: %v", name, err)
		}
		if string(raw) == "null" && name != "ttl" {
			continue // as if it were absent; for a ttl that would be a guess
		}
		f[name] = raw
	}
	if _, err := dec.Token(); err != nil {
		return bad("the body is not valid JSON: %v", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return bad("there is more after the JSON object")
	}
	return f, nil
}

func (f fields) has(name string) bool { _, ok := f[name]; return ok }

func (f fields) text(name string) (string, error) {
	raw, ok := f[name]
	if !ok {
		return "", nil
	}
	return text(name, raw)
}

func text(name string, raw json.RawMessage) (string, error) {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return "", lease.Refuse("%s must be a string, got %s", name, wire.Value(raw).Clip())
	}
	if loneSurrogate(raw) {
		return "", lease.Refuse("%s has half of a surrogate pair, which is no character: %s", name, wire.Value(raw).Clip())
	}
	return s, nil
}

func (f fields) texts(name string) ([]string, error) {
	raw, ok := f[name]
	if !ok {
		return nil, nil
	}
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return nil, lease.Refuse("%s must be a list of strings, got %s", name, wire.Value(raw).Clip())
	}
	out := make([]string, 0, len(items))
	for i, item := range items {
		s, err := text(fmt.Sprintf("%s[%d]", name, i), item)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

func (f fields) flag(name string) (bool, error) {
	switch raw := f[name]; string(raw) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, lease.Refuse("%s must be true or false, got %s", name, wire.Value(raw).Clip())
	}
}

// positive reads an integer of at least 1; 0 when it is absent.
func (f fields) positive(name, unit string) (int64, error) {
	raw, ok := f[name]
	if !ok {
		return 0, nil
	}
	return wire.Value(raw).Positive(name, unit)
}

// millis reads a duration; 0 when it is absent. What does not fit a duration is
// cut to the longest one that does, which every limit then refuses by its name.
func (f fields) millis(name string) (time.Duration, error) {
	n, err := f.positive(name, " of milliseconds")
	if err != nil {
		return 0, err
	}
	const most = int64(lease.Forever/time.Millisecond) - 1
	return time.Duration(min(n, most)) * time.Millisecond, nil
}

// loneSurrogate reports whether a valid JSON string escapes half of a surrogate
// pair. The decoder replaces such a half silently.
func loneSurrogate(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		i++
		if raw[i] != 'u' {
			continue
		}
		first := escaped(raw[i:])
		i += 4
		if !utf16.IsSurrogate(first) {
			continue
		}
		if i+2 >= len(raw) || raw[i+1] != '\\' || raw[i+2] != 'u' ||
			utf16.DecodeRune(first, escaped(raw[i+2:])) == utf8.RuneError {
			return true
		}
		i += 6
	}
	return false
}

// escaped decodes uXXXX, which the JSON decoder found to be well formed.
func escaped(raw []byte) rune {
	n, _ := strconv.ParseUint(string(raw[1:5]), 16, 16)
	return rune(n)
}
